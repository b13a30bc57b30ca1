package look

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// MinuteFigures is what one process did in one minute.
type MinuteFigures struct {
	Minute int64 // since 1970
	Data   []byte
}

// Minutes returns the figures of all processes from one minute to another, the latter included, in
// order. Ask for few at a time: each has up to as many rows as there are processes.
func (r Reader) Minutes(ctx context.Context, from, to int64) (out []MinuteFigures, err error) {
	rows := r.h.Cold(ctx, "figures").Select("minute, data").Where("minute BETWEEN ? AND ?", from, to).Order("minute").Limit(int(to-from+1) * handle.MaxServices)
	if err := rows.Find(&out).Error; err != nil {
		return nil, fmt.Errorf("reading the figures of minutes: %w", tables.Timely(err))
	}
	return out, nil
}

// Bounded is a number that was counted up to a limit.
type Bounded struct {
	N    int64
	More bool // there are more than N
}

func upTo(most, n int64) Bounded { return Bounded{min(n, most), n > most} }

// CountOverdue counts the unsettled tasks from before the given time, Unix ms, up to a limit, by
// the index of the line only. oldest is the place of the first, or 0. Held tasks do not count.
func (r Reader) CountOverdue(ctx context.Context, before, most int64) (found Bounded, oldest int64, err error) {
	var total int64
	err = r.view(ctx, func(v view) error {
		first, err := v.open(ctx)
		for _, p := range first {
			if p.Pos >= before {
				continue
			}
			if oldest == 0 || p.Pos < oldest {
				oldest = p.Pos
			}
			if total > most {
				continue
			}
			var n int64
			err := v.q.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM tasks WHERE slot = ? AND pos >= ? AND pos < ? LIMIT ?) AS overdue",
				p.Slot, p.Pos, before, most+1-total).Scan(&n)
			if err != nil {
				return err
			}
			total += n
		}
		return err
	})
	return upTo(most, total), oldest, wrap.Err(err, "counting overdue tasks")
}

// CountKinds counts each kind's dead letters that were not replayed, up to a limit, by an index.
func (r Reader) CountKinds(ctx context.Context, kinds []string, most int64) (map[string]Bounded, error) {
	table := r.h.Dialect.Use("dead_letters", "kind")
	out := make(map[string]Bounded, len(kinds))
	for _, kind := range kinds {
		var n int64
		err := r.h.Reads().QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" WHERE kind = ? AND replayed_at = 0 LIMIT ?) AS letters", []byte(kind), most+1).Scan(&n)
		if err != nil {
			return nil, fmt.Errorf("counting the dead letters of kind %s: %w", kind, err)
		}
		out[kind] = upTo(most, n)
	}
	return out, nil
}

// Services returns the services alive with their figures, in the order of kinds and ids.
func (r Reader) Services(ctx context.Context) (out []handle.Service, err error) {
	now, err := r.h.Time(ctx)
	if err != nil {
		return nil, err
	}
	alive := r.h.Cold(ctx, "services").Where("seen > ?", now.UnixMilli()-handle.ServiceLease).Order("kind, id").Limit(handle.MaxServices)
	if err := alive.Find(&out).Error; err != nil {
		return nil, fmt.Errorf("reading the services: %w", tables.Timely(err))
	}
	return out, nil
}
