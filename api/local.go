package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/store"
)

// Local answers from the database itself; Client has the same methods and asks a running service.
type Local struct {
	store *store.Store
	lists chan struct{} // one place for each that is being read
	*deadletter.Local
}

// NewLocal combines the two.
func NewLocal(st *store.Store, dead *deadletter.Local) *Local {
	return &Local{st, make(chan struct{}, listsAtOnce), dead}
}

// TaskFilter selects tasks to list.
type TaskFilter struct {
	Topic    string
	IDPrefix string
	State    string
	From, To int64  // place in the line at or after, and before, Unix ms
	Limit    int    // 0: 100
	Ended    bool   // those that ended last instead of those that come next
	Content  bool   // with their content
	Cursor   string // that of the page before
	// Allowed tells whether a task of the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

// Task answers one task with its content, or store.ErrNotFound.
func (l *Local) Task(ctx context.Context, topic, id string) (Task, error) {
	v, err := l.store.Get(ctx, topic, id)
	if err != nil {
		return Task{}, err
	}
	return newTask(v, true), nil
}

// Lists read many rows: so many run at a time, each for so long.
const (
	listsAtOnce  = 4
	listPatience = 5 * time.Second
)

// ErrListing: as many lists as may run at a time are running.
var ErrListing = errors.New("four other lists are being read: try again in a second")

// listing runs one of the few lists that may run at a time.
func (l *Local) listing(ctx context.Context, read func(context.Context) error) error {
	select {
	case l.lists <- struct{}{}:
	default:
		return ErrListing
	}
	defer func() { <-l.lists }()
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	return read(ctx)
}

// Tasks lists a page of tasks: what comes next first, or what ended last first.
func (l *Local) Tasks(ctx context.Context, f TaskFilter) (Tasks, error) {
	after, err := parseCursor(f.Cursor)
	if err != nil {
		return Tasks{}, err
	}
	var page store.ListPage
	err = l.listing(ctx, func(ctx context.Context) error {
		var err error
		page, err = l.store.List(ctx, store.ListFilter{
			Topic: f.Topic, IDPrefix: f.IDPrefix, State: f.State, From: f.From, To: f.To, Limit: f.Limit, Ended: f.Ended, Body: f.Content, After: after, Allowed: f.Allowed,
		})
		return err
	})
	if err != nil {
		return Tasks{}, err
	}
	out := Tasks{Tasks: make([]Task, 0, len(page.Tasks)), Cursor: formatCursor(page.More)}
	for _, v := range page.Tasks {
		out.Tasks = append(out.Tasks, newTask(v, f.Content))
	}
	return out, nil
}

// A cursor is the place at which a page ended. Callers give it back as it is.
const cursorForm = "%d.%d.%d"

func formatCursor(p *store.ListPlace) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(cursorForm, p.Pos, p.Lane, p.Seq)
}

func parseCursor(text string) (*store.ListPlace, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // the first page has none
	}
	var p store.ListPlace
	if _, err := fmt.Sscanf(text, cursorForm, &p.Pos, &p.Lane, &p.Seq); err != nil || formatCursor(&p) != text {
		return nil, &deadletter.FieldError{Field: "cursor", Value: text, Problem: "is none that a list has answered: give back the one of the page before, or leave it out"}
	}
	return &p, nil
}

// Letter answers one dead letter, or deadletter.ErrNotFound.
func (l *Local) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	return deadletter.Show(ctx, l.store, id)
}

// CountLetters counts what a filter selects.
func (l *Local) CountLetters(ctx context.Context, f store.DeadFilter) (int64, error) {
	return l.store.CountDead(ctx, f)
}
