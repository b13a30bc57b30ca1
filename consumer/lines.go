package consumer

import "github.com/twmb/franz-go/pkg/kgo"

// line is what must be handled in order: the messages of one key in one partition. Messages without a key have no order;
// each is a line of its own, told apart by n.
type line struct {
	partition
	key string
	n   int64 // 0 with a key, offset+1 without
}

func lineOf(r *kgo.Record) line {
	l := line{partition: partition{r.Topic, r.Partition}, key: string(r.Key)}
	if r.Key == nil {
		l.n = r.Offset + 1
	}
	return l
}

// room is how many messages may be taken. MaxPoll bounds the unhandled ones, aheadFactor what a crash would repeat.
func (w *window) room() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(min(w.MaxPoll-w.open, aheadFactor*w.MaxPoll-w.ledger.size), 0)
}

// take queues messages and starts what may start.
func (w *window) take(records []*kgo.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range records {
		e := &entry{record: r}
		w.ledger.add(e)
		if w.closed {
			continue // unhandled: it comes again
		}
		w.open++
		l := lineOf(r)
		queue, busy := w.waiting[l]
		w.waiting[l] = append(queue, e)
		if !busy {
			w.ready = append(w.ready, l)
		}
	}
	w.start()
}

// start runs the first messages of ready lines, as many as may run at once. The caller holds mu.
func (w *window) start() {
	for w.ctx.Err() == nil && w.running < w.Concurrency && len(w.ready) > 0 {
		l := w.ready[0]
		w.ready = w.ready[1:]
		e := w.waiting[l][0]
		w.waiting[l] = w.waiting[l][1:]
		w.running++
		go func() {
			defer w.ran(l) // also when the handler ends its goroutine
			w.one(e)
		}()
	}
}

// ran puts a line behind the others, so that a busy key does not hold up the rest.
func (w *window) ran(l line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if len(w.waiting[l]) > 0 {
		w.ready = append(w.ready, l)
	} else {
		delete(w.waiting, l)
	}
	w.start()
	w.tell()
}

// finish takes a message out of the work: handled, or to come again.
func (w *window) finish(e *entry, handled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.handled = handled
	if w.open--; w.open == 0 {
		w.close() // the group may rebalance
	}
	w.tell()
}
