package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/loop"
)

// policies keeps the operators' policies in force: targets are paused, or limited. Its loops read
// the policies, and move tasks between the gates of their targets and their held places.
//
// A policy stays in force until another one is read, however long the database is away. Before the
// first reading, nothing is claimed or sent at all: see start.
type policies struct {
	*shared
	flight flight.Policies
	trust  *trust
}

func newPolicies(sh *shared, fl flight.Policies, tr *trust) *policies {
	return &policies{shared: sh, flight: fl, trust: tr}
}

const (
	// policiesEvery is how often the policies are read. One is in force a second after it was
	// stored, with time to spare for a slow database.
	policiesEvery = 200 * time.Millisecond
	// policiesWithin bounds one reading.
	policiesWithin = 2 * time.Second
)

// start reads the policies for the first time, and waits for the database if need be: a paused
// target must not get anything from a new dispatcher. An error says that ctx ended.
func (f *policies) start(ctx context.Context) error {
	for failures := 1; ; failures++ {
		bound, cancel := context.WithTimeout(ctx, policiesWithin)
		err := f.read(bound)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.log.Warn("the targets' policies are not known yet, and nothing is delivered before", zap.Error(err))
		loop.Rest(ctx, pauseAfter(failures))
	}
}

// run keeps the policies up to date.
func (f *policies) run(ctx context.Context) {
	failures := 0
	loop.Every(ctx, policiesEvery, func(ctx context.Context) {
		bound, cancel := context.WithTimeout(ctx, policiesWithin)
		err := f.read(bound)
		cancel()
		if err == nil || ctx.Err() != nil {
			failures = 0
			return
		}
		if failures++; failures%10 == 1 {
			f.log.Warn("reading the targets' policies failed: those that are known stay in force", zap.Error(err))
		}
	})
}

func (f *policies) read(ctx context.Context) error {
	all, err := f.admin.Policies(ctx)
	f.reads.note(err)
	if err != nil {
		return err
	}
	key, err := f.store.LaneKey(ctx)
	if err != nil {
		return err
	}
	f.flight.Apply(all, key)
	return nil
}

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

// judge looks at claimed tasks in the lanes of gates, without reading their bodies.
func (f *policies) judge(ctx context.Context) error {
	batch := f.flight.Undecided()
	if batch == nil {
		return nil
	}
	heads, err := f.line.Heads(ctx, batch.Seqs())
	if err == nil {
		batch.Judged(heads)
	}
	return err
}

// callBack calls back the next tasks of a target that were held.
func (f *policies) callBack(ctx context.Context, g *flight.Gate) error {
	look := f.flight.LookBehind(g)
	page, err := f.line.HeldTasks(ctx, look.Topic, look.After, look.Most)
	if err == nil {
		look.Read(page)
	}
	return err
}
