package flight

import (
	"slices"
	"sync"
)

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
