package scanner

import (
	"context"
	"maps"
	"sync"
)

// queue holds fetched runs of records, of one partition each, for the workers. A worker takes all that waits, up to a batch, so
// that a trickle is few transactions however many partitions and workers there are; a partition is in one pair of hands at a
// time, so that its records stay in order.
type queue struct {
	bound int // on the runs, beyond which put waits
	bytes int // of memory that the queued records take, beyond which put waits

	mu      sync.Mutex
	changed *sync.Cond
	runs    []run
	weight  int // of all records in runs
	busy    map[partitionKey]bool
	closed  bool
}

// queueBytes is how much may wait for a worker: more than four workers store in a second.
const queueBytes = 32 << 20

func newQueue(bound int) *queue {
	q := &queue{bound: bound, bytes: queueBytes, busy: map[partitionKey]bool{}}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// put adds runs, once there is room or ctx has ended.
func (q *queue) put(ctx context.Context, runs []run) {
	if len(runs) == 0 {
		return
	}
	added := weigh(runs)
	defer context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})()
	q.mu.Lock()
	defer q.mu.Unlock()
	for (len(q.runs) > q.bound || q.weight > q.bytes) && ctx.Err() == nil {
		q.changed.Wait()
	}
	q.runs = append(q.runs, runs...)
	q.weight += added
	q.changed.Broadcast()
}

// take waits for runs of partitions that nobody is at, and answers those that wait, until they have n records; none when the
// queue is closed and empty. The partitions are the caller's until done.
func (q *queue) take(n int) []run {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		var taken, rest []run
		mine, count := map[partitionKey]bool{}, 0
		for _, r := range q.runs {
			if key := r.key(); q.busy[key] || count >= n {
				rest = append(rest, r)
			} else {
				taken, mine[key] = append(taken, r), true
				count += len(r.records)
			}
		}
		if len(taken) > 0 {
			q.runs = rest
			q.weight -= weigh(taken)
			maps.Copy(q.busy, mine)
			q.changed.Broadcast()
			return taken
		}
		if q.closed && len(q.runs) == 0 {
			return nil
		}
		q.changed.Wait()
	}
}

func weigh(runs []run) (n int) {
	for _, r := range runs {
		for _, rec := range r.records {
			n += weight(rec)
		}
	}
	return n
}

// done gives the partitions of taken runs back.
func (q *queue) done(runs []run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range runs {
		delete(q.busy, r.key())
	}
	q.changed.Broadcast()
}

// close ends the queue: what is in it can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}
