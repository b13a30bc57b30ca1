package scanner

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// teller sends stored events to the results topic and forgets them once Kafka has acknowledged them. What a process that
// died has left is told by whoever has the source now.
type teller struct {
	s    *Scanner
	mu   sync.Mutex
	told []store.Outbox
	open int // runs of events on their way
	kick chan struct{}
}

func newTeller(s *Scanner) *teller { return &teller{s: s, kick: make(chan struct{}, 1)} }

// tell sends the events of each run; it blocks while the producer's buffer is full.
func (t *teller) tell(runs []store.Outbox) {
	for _, run := range runs {
		if len(run.Events) == 0 {
			continue
		}
		t.mu.Lock()
		t.open++
		t.mu.Unlock()
		t.send(run)
	}
}

func (t *teller) send(run store.Outbox) {
	var mu sync.Mutex
	left, failed := len(run.Events), false
	for _, e := range run.Events {
		t.s.producer.Produce(context.Background(), schemas.EncodeEvent(t.s.cfg.Results, e), func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			left--
			if err != nil {
				failed = true
				t.s.metrics.eventErrors.Inc()
				t.s.log.Error("telling an event failed", zap.Error(err))
			}
			if left == 0 {
				t.done(run, failed)
			}
		})
	}
}

func (t *teller) done(run store.Outbox, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	if !failed { // else it stays stored and is told again by the next look at what is left
		t.told = append(t.told, run)
	}
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// run forgets what is told and looks for what others left.
func (t *teller) run(ctx context.Context) {
	const every = 5 * time.Second
	look := time.NewTicker(every)
	defer look.Stop()
	seen := map[[2]int64]bool{}
	for {
		select {
		case <-ctx.Done():
			t.forget(context.WithoutCancel(ctx))
			return
		case <-t.kick:
			t.forget(ctx)
		case <-look.C:
			seen = t.leftovers(ctx, seen)
		}
	}
}

func (t *teller) forget(ctx context.Context) {
	t.mu.Lock()
	told := t.told
	t.told = nil
	t.mu.Unlock()
	if len(told) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := t.s.store.Told(ctx, told); err != nil {
		t.s.log.Debug("forgetting told events failed, trying again with the next", zap.Error(err))
		t.mu.Lock()
		t.told = append(told, t.told...)
		t.mu.Unlock()
	}
}

// leftovers tells what was there at the last look too: events on their way from here are gone by then.
func (t *teller) leftovers(ctx context.Context, before map[[2]int64]bool) map[[2]int64]bool {
	runs, err := t.s.store.Untold(ctx, t.s.parts.ids(), 10_000)
	if err != nil {
		if ctx.Err() == nil {
			t.s.log.Warn("looking for untold events failed", zap.Error(err))
		}
		return before
	}
	now := make(map[[2]int64]bool, len(runs))
	for _, run := range runs {
		key := [2]int64{int64(run.Source), run.Seq}
		if before[key] {
			t.s.metrics.leftovers.Inc()
			t.tell([]store.Outbox{run})
			continue
		}
		now[key] = true
	}
	return now
}

// drain waits until everything sent is acknowledged, within a bound.
func (t *teller) drain(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := t.s.producer.Flush(ctx); err != nil {
		t.s.log.Warn("events are left untold, the next scanner tells them", zap.Error(err))
	}
}
