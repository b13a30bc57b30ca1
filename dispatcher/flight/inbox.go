package flight

import (
	"slices"
	"sync"
)

// inbox is what the settle loop has to do. Its own lock guards the queues alone.
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

// outcomesToLog returns the outcomes that are not in the send log yet. They stay here.
func (b *inbox) outcomesToLog() []outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.outcomes[b.inLog:])
}

// logged notes that the first n of those are in the send log.
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

// takeLeaving takes the tasks that leave their places, and at most `most` of those that are called back. more says that others are to be
// called back. It takes both at once, because a task is called back after it has left: its leaving is then in this round or already
// settled. In a later round it would undo the recall, for another minute.
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

// putBack returns what could not be settled, before what has come since.
func (b *inbox) putBack(transitions, recalls []Transition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transitions = append(transitions, b.transitions...)
	b.recalls = append(recalls, b.recalls...)
}
