package scanner

import (
	"context"
	"maps"
	"sync"
)

// queue holds fetched runs of records for the workers. A run is of one partition. A worker takes
// all runs that wait, up to a batch. So a trickle makes few transactions, however many partitions
// and workers there are. Only one worker has a partition at a time, so its records stay in order.
type queue struct {
	bound int // put waits while more runs than this are queued
	bytes int // put waits while the queued records take more memory than this

	mu      sync.Mutex
	changed *sync.Cond
	runs    []run
	weight  int // of all records in runs
	busy    map[partitionKey]bool
	closed  bool
}

// queueBytes limits what waits for the workers. It is more than four workers store in a second.
const queueBytes = 32 << 20

func newQueue(bound int) *queue {
	q := &queue{bound: bound, bytes: queueBytes, busy: map[partitionKey]bool{}}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// put adds runs. It first waits until there is room or ctx has ended.
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

// take waits for runs of partitions that no worker has, and returns them until they have n records.
// It returns none when the queue is closed and empty. The caller has these partitions until it
// calls done.
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

// close ends the queue. What is in it can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}
