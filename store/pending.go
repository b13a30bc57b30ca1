package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/task"
)

// CountPending counts the tasks of a target that stand behind a place, Unix ms, up to a limit: those
// that come later, and those that are held. It reads an index only, so tasks of another target of
// the same lane count too. Behind now, nothing in a lane has ended.
func (s *Store) CountPending(ctx context.Context, topic string, after, most int64) (Bounded, error) {
	table := "tasks FORCE INDEX (lane)"
	if s.sqlite {
		table = "tasks INDEXED BY tasks_lane"
	}
	var total int64
	for class := range task.Classes {
		var n int64
		err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" WHERE lane = ? AND pos > ? LIMIT ?) AS pending",
			int64(task.LaneOf(topic, task.Class(class))), after, most+1-total).Scan(&n)
		if err != nil {
			return Bounded{}, fmt.Errorf("counting the tasks of a target: %w", err)
		}
		if total += n; total > most {
			break
		}
	}
	return upTo(most, total), nil
}

// OldestOverdue returns the place of the first task of each target (task.Lane.Target) that was to
// come before the given time, Unix ms, and is not settled. Of each slot it looks at so many, the
// first ones, so it may miss targets where more are overdue. It reads the index of the line only.
func (s *Store) OldestOverdue(ctx context.Context, before int64, perSlot int) (map[uint32]int64, error) {
	all, err := s.Slots(ctx)
	if err != nil {
		return nil, err
	}
	done, places := make(map[int]int64, len(all)), make([]SlotPos, len(all))
	for i, slot := range all {
		done[slot.Slot], places[i] = slot.Done, SlotPos{Slot: slot.Slot, Pos: slot.Done}
	}
	first, err := s.beyond(ctx, places)
	if err != nil {
		return nil, err
	}
	type oldest struct {
		lane task.Lane
		pos  int64
	}
	out := map[uint32]int64{}
	for _, p := range first {
		if p.Pos >= before {
			continue
		}
		rows, err := fetch(ctx, s.db, func(r *sql.Rows, v *oldest) error { return r.Scan(&v.lane, &v.pos) },
			"SELECT lane, MIN(pos) FROM (SELECT lane, pos FROM tasks WHERE slot = ? AND pos > ? AND pos < ? ORDER BY pos LIMIT ?) AS overdue GROUP BY lane", p.Slot, done[p.Slot], before, perSlot)
		if err != nil {
			return nil, fmt.Errorf("looking for the oldest overdue tasks: %w", err)
		}
		for _, row := range rows {
			if pos, ok := out[row.lane.Target()]; !ok || row.pos < pos {
				out[row.lane.Target()] = row.pos
			}
		}
	}
	return out, nil
}
