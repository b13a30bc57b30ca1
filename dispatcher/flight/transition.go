package flight

import (
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// Transition is a task that leaves its place.
type Transition struct {
	line.Transition
	task    *Task
	gate    *Gate // that waits for it: of a held task that is called back
	reduced int   // how often the database has refused it: see Reduce

	// What a task stays whose dead letter the database does not take, and after how many attempts.
	alive task.State
	tried int
}

// after returns the end of a task that came with its made-th attempt.
func (e Transition) after(made int) Transition {
	e.Attempt, e.Dead.Attempt = made, made
	for i := range e.Events {
		e.Events[i].Attempt = made
	}
	return e
}

const (
	// PieceTasks and pieceBytes bound one transaction: about 100 ms of work for the database, and as many rows as a statement of the store has.
	PieceTasks = 900
	pieceBytes = 16 << 20
	// shortReason is what remains of a reason that may have been too long.
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

// Step is how often the transition has been reduced, and once more.
func (e Transition) Step() int { return e.reduced + 1 }

// Reduce leaves out of a transition what the database may have refused: first long texts, then the body of its dead letter, which its row
// still has. In the end a task that was to become a dead letter stays in its line, and comes again in a minute. False: nothing is left
// to leave out.
func (e *Transition) Reduce(now int64) bool {
	e.reduced++
	switch e.reduced {
	case 1:
		e.cutReasons(shortReason)
	case 2:
		e.cutReasons(0)
		if e.Dead != nil {
			dead := *e.Dead
			dead.Body, dead.Reason = nil, "the database refused its body and its reason here; the task's row has the body until the retention ends"
			e.Dead = &dead
		}
	case 3:
		if e.Dead == nil {
			return false
		}
		e.Dead, e.Events, e.State, e.Attempt, e.Pos = nil, nil, e.alive, e.tried, now+refusedPause.Milliseconds()
	default:
		return false
	}
	return true
}

func (e *Transition) cutReasons(n int) {
	events := make([]schemas.Event, len(e.Events)) // another try may still hold the old ones
	for i, ev := range e.Events {
		ev.Reason = cutASCII(ev.Reason, n)
		events[i] = ev
	}
	e.Events = events
	if e.Dead != nil {
		dead := *e.Dead
		dead.Reason = cutASCII(dead.Reason, n)
		e.Dead = &dead
	}
}

// cutASCII shortens s to n bytes and writes a question mark for whatever is not printable ASCII.
func cutASCII(s string, n int) string {
	b := []byte(s[:min(n, len(s))])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
