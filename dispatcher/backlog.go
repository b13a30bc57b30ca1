package dispatcher

import (
	"sync"
	"time"
)

// fetchTasks bounds one read of bodies: enough to spread the cost of a statement, short enough for the first of them, and
// no more than the store reads at a time.
const fetchTasks = 900

// backlog holds claimed tasks whose bodies are to be read. Claims and takeovers push, the fetch loop takes and puts back. Its lock guards
// nothing else: a task that is taken may be another owner's by then, so the fetcher looks at it under the lock of those in flight.
type backlog struct {
	mu     sync.Mutex
	queue  fetchQueue
	unread []*claimedTask // taken from it, but there was no room for their bodies
	bite   int            // how many of them to try at once
}

func newBacklog() *backlog { return &backlog{queue: newFetchQueue()} }

func (b *backlog) push(tasks []*claimedTask) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range tasks {
		b.queue.push(t)
	}
}

// take removes at most n tasks that are to be released at until or before, or says after which time to ask again.
func (b *backlog) take(n int, until int64) ([]*claimedTask, time.Duration) {
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
func (b *backlog) putBack(unread []*claimedTask, bite int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unread, b.bite = append(unread, b.unread...), bite
}
