package api

import (
	"context"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/store"
)

// Local answers from the database itself; Client has the same methods and asks a running service.
type Local struct {
	store *store.Store
	*deadletter.Local
}

// NewLocal combines the two.
func NewLocal(st *store.Store, dead *deadletter.Local) *Local { return &Local{st, dead} }

// TaskFilter selects tasks to list.
type TaskFilter struct {
	Topic   string
	From    int64 // place in the line at or after, Unix ms
	Limit   int   // 0: 100
	Ended   bool  // those that ended last instead of those that come next
	Content bool  // with their content
}

// Task answers one task with its content, or store.ErrNotFound.
func (l *Local) Task(ctx context.Context, topic, id string) (Task, error) {
	v, err := l.store.Get(ctx, topic, id)
	if err != nil {
		return Task{}, err
	}
	return newTask(v, true), nil
}

// Tasks lists tasks: what comes next first, or what ended last first.
func (l *Local) Tasks(ctx context.Context, f TaskFilter) ([]Task, error) {
	views, err := l.store.List(ctx, store.ListFilter{Topic: f.Topic, From: f.From, Limit: f.Limit, Ended: f.Ended})
	if err != nil {
		return nil, err
	}
	out := make([]Task, 0, len(views))
	for _, v := range views {
		out = append(out, newTask(v, f.Content))
	}
	return out, nil
}

// Letter answers one dead letter, or deadletter.ErrNotFound.
func (l *Local) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	return deadletter.Show(ctx, l.store, id)
}

// CountLetters counts what a filter selects.
func (l *Local) CountLetters(ctx context.Context, f store.DeadFilter) (int64, error) {
	return l.store.CountDead(ctx, f)
}
