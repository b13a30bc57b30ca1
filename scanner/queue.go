package scanner

import (
	"context"
	"maps"
	"sync"
)

// queue holds fetched stretches of records for the workers. A stretch is of one partition. A worker
// takes all waiting stretches, up to a batch. So a trickle makes few transactions, however many
// partitions and workers there are. One worker at a time has a partition, so records stay in order.
// The rest of a partition goes behind the other partitions, which may be other tenants'.
type queue struct {
	bound int    // put waits while more stretches than this are queued
	bytes int    // put waits while the queued records take more memory than this
	alone string // stretches of this topic are taken one by one, no others beside them, and each record has a transaction of its own

	mu        sync.Mutex
	changed   *sync.Cond
	stretches []stretch
	weight    int // of all records in stretches
	busy      map[partitionKey]bool
	closed    bool
}

// queueBytes limits the queued records. Four workers store less than this in a second.
const queueBytes = 32 << 20

func newQueue(bound int, alone string) *queue {
	q := &queue{bound: bound, alone: alone, bytes: queueBytes, busy: map[partitionKey]bool{}}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// put adds stretches. It first waits until there is room or ctx has ended.
func (q *queue) put(ctx context.Context, stretches []stretch) {
	if len(stretches) == 0 {
		return
	}
	added := weigh(stretches)
	defer context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})()
	q.mu.Lock()
	defer q.mu.Unlock()
	for (len(q.stretches) > q.bound || q.weight > q.bytes) && ctx.Err() == nil {
		q.changed.Wait()
	}
	q.stretches = append(q.stretches, stretches...)
	q.weight += added
	q.changed.Broadcast()
}

// take waits for stretches of free partitions, and returns them up to n records. It returns none
// when the queue is closed and empty. The caller has these partitions until it calls done.
func (q *queue) take(n int) []stretch {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		var taken, rest, behind []stretch
		mine, count := map[partitionKey]bool{}, 0
		for _, r := range q.stretches {
			key := r.key()
			apart := len(taken) > 0 && (key.topic == q.alone || taken[0].key().topic == q.alone)
			switch {
			case mine[key] && (count >= n || apart):
				behind = append(behind, r)
			case q.busy[key] || count >= n || apart:
				rest = append(rest, r)
			default:
				head, tail := r.cut(min(n-count, len(r.records)))
				taken, mine[key] = append(taken, head), true
				if count += len(head.records); tail != nil {
					behind = append(behind, *tail)
				}
			}
		}
		if len(taken) > 0 {
			q.stretches = append(rest, behind...)
			q.weight -= weigh(taken)
			maps.Copy(q.busy, mine)
			q.changed.Broadcast()
			return taken
		}
		if q.closed && len(q.stretches) == 0 {
			return nil
		}
		q.changed.Wait()
	}
}

func weigh(stretches []stretch) (n int) {
	for _, r := range stretches {
		for _, rec := range r.records {
			n += weight(rec)
		}
	}
	return n
}

func (q *queue) held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.weight
}

func (q *queue) done(stretches []stretch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range stretches {
		delete(q.busy, r.key())
	}
	q.changed.Broadcast()
}

// close ends the queue. The rest can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}
