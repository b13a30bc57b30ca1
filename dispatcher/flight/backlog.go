package flight

import (
	"sync"
	"time"
)

// fetchTasks bounds one read of bodies: enough to spread the cost of a statement, short enough for the first of them, and
// no more than the store reads at a time.
const fetchTasks = 900

// backlog holds claimed tasks whose bodies are to be read. Its own lock guards nothing else: a task that
// is taken may be another owner's by then, so NextBodies looks at it under flight.mu.
type backlog struct {
	mu     sync.Mutex
	queue  fetchQueue
	unread []*Task // taken from it, but there was no room for their bodies
	bite   int     // how many of them to try at once
}

func newBacklog() *backlog { return &backlog{queue: newFetchQueue()} }

func (b *backlog) push(tasks []*Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range tasks {
		b.queue.push(t)
	}
}

// take removes at most n tasks that are to be released at until or before, or says after which time to ask again.
func (b *backlog) take(n int, until int64) ([]*Task, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := min(len(b.unread), b.bite, n); n > 0 {
		batch := b.unread[:n:n]
		b.unread = b.unread[n:]
		return batch, 0
	}
	if b.queue.size == 0 {
		return nil, time.Second
	}
	batch := b.queue.take(min(n, fetchTasks), until)
	if len(batch) > 0 {
		return batch, 0
	}
	return nil, max(time.Duration(min(b.queue.first()-until, 1000))*time.Millisecond, time.Millisecond)
}

// putBack returns tasks before all others, of which the next take brings only a bite.
func (b *backlog) putBack(unread []*Task, bite int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unread, b.bite = append(unread, b.unread...), bite
}
