package look

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// History is what is remembered of a task besides its row.
type History struct {
	Events  []schemas.Event     // as task.History returns them
	Changes []handle.AuditEntry // through API and command line, the latest last
	Waiting []Waiting           // the first requests and reports that are decided later, each kind in its order
	Waits   int                 // how many there are
}

// historyOf is how many dead letters, changes and waiting requests a history has.
const historyOf = 20

// GetHistory reads the newest task of a topic and id with its history, by indexes of the id. The
// number of rows is bounded.
func (r Reader) GetHistory(ctx context.Context, topic, id string) (View, History, error) {
	t, slot, err := r.get(ctx, topic, id)
	if err != nil {
		return View{}, History{}, err
	}
	var letters []task.DeadLetter
	newest := r.h.Cold(ctx, "dead_letters").Omit("body").Where("task_id = ? AND topic = ?", []byte(id), []byte(topic)).Order("id DESC").Limit(historyOf)
	if err := newest.Find(&letters).Error; err != nil {
		return View{}, History{}, fmt.Errorf("reading the dead letters of the task: %w", tables.Timely(err))
	}
	slices.Reverse(letters)
	h := History{Events: task.History(&t, t.Phase(slot.Claimed, slot.Done), letters)}
	if h.Waiting, h.Waits, err = r.waiting(ctx, &t, t.Phase(slot.Claimed, slot.Done)); err != nil {
		return View{}, History{}, err
	}
	page, err := r.ListAudit(ctx, AuditFilter{Topic: topic, TaskID: id, OfTask: true, Limit: historyOf})
	if err != nil {
		return View{}, History{}, err
	}
	h.Changes = page.Entries
	slices.Reverse(h.Changes)
	return viewOf(&t, slot), h, nil
}

// get reads the newest task of a topic and id with its slot's offsets, in one statement, so of one
// moment: between two, a task could leave its place and the slot's done pass it.
func (r Reader) get(ctx context.Context, topic, id string) (task.Task, handle.Slot, error) {
	key := task.Ident(topic, id)
	type seen struct {
		task task.Task
		slot handle.Slot
	}
	rows, err := tables.Fetch(ctx, r.h.Reads(), func(r *sql.Rows, v *seen) error {
		return tables.ScanTaskNotes(r, &v.task, &v.slot.Claimed, &v.slot.Done)
	},
		"SELECT "+tables.TaskColumns+tables.TaskNotes+", COALESCE((SELECT claimed FROM slots s WHERE s.slot = tasks.slot), 0), COALESCE((SELECT done FROM slots s WHERE s.slot = tasks.slot), 0)"+
			" FROM tasks WHERE ident = ?", key[:])
	if err != nil {
		return task.Task{}, handle.Slot{}, fmt.Errorf("reading the task: %w", err)
	}
	if len(rows) == 0 || rows[0].task.Topic != topic || rows[0].task.ID != id {
		return task.Task{}, handle.Slot{}, ErrNotFound
	}
	return rows[0].task, rows[0].slot, nil
}
