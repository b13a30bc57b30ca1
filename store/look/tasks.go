package look

import (
	"context"
	"errors"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// View is a task as a person wants to see it.
type View struct {
	Topic   string `json:"topic"`
	ID      string `json:"id"`
	State   string `json:"state"` // pending, claimed, waiting_report, waiting_retry, delivered, succeeded, cancelled, stopped, dead
	Due     int64  `json:"due"`   // Unix ms
	Next    int64  `json:"next"`  // when something happens to it next, Unix ms; 0 once it has ended
	Attempt int    `json:"attempt"`
	Snoozed int    `json:"snoozed,omitempty"` // of these
	Replay  int    `json:"replay,omitempty"`
	Version *int64 `json:"version,omitempty"`
	Created int64  `json:"created"`
	Slot    int    `json:"slot"` // -1: out of the line
	Body    []byte `json:"-"`
	Seq     int64  `json:"-"` // of its row

	Entry ListPlace `json:"-"` // where a list has it
}

func viewOf(t *task.Task, s handle.Slot) View {
	v := View{Topic: t.Topic, ID: t.ID, Due: t.Due, Attempt: t.Attempt, Snoozed: t.Snoozed, Replay: t.Replay, Created: t.Created, Slot: t.Slot, Body: t.Body, Seq: t.Seq}
	if t.Version >= 0 {
		v.Version = &t.Version
	}
	switch t.Phase(s.Claimed, s.Done) {
	case task.Pending:
		v.State, v.Next = "pending", t.Due
	case task.InFlight:
		v.State, v.Next = "claimed", t.Due
	case task.Between:
		v.State, v.Next = "waiting_retry", task.HeldSince(t.Pos)
		if t.State == task.StateReport {
			v.State = "waiting_report"
		}
	case task.Ended:
		switch {
		case t.State.Cancelled():
			v.State = "cancelled"
		case t.State.Stopped():
			v.State = "stopped"
		case t.State == task.StateSucceeded:
			v.State = "succeeded"
		case t.State == task.StateDead:
			v.State = "dead"
		default:
			v.State, v.Attempt = "delivered", t.Attempt+1
		}
	}
	return v
}

// ErrNotFound means that no task of this topic and id is known.
var ErrNotFound = errors.New("no task of this topic and id is known")

// Get reads the newest task of a topic and id.
func (r Reader) Get(ctx context.Context, topic, id string) (View, error) {
	t, slot, err := r.get(ctx, topic, id)
	if err != nil {
		return View{}, err
	}
	return viewOf(&t, slot), nil
}
