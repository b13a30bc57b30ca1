package api

import (
	"context"
	"fmt"
	"time"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
)

// Local reads the database. Client has the same methods and calls a running service.
type Local struct {
	store *store.Store
	lists *turns
	*deadletter.Local

	// Lag returns how far the intake is stored. nil: nobody asks Kafka.
	Lag func(ctx context.Context) ([]Lag, error)

	overview  *overviewer
	changes   *turns        // of many tasks or dead letters
	cancelFor time.Duration // how long one request cancels many
	// Unindex tells the index that tasks were cancelled. nil: dispatchers find that out themselves.
	Unindex func(ctx context.Context, gone []store.Place)
}

// NewLocal returns a Local over the store and its dead letters.
func NewLocal(st *store.Store, dead *deadletter.Local) *Local {
	return &Local{store: st, lists: newTurns(listsAtOnce, listsAtOnce/2), Local: dead, overview: newOverviewer(st), changes: newTurns(changesAtOnce, 1), cancelFor: cancelBudget}
}

// Task returns one task with its content and its history, or look.ErrNotFound.
func (l *Local) Task(ctx context.Context, topic, id string) (Task, error) {
	v, history, err := look.New(l.store).GetHistory(ctx, schemas.TargetName(topic), id)
	if err != nil {
		return Task{}, err
	}
	t := newTask(v, true)
	t.Waiting = history.Waiting
	for _, e := range history.Events {
		t.Events = append(t.Events, newTaskEvent(e))
	}
	for _, e := range history.Changes {
		t.Changes = append(t.Changes, newAuditEntry(e))
	}
	return t, nil
}

// Lists read many rows, so their number at a time and their duration are limited.
const (
	listsAtOnce = 6
	listTimeout = 5 * time.Second
)

// listing reads one of the few lists that may be read at a time.
//
// The turn of a caller who leaves ends with the statement that was begun for it: the database goes on
// with that statement, and statements that nobody waits for must not pile up there.
func (l *Local) listing(ctx context.Context, read func(context.Context) error) error {
	leave, err := l.lists.take(ctx, 1)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
	defer cancel()
	return read(ctx)
}

// Tasks returns a page of tasks: those due next first, or those that ended last first.
func (l *Local) Tasks(ctx context.Context, f TaskFilter) (Tasks, error) {
	after, err := parseCursor(f.Cursor)
	if err == nil {
		err = checkTag(f.Tag)
	}
	if err != nil {
		return Tasks{}, err
	}
	var page look.ListPage
	err = l.listing(ctx, func(ctx context.Context) error {
		var err error
		page, err = look.New(l.store).List(ctx, look.ListFilter{
			Topic: schemas.TargetName(f.Topic), IDPrefix: f.IDPrefix, Tag: f.Tag, State: f.State, From: f.From, To: f.To, Limit: f.Limit, Ended: f.Ended, Body: f.Content, After: after, Allowed: f.Allowed,
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

// checkTag finds mistakes in a filter.
func checkTag(tag string) error {
	if tag == "" || schemas.ValidTag(tag) {
		return nil
	}
	return &deadletter.FieldError{Field: "tag", Value: tag, Problem: "is not a tag: write one of 1 to 64 letters, digits or -_.:"}
}

// A cursor is the position at which a page ended. Callers pass it back unchanged.
const cursorForm = "%d.%d.%d"

func formatCursor(p *look.ListPlace) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(cursorForm, p.Pos, p.Lane, p.Seq)
}

func parseCursor(text string) (*look.ListPlace, error) {
	if text == "" {
		return nil, nil // the first page has no cursor
	}
	var p look.ListPlace
	if _, err := fmt.Sscanf(text, cursorForm, &p.Pos, &p.Lane, &p.Seq); err != nil || formatCursor(&p) != text {
		return nil, &deadletter.FieldError{Field: "cursor", Value: text, Problem: "is none that a list has answered: give back the one of the page before, or leave it out"}
	}
	return &p, nil
}

// Letter returns one dead letter, or deadletter.ErrNotFound.
func (l *Local) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	return deadletter.Show(ctx, l.store, id)
}

// CountLetters counts what a filter selects.
func (l *Local) CountLetters(ctx context.Context, f letters.Filter) (int64, error) {
	n, _, err := letters.New(l.store).Count(ctx, f, 0)
	return n, err
}
