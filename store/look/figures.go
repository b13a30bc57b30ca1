package look

import (
	"context"
	"database/sql"
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

// Unfinished counts the tasks that have not ended, up to a limit. Waiting and held ones count.
func (r Reader) Unfinished(ctx context.Context, most int64) (Bounded, error) {
	var total int64
	err := r.view(ctx, func(v view) error {
		first, err := v.open(ctx)
		for _, p := range first {
			if err != nil || total > most {
				break
			}
			var n int64
			err = v.q.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM tasks WHERE slot = ? AND pos >= ? LIMIT ?) AS unfinished", p.Slot, p.Pos, most+1-total).Scan(&n)
			total += n
		}
		return err
	})
	return upTo(most, total), wrap.Err(err, "counting the tasks that have not ended")
}

// CountOverdueOf is CountOverdue for some topics. Of more than most, the oldest is not known.
func (r Reader) CountOverdueOf(ctx context.Context, topics []string, before, most int64) (found Bounded, oldest int64, err error) {
	err = r.view(ctx, func(v view) error {
		first, err := v.open(ctx)
		least := before
		for _, p := range first {
			least = min(least, p.Pos)
		}
		if err != nil || least == before || len(topics) == 0 {
			return err
		}
		lanes, err := v.lanesOf(ctx, topics)
		if err != nil {
			return err
		}
		var n int64
		args := append(append(append(lanes, least, before), topicArgs(topics)...), most+1)
		err = v.q.QueryRowContext(ctx, tables.Limited(ctx, "SELECT COUNT(*), COALESCE(MIN(pos), 0) FROM (SELECT pos FROM "+r.h.Dialect.Use("tasks", "lane")+" JOIN slots ON slots.slot = tasks.slot"+
			" WHERE lane IN ("+tables.Marks(len(lanes))+") AND pos >= ? AND pos < ? AND pos > slots.done AND topic IN ("+tables.Marks(len(topics))+") LIMIT ?) AS overdue"), args...).Scan(&n, &oldest)
		if found = upTo(most, n); found.More {
			oldest = 0
		}
		return err
	})
	return found, oldest, wrap.Err(tables.Timely(err), "counting overdue tasks")
}

// CountKindsOf is CountKinds for the letters of some topics. It looks at the newest of a kind; if
// there are more than most, of all topics, more of those allowed may be behind.
func (r Reader) CountKindsOf(ctx context.Context, kinds []string, most int64, allowed func(topic string) bool) (map[string]Bounded, error) {
	type count struct {
		topic string
		n     int64
	}
	table, out := r.h.Dialect.Use("dead_letters", "kind"), make(map[string]Bounded, len(kinds))
	for _, kind := range kinds {
		counts, err := tables.Ask(ctx, r.h.Reads(), func(r *sql.Rows, c *count) error { return r.Scan(&c.topic, &c.n) },
			"SELECT topic, COUNT(*) FROM (SELECT topic FROM "+table+" WHERE kind = ? AND replayed_at = 0 ORDER BY id DESC LIMIT ?) AS letters GROUP BY topic", []byte(kind), most+1)
		if err != nil {
			return nil, fmt.Errorf("counting the dead letters of kind %s: %w", kind, err)
		}
		var all, own int64
		for _, c := range counts {
			if all += c.n; allowed(c.topic) {
				own += c.n
			}
		}
		out[kind] = Bounded{own, all > most}
	}
	return out, nil
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
