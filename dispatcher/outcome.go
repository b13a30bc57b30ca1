package dispatcher

import (
	"context"
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
)

// note writes the outcomes at hand to the send log, and does what follows from them.
func (s *settler) note(ctx context.Context) {
	s.logOutcomes(ctx)
	if ctx.Err() != nil {
		return
	}
	announce, isolate := s.flight.Conclude()
	for _, g := range isolate {
		s.sender.background.Go(func() { s.sender.isolate(ctx, g) })
	}
	for _, d := range announce {
		s.announcer.announce(d)
	}
}

// logOutcomes writes the outcomes at hand to the send log. While a settlement waits for the database, and when the dispatcher ends, that is
// all that can be done with them: a process that begins again here does not send these tasks once more.
func (s *settler) logOutcomes(ctx context.Context) {
	entries, n := s.flight.OutcomesToLog()
	if n == 0 {
		return
	}
	s.until(ctx, "noting outcomes in the send log", func(ctx context.Context) error {
		if err := faultpoint.At(faultpoint.DispatcherAcknowledged); err != nil {
			return err
		}
		return s.sent.AppendOutcomes(ctx, entries)
	})
	if ctx.Err() == nil {
		s.flight.Noted(n)
	}
}

// lastOutcomes is for when the loops have ended and the producers are closed.
func (s *settler) lastOutcomes() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.logOutcomes(ctx)
}
