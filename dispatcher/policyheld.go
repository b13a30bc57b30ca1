package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/loop"
)

const (
	// heldEvery is the least pause between two rounds of moving tasks.
	heldEvery = 20 * time.Millisecond
	// roundEvery is the longest pause.
	roundEvery = 250 * time.Millisecond
)

// move takes tasks to their held places and back.
func (f *policies) move(ctx context.Context) {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	for failures := 0; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.kicks.Held:
		}
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		err := f.round(bound)
		cancel()
		if err != nil {
			failures++
			if ctx.Err() == nil {
				f.metrics.Retries.Inc()
				f.log.Warn("moving tasks of targets with a policy failed, trying again", zap.Error(err))
			}
			loop.Rest(ctx, pauseAfter(failures))
			f.kicks.Held.Now()
			continue
		}
		failures = 0
		loop.Rest(ctx, heldEvery)
	}
}

func (f *policies) round(ctx context.Context) error {
	if err := f.judge(ctx); err != nil {
		return err
	}
	for _, g := range f.flight.Restless(f.trust.trusted()) {
		if err := f.callBack(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// judge looks at tasks that are claimed and whose lane is a gate's, without reading their bodies.
func (f *policies) judge(ctx context.Context) error {
	batch := f.flight.Undecided()
	if len(batch) == 0 {
		return nil
	}
	heads, err := f.line.Heads(ctx, batch.Seqs())
	if err == nil {
		f.flight.Judged(batch, heads)
	}
	return err
}

// callBack calls back the next tasks of a target that were held.
func (f *policies) callBack(ctx context.Context, g *flight.Gate) error {
	look := f.flight.LookBehind(g)
	page, err := f.line.HeldTasks(ctx, look.Topic, look.After, look.Most)
	if err == nil {
		f.flight.HeldRead(look, page)
	}
	return err
}
