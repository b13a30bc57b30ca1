package line

import (
	"context"
	"database/sql"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Tasks that are held.
type (
	HeldPlace = handle.HeldPlace // a place among a target's held tasks; the zero value is before all
	HeldTask  = handle.HeldTask
)

// HeldTasks returns up to n held tasks behind a place, in the order of their missed releases. They
// stand in all slots, and some may belong to another target of the same lane.
func (l Line) HeldTasks(ctx context.Context, topic string, after HeldPlace, n int) ([]HeldTask, error) {
	out, err := l.h.HeldTasks(ctx, l.h.DB, topic, &after, n)
	return out, wrap.Err(err, "reading held tasks")
}

// Head is a task without its body.
type Head struct {
	Seq     int64
	Slot    int
	Pos     int64
	Due     int64
	State   task.State
	Attempt int
	Topic   string
}

// Heads reads tasks without their bodies. A seq that no longer exists is left out.
func (l Line) Heads(ctx context.Context, seqs []int64) ([]Head, error) {
	out, err := tables.FetchIn(ctx, l.h.DB, func(r *sql.Rows, h *Head) error {
		return r.Scan(&h.Seq, &h.Slot, &h.Pos, &h.Due, &h.State, &h.Attempt, &h.Topic)
	}, "SELECT seq, slot, pos, due, state, attempt, topic FROM tasks WHERE seq", slices.Sorted(slices.Values(seqs)), "")
	return out, wrap.Err(err, "reading %d tasks without their bodies", len(seqs))
}
