package look

import (
	"context"
	"database/sql"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Behind are late deliveries, whoever owns the slots.
type Behind struct {
	Unclaimed []handle.Slot // their first task beyond claimed was due before the time asked about
	Unsettled []handle.Slot // their first task that is claimed and not settled was
	Next      int64         // the place of the first task of all slots that is not settled, Unix ms; 0: there is none
}

// Overdue returns the slots that are behind the given time, Unix ms.
func (r Reader) Overdue(ctx context.Context, before int64) (out Behind, err error) {
	err = r.view(ctx, func(v view) error {
		next, err := v.beyond(ctx, func(s handle.Slot) int64 { return s.Claimed })
		if err != nil {
			return err
		}
		open, err := v.open(ctx)
		if err != nil {
			return err
		}
		for _, n := range next {
			if n.Pos < before {
				out.Unclaimed = append(out.Unclaimed, v.bySlot[n.Slot])
			}
		}
		for _, o := range open {
			if out.Next == 0 || o.Pos < out.Next {
				out.Next = o.Pos
			}
			if slot := v.bySlot[o.Slot]; o.Pos < before && o.Pos <= slot.Claimed {
				out.Unsettled = append(out.Unsettled, slot)
			}
		}
		return nil
	})
	return out, err
}

// CountPending counts a target's tasks behind a place, Unix ms, up to a limit: later and held ones.
// By an index only, it counts others of the same lane too. Behind now, nothing in a lane has ended.
func (r Reader) CountPending(ctx context.Context, topic string, after, most int64) (Bounded, error) {
	table := r.h.Dialect.Use("tasks", "lane")
	var total int64
	err := r.h.View(ctx, func(q dialect.Querier) error {
		key, err := r.h.LaneKeyIn(ctx, q)
		for _, lane := range key.Lanes(topic) {
			if err != nil || total > most {
				return err
			}
			var n int64
			err = q.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" WHERE lane = ? AND pos > ? LIMIT ?) AS pending",
				int64(lane), after, most+1-total).Scan(&n)
			total += n
		}
		return err
	})
	return upTo(most, total), wrap.Err(err, "counting the tasks of a target")
}

// OldestOverdue returns the place of each target's first unsettled task from before the given time,
// Unix ms, and the first place of all other targets; 0: there is none. It looks at the first tasks
// of each slot, so many, and may miss targets where more are overdue. It reads the index of the
// line only, so another target's tasks of the same lane count too.
func (r Reader) OldestOverdue(ctx context.Context, topics []string, before int64, perSlot int) (oldest map[string]int64, others int64, err error) {
	key, err := r.h.LaneKey(ctx)
	if err != nil {
		return nil, 0, err
	}
	of := map[uint32][]string{}
	for _, topic := range topics {
		for _, target := range key.Targets(topic) {
			of[target] = append(of[target], topic)
		}
	}
	type entry struct {
		lane task.Lane
		pos  int64
	}
	oldest = map[string]int64{}
	sooner := func(a, b int64) bool { return b == 0 || a < b }
	err = r.view(ctx, func(v view) error {
		first, err := v.open(ctx)
		for _, p := range first {
			if p.Pos >= before {
				continue
			}
			rows, err := tables.Fetch(ctx, v.q, func(r *sql.Rows, v *entry) error { return r.Scan(&v.lane, &v.pos) },
				"SELECT lane, MIN(pos) FROM (SELECT lane, pos FROM tasks WHERE slot = ? AND pos >= ? AND pos < ? ORDER BY pos LIMIT ?) AS overdue GROUP BY lane", p.Slot, p.Pos, before, perSlot)
			if err != nil {
				return err
			}
			for _, row := range rows {
				named := of[row.lane.Target()]
				for _, topic := range named {
					if sooner(row.pos, oldest[topic]) {
						oldest[topic] = row.pos
					}
				}
				if len(named) == 0 && sooner(row.pos, others) {
					others = row.pos
				}
			}
		}
		return err
	})
	return oldest, others, wrap.Err(err, "looking for the oldest overdue tasks")
}
