package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrAbandoned means that handlers were still running after DrainTimeout, although their context
// had ended. Their messages are not committed and come again. Such handlers may still have effects
// while the next owner handles the same messages.
var ErrAbandoned = errors.New("handlers still run")

const (
	// commitEvery is how long handled messages wait for their commit while others are being
	// handled. It limits the repetitions after a crash.
	commitEvery = time.Second

	// stopGrace is how long a handler may take to notice that its context has ended.
	stopGrace = time.Second

	// aheadFactor × MaxPoll messages may be handled past an unhandled one of their partition.
	aheadFactor = 16
)

// window is a period in which the group cannot rebalance: from a poll with messages until all are
// handled and committed. While some are being handled it takes more, for at most MaxHold, so a slow
// message holds up only its own key.
type window struct {
	*Consumer
	handle Handler
	ctx    context.Context // Run's
	work   context.Context // the handlers'; outlives Run's
	close  context.CancelFunc

	mu      sync.Mutex
	offsets offsetTracker
	waiting map[keyQueue][]*entry // behind the running one; has an entry for every running or ready queue
	ready   []keyQueue            // queues whose first message may start, in turn
	running int                   // handlers
	open    int                   // messages that wait, run or are being reported
	closed  bool                  // nothing starts any more
	failure error                 // the first
	changed chan struct{}         // something has finished
}

// window handles the messages of the next poll, and later ones meanwhile.
func (c *Consumer) window(ctx, work context.Context, handle Handler) error {
	first, err := c.poll(ctx, c.MaxPoll)
	if err != nil || len(first) == 0 {
		return err
	}
	holding, stop := context.WithTimeout(ctx, c.MaxHold)
	defer stop()
	w := &window{
		Consumer: c, handle: handle, ctx: ctx, work: work, close: stop,
		waiting: map[keyQueue][]*entry{}, changed: make(chan struct{}, 1),
	}
	defer context.AfterFunc(ctx, w.stop)()
	w.take(first)
	if err = w.extend(holding); err != nil {
		w.stop()
	}
	w.drain()
	return errors.Join(err, w.firstFailure(), w.commit())
}

// extend takes more messages until none is being handled, MaxHold is over or something has failed.
func (w *window) extend(holding context.Context) error {
	committed := time.Now()
	for holding.Err() == nil {
		pause, cancel := context.WithTimeout(holding, commitEvery)
		room := w.room()
		if room > 0 {
			records, err := w.poll(pause, room)
			if err != nil {
				cancel()
				return err
			}
			w.take(records)
		} else {
			select {
			case <-w.changed:
			case <-pause.Done():
			}
		}
		cancel()
		if time.Since(committed) >= commitEvery {
			if err := w.commit(); err != nil {
				return err
			}
			committed = time.Now()
		}
	}
	return nil
}

// signal wakes drain or extend; only one of them waits at a time.
func (w *window) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *window) fail(err error) {
	w.mu.Lock()
	if w.failure == nil {
		w.failure = err
	}
	w.mu.Unlock()
	w.stop()
}

// stop prevents further messages from starting. Running ones continue.
func (w *window) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed, w.ready = true, nil
		for l, queue := range w.waiting {
			w.open -= len(queue)
			w.waiting[l] = nil
		}
	}
	w.close()
	w.signal()
}

// drain waits until nothing runs. After the handlers' time, it gives them stopGrace to notice.
func (w *window) drain() {
	if w.await(w.work.Done(), func() bool { return w.open == 0 && w.running == 0 }) {
		return
	}
	over, cancel := context.WithTimeout(context.WithoutCancel(w.work), stopGrace)
	defer cancel()
	if !w.await(over.Done(), func() bool { return w.running == 0 }) {
		w.mu.Lock()
		n := w.running
		w.mu.Unlock()
		w.fail(fmt.Errorf("draining: %d of them after %s: %w", n, w.DrainTimeout+stopGrace, ErrAbandoned))
	}
}

// await waits for a condition and returns true, or returns false at the end.
func (w *window) await(end <-chan struct{}, met func() bool) bool {
	for {
		w.mu.Lock()
		done := met()
		w.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-w.changed:
		case <-end:
			return false
		}
	}
}

func (w *window) firstFailure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// commit commits handled messages, with its own time limit: the handlers may have used up theirs.
func (w *window) commit() error {
	w.mu.Lock()
	last := w.offsets.takeCommittable()
	w.mu.Unlock()
	if len(last) == 0 {
		return nil
	}
	bound, stop := withGrace(w.ctx, w.DrainTimeout)
	defer stop()
	err := w.client.CommitRecords(bound, last...)
	switch {
	case err == nil:
		return nil
	case rebalancedAway(err):
		w.close() // what was taken is handled all the same: a later commit must not pass it
		w.OnError(Message{}, fmt.Errorf("committing: %w", err))
		return nil
	}
	return fmt.Errorf("committing: %w", err)
}
