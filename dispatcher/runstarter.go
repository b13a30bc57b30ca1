package dispatcher

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
)

// runStarter asks the database about the runs of timers that are due and must be alone or are missed, and hands on what may go.
type runStarter struct {
	*shared
	flight    *flight.Flight
	ownership *ownership
}

func newRunStarter(sh *shared, fl *flight.Flight, o *ownership) *runStarter {
	return &runStarter{shared: sh, flight: fl, ownership: o}
}

func (s *runStarter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kicks.Overlap:
		}
		for list := s.flight.TakeRuns(); len(list) > 0 && ctx.Err() == nil; list = s.flight.TakeRuns() {
			s.start(ctx, list)
		}
	}
}

// start asks about runs, again and again until the database has answered or their slots are lost, and hands them on.
func (s *runStarter) start(ctx context.Context, list []*flight.Task) {
	for failures := 1; ctx.Err() == nil; failures++ {
		starts := s.flight.Starts(list)
		if len(starts) == 0 {
			return
		}
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		refused, err := s.line.StartRuns(bound, starts, s.clock.Millis(), s.cfg.MisfireAfter)
		cancel()
		switch {
		case err == nil:
			s.flight.Started(list, refused)
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
