package dispatcher

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/outbox"
)

// runMaker makes the runs of timers: each owner those of the timers in its slots. Its fields are
// set once, but for the last ones; only its own loop uses it.
type runMaker struct {
	store  timers
	now    func() int64                       // the database's time, Unix ms
	owned  func() []store.SlotEpoch           // the owned slots, ascending; none while nothing may be made
	stored func(context.Context, intake.Made) // called with what was made
	fenced func(context.Context)              // a slot has another owner
	kick   flight.Kick                        // timers were set or enabled
	cfg    Config
	log    *zap.Logger

	unreadable map[[16]byte]bool // timers that this version cannot read, or whose runs cannot be stored, left alone for a while
	since      time.Time         // when unreadable was last emptied
	retired    time.Time         // when deleted timers were last forgotten
	last       int               // the slot that was served last: the next page begins behind it
}

// timers is what the runMaker needs of the store. Both calls may be repeated.
type timers interface {
	MakeRuns(ctx context.Context, owned []store.SlotEpoch, upTo, now int64, tolerance time.Duration, skip map[[16]byte]bool) (intake.Made, error)
	RetireTimers(ctx context.Context, before int64) (int, error)
}

const (
	// runEvery is how often timers with a run to be made are looked for. Without any, a look costs
	// one look into an index for each slot. A timer just set or enabled does not wait so long: its
	// scanner wakes the owner of its slot.
	runEvery = 2 * time.Second
	// runAhead is how long before its due time a run is a task: a minute is promised, and half of
	// one is for a takeover.
	runAhead = 90 * time.Second
	// runRest is the least rest after a page: making runs takes at most about half of one
	// connection's time. It also bounds the cost of a stream of requests about timers.
	runRest = 5 * time.Millisecond
	// unreadableFor is for how long an unreadable timer is left alone, or one with runs that cannot
	// be stored. The database may have been to blame, so the time is short. The tries take 3 s at
	// most, and the runs of others are made long before they are due.
	unreadableFor = 15 * time.Second
)

func newRunMaker(c *claimer, publish func([]outbox.Box), ix Index) *runMaker {
	owned := func() []store.SlotEpoch {
		if !c.trust.trusted() || c.flight.Stopping() {
			return nil
		}
		return c.flight.Staying()
	}
	rt := &runTaker{claimer: c, index: ix, publish: publish}
	return &runMaker{store: c.intake, now: c.clock.Millis, owned: owned, stored: rt.take, fenced: c.ownership.fenced, kick: c.kicks.Timers, cfg: c.cfg, log: c.log}
}

func (r *runMaker) run(ctx context.Context) {
	tick := time.NewTicker(runEvery)
	defer tick.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.kick:
		}
		err := r.round(ctx)
		switch {
		case err == nil:
			failures = 0
		case errors.Is(err, store.ErrFenced):
			r.fenced(ctx)
		case ctx.Err() == nil:
			failures++
			r.log.Warn("making the runs of timers failed, trying again", zap.Error(err))
			loop.Rest(ctx, pauseAfter(failures))
			r.kick.Now()
		}
	}
}

// round makes all runs that are to exist by now, page by page.
func (r *runMaker) round(ctx context.Context) error {
	if r.unreadable == nil || time.Since(r.since) > unreadableFor {
		r.unreadable, r.since = map[[16]byte]bool{}, time.Now()
	}
	for ctx.Err() == nil {
		owned, began, now := r.owned(), time.Now(), r.now()
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		made, err := r.store.MakeRuns(bound, behind(owned, r.last), now+runAhead.Milliseconds(), now, r.cfg.MisfireAfter, r.unreadable)
		cancel()
		if err == nil && made.Timers > 0 {
			err = faultpoint.At(faultpoint.DispatcherMade)
		}
		if err != nil {
			return err
		}
		r.stored(ctx, made)
		if made.Timers == 0 {
			return r.retire(ctx, owned)
		}
		r.last = made.Last
		loop.Rest(ctx, max(time.Since(began), runRest))
	}
	return nil
}

// behind returns the slots with those above last first.
func behind(owned []store.SlotEpoch, last int) []store.SlotEpoch {
	i := slices.IndexFunc(owned, func(h store.SlotEpoch) bool { return h.Slot > last })
	if i < 0 {
		return owned
	}
	return slices.Concat(owned[i:], owned[:i])
}

// retire forgets deleted timers. Only the owner of slot 0 does so, for they have no slots.
func (r *runMaker) retire(ctx context.Context, owned []store.SlotEpoch) error {
	if len(owned) == 0 || owned[0].Slot != 0 || time.Since(r.retired) < time.Minute {
		return nil
	}
	r.retired = time.Now()
	for ctx.Err() == nil {
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		n, err := r.store.RetireTimers(bound, r.now()-r.cfg.Retention.Milliseconds())
		cancel()
		if err != nil || n == 0 {
			return err
		}
		loop.Rest(ctx, runRest)
	}
	return nil
}

// runTaker makes known what the runMaker has stored.
type runTaker struct {
	claimer *claimer
	index   Index
	publish func([]outbox.Box)
}

// take makes runs known to the claim loop and the index, and publishes the events of dropped ones.
// The index is a hint: the sweep finds what it does not take.
func (t *runTaker) take(ctx context.Context, made intake.Made) {
	c := t.claimer
	c.metrics.runs.Add(float64(made.Runs))
	c.metrics.DroppedRuns.WithLabelValues(flight.DropMissed).Add(float64(made.Dropped))
	t.publish(made.Events)
	if len(made.Added) == 0 {
		return
	}
	news := index.News{Added: made.Added}
	c.flight.Woken(news.Wakes(c.soon()))
	c.kicks.Claim.Now()
	bound, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := t.index.Add(bound, news.Entries(c.horizon())); err != nil && ctx.Err() == nil {
		c.metrics.indexErrors.Inc()
		c.log.Debug("adding runs to the index failed", zap.Error(err))
	}
}

// runStarter asks the database about due runs that must be alone or are missed, and hands on those
// that may go.
type runStarter struct {
	*shared
	flight    flight.Runs
	ownership *ownership
}

func newRunStarter(sh *shared, fl flight.Runs, o *ownership) *runStarter {
	return &runStarter{shared: sh, flight: fl, ownership: o}
}

func (s *runStarter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kicks.Overlap:
		}
		for asked := s.flight.Take(); asked != nil && ctx.Err() == nil; asked = s.flight.Take() {
			s.start(ctx, asked)
		}
	}
}

// start asks about runs, again and again until the database has answered or their slots are lost,
// and hands them on.
func (s *runStarter) start(ctx context.Context, asked *flight.Asked) {
	for failures := 1; ctx.Err() == nil; failures++ {
		starts := asked.Starts()
		if len(starts) == 0 {
			return
		}
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		refused, err := s.line.StartRuns(bound, starts, s.clock.Millis(), s.cfg.MisfireAfter)
		cancel()
		switch {
		case err == nil:
			asked.Started(refused)
			return
		case errors.Is(err, store.ErrFenced):
			s.ownership.fenced(ctx)
		default:
			s.metrics.Retries.Inc()
			if ctx.Err() == nil {
				s.log.Warn("starting runs of timers failed, trying again", zap.Error(err))
			}
		}
		loop.Rest(ctx, pauseAfter(failures))
	}
}
