package intake

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// lockSlots locks the slots of every row that this batch writes or judges. With a known task, these
// are all slots: a request that waited for the task may use any. While the number of slots changes,
// all are locked too: the first slot of a key says how far the keys are spread.
func (w *work) lockSlots(ctx context.Context, list []*identity) error {
	for _, id := range list {
		if t := id.before; t != nil && t.Slot >= w.spread.Rows() { // a slot that was made and given up since the spread was read
			w.intake.h.ForgetSpread()
			return handle.ErrSpread
		}
	}
	set := handle.SlotSet{}
	for _, t := range slices.Concat(w.fresh, w.late) {
		set.Add(t.Slot)
	}
	for _, r := range w.timers.pending {
		set.Add(r.Slot)
	}
	for _, id := range w.timers.list {
		if id.now != nil {
			set.Add(id.now.Slot)
		}
	}
	all := len(list) > 0 || len(set) > 0 && !w.spread.Whole()
	for slot := 0; slot < w.spread.Rows() && all; slot++ {
		set.Add(slot)
	}
	var err error
	if w.slots, err = w.intake.h.LockSlots(ctx, w.tx, set, handle.LockShared); err != nil {
		return err
	}
	if err := w.intake.h.CheckSpread(w.spread, w.slots); err != nil {
		return err
	}
	w.intake.h.LearnClaimed(w.slots)
	return nil
}

// placeFresh places new tasks under the lock: it stores late ones, and moves others whose place was
// claimed meanwhile right behind claimed. None is delayed: tasks are released by due.
func (w *work) placeFresh(ctx context.Context) error {
	moves, sent := map[int][]int64{}, []int64(nil)
	for _, t := range w.fresh {
		if w.keepSent(t) {
			sent = append(sent, t.Seq)
		}
		if claimed := w.slots[t.Slot].Claimed; t.Pos <= claimed {
			t.Pos = claimed + 1
			moves[t.Slot] = append(moves[t.Slot], t.Seq)
		}
		w.placed(t)
	}
	for slot, seqs := range moves {
		if err := tables.ExecIn(ctx, w.tx, "UPDATE tasks SET pos = ? WHERE seq", seqs, w.slots[slot].Claimed+1); err != nil {
			return fmt.Errorf("placing late tasks: %w", err)
		}
	}
	if err := keepTaken(ctx, w.tx, sent); err != nil {
		return err
	}
	for _, t := range w.late {
		w.keepSent(t)
		t.Pos = max(t.Due, w.slots[t.Slot].Claimed+1)
		w.placed(t)
	}
	return w.insertTasks(ctx, w.late)
}

// keepSent makes a new task one that is to be sent again, if the owner of its slot has sent it, and
// the database has forgotten that and its request.
func (w *work) keepSent(t *task.Task) bool {
	if t == nil || t.State != task.StateLine || !w.slots[t.Slot].Sent.Have(t) {
		return false
	}
	t.State = task.StateRetry
	return true
}

func (w *work) placed(t *task.Task) {
	due := t.Due
	if t.State != task.StateLine {
		due = t.Pos // of the next attempt
	}
	w.applied.Added = append(w.applied.Added, handle.NewPlace(t.Slot, t.Pos, t.Seq, due))
	w.applied.opened(t.Seq, 1, len(t.Body))
}

// moved tells whether a task has ended with nothing changed but its place, state and attempts, as
// by a report or a cancel, which also drops the body. A batch updates such tasks together.
func (id *identity) moved() (move, bool) {
	if id.before == nil || id.now == nil || id.now.Slot != task.OutOfLine {
		return move{}, false
	}
	a, b := *id.before, *id.now
	a.Slot, a.Pos, a.State, a.Attempt = b.Slot, b.Pos, b.State, b.Attempt
	m := move{b.Slot, b.Pos, b.State, b.Attempt, len(b.Body) == 0}
	if m.bare {
		a.Body = b.Body
	}
	return m, reflect.DeepEqual(a, b)
}

func (w *work) write(ctx context.Context, list []*identity) error {
	var gone []int64
	var tags []handle.Tag // of those
	var rows []*task.Task
	same := map[move][]int64{}
	for _, id := range list {
		if id.now == id.before {
			continue
		}
		if t := id.before; t != nil && t.Slot != task.OutOfLine && t.Pos > w.slots[t.Slot].Claimed { // the owner takes what is claimed out of the index
			w.applied.Removed = append(w.applied.Removed, handle.PlaceOf(t))
		}
		if t := id.now; t != nil && t.Slot != task.OutOfLine {
			due := t.Due
			if t.State != task.StateLine {
				due = t.Pos // of the next attempt
			}
			t.Pos = max(t.Pos, w.slots[t.Slot].Claimed+1)
			w.applied.Added = append(w.applied.Added, handle.NewPlace(t.Slot, t.Pos, t.Seq, due))
			if old := id.before; old == nil || old.Phase(w.slots[old.Slot].Claimed, w.slots[old.Slot].Done) == task.Ended {
				w.applied.opened(t.Seq, 1, len(t.Body))
			} else {
				w.applied.opened(t.Seq, 0, max(len(t.Body)-len(old.Body), 0))
			}
		}
		if m, only := id.moved(); only {
			same[m] = append(same[m], id.now.Seq)
			continue
		}
		if id.before != nil {
			gone = append(gone, id.before.Seq)
			if id.now == nil || id.now.Seq != id.before.Seq || id.now.Due != id.before.Due {
				tags = append(tags, handle.TagsOf(id.before)...)
			}
		}
		if id.now != nil {
			rows = append(rows, id.now)
		}
	}
	if len(same)+len(gone) > 0 {
		if err := faultpoint.At(faultpoint.StoreReplacing); err != nil {
			return err
		}
	}
	if err := keepTaken(ctx, w.tx, w.taken); err != nil {
		return err
	}
	if err := moveTasks(ctx, w.tx, same); err != nil {
		return err
	}
	if err := deleteTasks(ctx, w.tx, gone); err != nil {
		return err
	}
	if err := handle.DeleteTags(ctx, w.tx.ExecContext, tags); err != nil {
		return err
	}
	if err := w.insertTasks(ctx, rows); err != nil {
		return err
	}
	return w.unread.write(ctx, w.tx)
}
