package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrAbandoned says that handlers went on when DrainTimeout was over and their context had ended. Their messages are not
// committed and come again; whatever these handlers still do, they do beside the next owner.
var ErrAbandoned = errors.New("handlers still run")

const (
	// commitEvery is how long handled messages wait for their commit while others are at work: what a crash repeats.
	commitEvery = time.Second

	// farewell is how long a handler whose context has ended may take to notice.
	farewell = time.Second

	// aheadFactor × MaxPoll messages may be handled beyond an unhandled one of their partition.
	aheadFactor = 16
)

// window is a stretch of work during which the group cannot rebalance: from a poll that gave messages until all that were
// taken are handled and committed. While some are being handled it takes more, for MaxHold at most, so that a slow
// message holds up only its own key.
type window struct {
	*Consumer
	handle Handler
	ctx    context.Context // Run's
	work   context.Context // the handlers'; outlives Run's
	close  context.CancelFunc

	mu      sync.Mutex
	ledger  ledger
	waiting map[line][]*entry // behind the one at work; present for every line at work or ready
	ready   []line            // lines whose first message may start, in turn
	running int               // handlers
	open    int               // messages that wait, run or are being reported
	closed  bool              // nothing starts any more
	failure error             // the first
	changed chan struct{}     // something has finished
}

// window handles what the next poll gives, and what comes while that is handled.
func (c *Consumer) window(ctx, work context.Context, handle Handler) error {
	first, err := c.poll(ctx, c.MaxPoll)
	if err != nil || len(first) == 0 {
		return err
	}
	more, stop := context.WithTimeout(ctx, c.MaxHold)
	defer stop()
	w := &window{
		Consumer: c, handle: handle, ctx: ctx, work: work, close: stop,
		waiting: map[line][]*entry{}, changed: make(chan struct{}, 1),
	}
	defer context.AfterFunc(ctx, w.stop)()
	w.take(first)
	if err = w.extend(more); err != nil {
		w.stop()
	}
	w.drain()
	return errors.Join(err, w.result(), w.commit())
}

// extend takes more messages until none are at work, MaxHold is over or something has failed.
func (w *window) extend(more context.Context) error {
	committed := time.Now()
	for more.Err() == nil {
		pause, cancel := context.WithTimeout(more, commitEvery)
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

// tell wakes drain or extend, of which only one waits.
func (w *window) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// fail stops the window, and Run.
func (w *window) fail(err error) {
	w.mu.Lock()
	if w.failure == nil {
		w.failure = err
	}
	w.mu.Unlock()
	w.stop()
}

// stop lets nothing more start; what has started goes on.
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
	w.tell()
}

// drain waits until nothing is at work, or until the handlers' time is over: then a moment for those that heed it.
func (w *window) drain() {
	if w.await(w.work.Done(), func() bool { return w.open == 0 && w.running == 0 }) {
		return
	}
	over, cancel := context.WithTimeout(context.WithoutCancel(w.work), farewell)
	defer cancel()
	if !w.await(over.Done(), func() bool { return w.running == 0 }) {
		w.mu.Lock()
		n := w.running
		w.mu.Unlock()
		w.fail(fmt.Errorf("draining: %d of them after %s: %w", n, w.DrainTimeout+farewell, ErrAbandoned))
	}
}

// await waits for a condition, or for the end and answers false.
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

func (w *window) result() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// commit commits what is handled; it has a time of its own, the handlers may have used up theirs.
func (w *window) commit() error {
	w.mu.Lock()
	last := w.ledger.prefix()
	w.mu.Unlock()
	if len(last) == 0 {
		return nil
	}
	bound, stop := outlive(w.ctx, w.DrainTimeout)
	defer stop()
	err := w.client.CommitRecords(bound, last...)
	switch {
	case err == nil:
		return nil
	case overtaken(err):
		w.close() // what was taken is handled all the same: a later commit must not pass it
		w.OnError(Message{}, fmt.Errorf("committing: %w", err))
		return nil
	}
	return fmt.Errorf("committing: %w", err)
}
