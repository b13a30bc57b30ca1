package flight

import (
	"time"

	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// Transition is the way of a task out of its place.
type Transition struct {
	line.Transition
	task    *Task
	gate    *Gate // that waits for it: of a held task that is called back
	reduced int   // how often the database has refused it: see Reduce

	// The task's state if the database does not take its dead letter, and the attempts made.
	alive task.State
	tried int
}

// after returns the end of a task by its made-th attempt.
func (e Transition) after(made int) Transition {
	e.Attempt, e.Dead.Attempt = made, made
	for i := range e.Events {
		e.Events[i].Attempt = made
	}
	return e
}

const (
	// PieceTasks and pieceBytes bound one transaction: about 100 ms of work for the database, and
	// as many rows as a statement of the store has.
	PieceTasks = 900
	pieceBytes = 16 << 20
	// shortReason is the rest of a reason that may have been too long.
	shortReason = 500
	// refusedPause is how long a task is put off whose end the database does not take.
	refusedPause = time.Minute
)

// PieceOf returns how many of the transitions one transaction takes: at least one.
func PieceOf(transitions []Transition) int {
	bytes := 0
	for n, e := range transitions {
		if bytes += e.bytes(); n > 0 && (n == PieceTasks || bytes > pieceBytes) {
			return n
		}
	}
	return len(transitions)
}

// bytes is about what the transition adds to a transaction.
func (e Transition) bytes() int {
	n := 100
	if e.Dead != nil {
		n += len(e.Dead.Body) + len(e.Dead.Reason)
	}
	for _, ev := range e.Events {
		n += 200 + len(ev.ID) + len(ev.Topic) + len(ev.Reason)
	}
	return n
}

// Name returns the topic and the id of the task, which are empty where the body was never read.
func (e Transition) Name() (topic, id string) {
	if e.task.content == nil {
		return "", ""
	}
	return e.task.topic, e.task.id
}
