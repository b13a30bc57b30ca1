package consumer

import "github.com/twmb/franz-go/pkg/kgo"

// keyQueue identifies messages to handle in order: of one key in one partition. Messages without a
// key have no order; each forms its own queue, identified by n.
type keyQueue struct {
	partition
	key string
	n   int64 // 0 with a key, offset+1 without
}

func queueOf(r *kgo.Record) keyQueue {
	l := keyQueue{partition: partition{r.Topic, r.Partition}, key: string(r.Key)}
	if r.Key == nil {
		l.n = r.Offset + 1
	}
	return l
}

// room is how many messages may be taken. aheadFactor bounds the repeats after a crash.
func (w *window) room() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(min(w.MaxPoll-w.open, aheadFactor*w.MaxPoll-w.offsets.size), 0)
}

func (w *window) take(records []*kgo.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range records {
		e := &entry{record: r}
		w.offsets.add(e)
		if w.closed {
			continue // unhandled: it comes again
		}
		w.open++
		l := queueOf(r)
		queue, busy := w.waiting[l]
		w.waiting[l] = append(queue, e)
		if !busy {
			w.ready = append(w.ready, l)
		}
	}
	w.start()
}

// start runs the first messages of ready queues, up to Concurrency at once. The caller holds mu.
func (w *window) start() {
	for w.ctx.Err() == nil && w.running < w.Concurrency && len(w.ready) > 0 {
		l := w.ready[0]
		w.ready = w.ready[1:]
		e := w.waiting[l][0]
		w.waiting[l] = w.waiting[l][1:]
		w.running++
		go func() {
			defer w.handlerReturned(l) // also when the handler ends its goroutine
			w.handleOne(e)
		}()
	}
}

// handlerReturned puts the queue behind the others, so a busy key does not hold up the rest.
func (w *window) handlerReturned(l keyQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if len(w.waiting[l]) > 0 {
		w.ready = append(w.ready, l)
	} else {
		delete(w.waiting, l)
	}
	w.start()
	w.signal()
}

// finish takes a message out of the work. An unhandled one comes again.
func (w *window) finish(e *entry, handled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.handled = handled
	if w.open--; w.open == 0 {
		w.close() // the group may rebalance
	}
	w.signal()
}
