package flight

import (
	"slices"
	"sync"
	"time"

	"github.com/notyet/notyet/schemas"
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

// Step is how often the transition has been reduced, and once more.
func (e Transition) Step() int { return e.reduced + 1 }

// Reduce leaves out of a transition what the database may have refused: first long texts, then the
// body of its dead letter, which the row still has. In the end a task that was to become a dead
// letter stays in its line, and comes again in a minute. False: nothing is left to leave out.
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

// outcome is what came of sending a task.
type outcome struct {
	task      *Task
	at        int64
	latest    int64 // no later than this, whatever the clock will turn out to be: of a whole round
	partition int32
	offset    int64
	err       error
	known     bool // from the send log: it is noted there already
	alone     bool // it was sent by itself: an error is about nothing else
	again     bool // it was refused, but its target may take it in a moment
}

// inbox is the work of the settle loop. The lock guards the queues alone.
type inbox struct {
	mu          sync.Mutex
	outcomes    []outcome    // of sending
	inLog       int          // how many of them, the first, are in the send log
	transitions []Transition // tasks that leave their slots
	recalls     []Transition // tasks that were put off, and may be sent again
}

func (b *inbox) concludes(o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes = append(b.outcomes, o)
}

func (b *inbox) leaves(e Transition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transitions = append(b.transitions, e)
}

func (b *inbox) leavingTasks() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.transitions)
}

func (b *inbox) recall(some []Transition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recalls = append(b.recalls, some...)
}

// outcomesToLog returns the outcomes to be written to the send log. They stay here.
func (b *inbox) outcomesToLog() []outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.outcomes[b.inLog:])
}

// logged notes that the send log has the first n outcomes of outcomesToLog.
func (b *inbox) logged(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inLog += n
}

// takeLogged takes the outcomes that are in the send log.
func (b *inbox) takeLogged() []outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.outcomes[:b.inLog:b.inLog]
	if b.outcomes, b.inLog = b.outcomes[b.inLog:], 0; len(b.outcomes) == 0 {
		b.outcomes = nil
	}
	return out
}

// takeLeaving takes the tasks that leave their places, and at most `most` recalls. more: there are
// other recalls. Both are taken at once, because a task is called back after it has left: the
// leaving is then in this round or already settled. In a later round the leaving would undo the
// recall, for another minute.
func (b *inbox) takeLeaving(most int) (transitions, recalls []Transition, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	transitions, b.transitions = b.transitions, nil
	n := min(len(b.recalls), most)
	if recalls, b.recalls = b.recalls[:n:n], b.recalls[n:]; len(b.recalls) == 0 {
		b.recalls = nil
	}
	return transitions, recalls, b.recalls != nil
}

// putBack returns the unsettled rest, before all later ones.
func (b *inbox) putBack(transitions, recalls []Transition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transitions = append(transitions, b.transitions...)
	b.recalls = append(recalls, b.recalls...)
}
