package task

import (
	"fmt"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
)

// MaxReplays is how often a task can be replayed. No message may die and circle for ever.
const MaxReplays = 10

// NotReplayable returns why a dead letter cannot be replayed; "" if it can. cur is the present task
// of the letter's identity (nil: none is known), and ph is its phase.
func NotReplayable(d DeadLetter, cur *Task, ph Phase) string {
	switch {
	case d.Kind == schemas.KindRejected:
		return "it is a rejected request: correct it and publish it again"
	case d.ReplayedAt > 0:
		return "it has been replayed already"
	case d.Replay >= MaxReplays:
		return fmt.Sprintf("it has been replayed %d times", d.Replay)
	case len(d.Body) == 0 && (cur == nil || cur.Seq != d.Seq):
		return "its body is gone: the database refused it here, and the task's row is forgotten"
	case cur == nil:
		return ""
	case cur.Topic != d.Topic || cur.ID != d.TaskID:
		return collision
	case ph != Ended:
		return "a newer task of this topic and id is under way"
	case cur.State.Cancelled() || cur.State.Stopped():
		return "a newer request of this topic and id was cancelled or stopped, and nothing is delivered after that"
	case cur.Seq != d.Seq && cur.Version >= 0:
		return fmt.Sprintf("a newer request, of version %d, has come since", cur.Version)
	}
	return ""
}

// Replayed returns the pending task of a dead letter, due now (Unix ms), with no attempt made. It
// keeps the seq of the dead task: with the number of replays, the seq still names each delivery. It
// keeps the known version of its identity.
func Replayed(d DeadLetter, cur *Task, spread slots.Spread, now int64) *Task {
	t := &Task{Seq: d.Seq, Pos: now, Class: ClassRetried, Due: now, Replay: d.Replay + 1, Version: -1, Created: now, Topic: d.Topic, ID: d.TaskID, Body: d.Body}
	if cur != nil {
		t.Version = cur.Version
		if len(d.Body) == 0 && cur.Seq == d.Seq { // the database refused the letter's, and the row has it
			t.Body = cur.Body
		}
	}
	if body, err := schemas.DecodeBody(t.Body); err == nil {
		t.Slot = spread.Of(t.Topic, body.Key, t.ID)
	}
	return t
}

// Edit is put in place of parts of a dead letter when it is replayed.
type Edit struct {
	Topic string              // "": the letter's
	Body  func(*schemas.Body) // changes key, value and headers
	Map   int64               // version of the rules about the databases of targets; 0: any
}

// Edited returns the letter as it is replayed with an edit. cur is the present task of the letter's
// identity. Another content is another task, so it has a seq of its own: no delivery key names both
// contents, even if the database is set back to before the replay. The caller gives it the seq.
func (d DeadLetter) Edited(cur *Task, e Edit) DeadLetter {
	if len(d.Body) == 0 && cur != nil && cur.Seq == d.Seq {
		d.Body = cur.Body
	}
	if d.Kind == schemas.KindRejected || len(d.Body) == 0 {
		return d
	}
	body, err := schemas.DecodeBody(d.Body)
	if err != nil {
		d.Body = nil
		return d
	}
	e.Body(&body)
	d.Body = schemas.EncodeBody(nil, body.Key, body.Value, body.Headers, body.Settings)
	return d
}
