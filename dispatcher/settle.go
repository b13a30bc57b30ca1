package dispatcher

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
)

// settler makes the outcomes of tasks durable. Only its own loop uses it.
type settler struct {
	*shared
	flight    flight.Settling
	outcomes  flight.Outcomes
	sender    *sender // gets back what is to be sent again
	announcer *announcer
	ownership *ownership // asked whose the slots are when a settlement is refused
	indexer   *indexer
	sent      *sendlog.Log
}

func newSettler(fl *flight.Flight, sd *sender, an *announcer, ow *ownership, ix *indexer, sent *sendlog.Log) *settler {
	return &settler{shared: sd.shared, flight: fl.Settling, outcomes: fl.Outcomes, sender: sd, announcer: an, ownership: ow, indexer: ix, sent: sent}
}

// settleEvery is the least pause between settlements: there are at most 20 a second, each of a few
// statements for all slots together. A kill leaves deliveries of up to this time more in doubt.
const settleEvery = 50 * time.Millisecond

// run makes outcomes durable.
func (s *settler) run(ctx context.Context) {
	check := time.NewTicker(s.cfg.flight().CheckEvery())
	defer check.Stop()
	for {
		rest := time.NewTimer(settleEvery)
		select {
		case <-ctx.Done():
			return
		case <-s.kicks.Settle:
		case <-check.C:
			s.sender.producers.forget(s.outcomes.Check())
		}
		s.note(ctx)
		s.settle(ctx)
		select { // a round that took longer is followed by the next
		case <-ctx.Done():
		case <-rest.C:
		}
	}
}

// settle takes tasks out of their places, and then closes slots as far as possible. Each step is
// one transaction for all slots. The first steps share their locks with the writers of tasks; only
// the last one, which is short, keeps them out.
func (s *settler) settle(ctx context.Context) {
	leaving := s.flight.Begin()
	recalls := leaving.Left(s.settlePieces(ctx, leaving.Transitions))
	recalls.Left(s.settlePieces(ctx, recalls.Transitions))
	s.announcer.storeDeferred(ctx)
	_ = s.settleThese(ctx, s.flight.Closable)
}

// settleThese tries until all is durable. An error says otherwise: ctx ended, or the database
// refuses the transitions for their content.
func (s *settler) settleThese(ctx context.Context, next func() flight.Attempt) error {
	first := time.Now()
	for failures := 0; ctx.Err() == nil; {
		attempt := next()
		done, rows := attempt.Rows()
		if len(done)+len(rows) == 0 {
			return nil
		}
		began := time.Now()
		result, err := s.settleOnce(ctx, done, rows)
		if errors.Is(err, store.ErrFenced) || len(result.Fenced) > 0 {
			s.ownership.fenced(ctx)
			loop.Rest(ctx, flight.ClaimPause) // a slot whose release has no reply yet stays ours here
			continue
		}
		if len(rows) > 0 && intake.BadRecord(err) {
			return err
		}
		if err != nil {
			failures++
			s.metrics.Retries.Inc()
			if ctx.Err() == nil {
				s.log.Warn("settling failed, trying again", zap.Error(err))
			}
			s.logOutcomes(ctx)
			loop.Rest(ctx, pauseAfter(failures))
			continue
		}
		s.metrics.settleTime.Observe(time.Since(began).Seconds())
		attempt.Settled(result, time.Since(first))
		s.afterSettle(ctx, done, result)
		return nil
	}
	return ctx.Err()
}

func (s *settler) settleOnce(ctx context.Context, done []line.Done, transitions []line.Transition) (line.Settled, error) {
	if err := faultpoint.At(faultpoint.DispatcherNoted); err != nil {
		return line.Settled{}, err
	}
	result, err := s.line.Settle(ctx, done, transitions, s.clock.Latest)
	s.settles.noteWrite(ctx, err)
	if err != nil {
		return result, err
	}
	return result, faultpoint.At(faultpoint.DispatcherSettled)
}

// afterSettle follows up on a durable attempt: the index lets go of settled tasks and learns of
// moved ones; then the events are told.
func (s *settler) afterSettle(ctx context.Context, done []line.Done, result line.Settled) {
	trim := make([]index.SlotPos, len(done))
	for i, c := range done {
		trim[i] = index.SlotPos{Slot: c.Slot, Pos: c.To}
	}
	s.indexer.update(ctx, trim, index.News{Added: result.Moved}.Entries(s.horizon()))
	s.announcer.results.Stored(result.Events)
}

// note writes the outcomes at hand to the send log, and starts what follows from them.
func (s *settler) note(ctx context.Context) {
	s.logOutcomes(ctx)
	if ctx.Err() != nil {
		return
	}
	announce, isolate := s.outcomes.Conclude()
	for _, g := range isolate {
		s.sender.background.Go(func() { s.sender.isolate(ctx, g) })
	}
	for _, d := range announce {
		s.announcer.announce(d)
	}
}

// logOutcomes writes the outcomes at hand to the send log. While a settlement waits for the
// database, and when the dispatcher ends, nothing else can be done with them: a process that begins
// again here does not send these tasks once more.
func (s *settler) logOutcomes(ctx context.Context) {
	logging := s.outcomes.ToLog()
	if logging == nil {
		return
	}
	s.until(ctx, "noting outcomes in the send log", func(ctx context.Context) error {
		if err := faultpoint.At(faultpoint.DispatcherAcknowledged); err != nil {
			return err
		}
		return s.sent.AppendOutcomes(ctx, logging.Entries)
	})
	if ctx.Err() == nil {
		logging.Logged()
	}
}

// lastOutcomes is for when the loops have ended and the producers are closed.
func (s *settler) lastOutcomes() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.logOutcomes(ctx)
}

// An outage can end with a million tasks that leave their places at once. They are settled in
// pieces, so that no transaction grows with them, and done moves between the pieces. A piece
// refused for its content is halved until the refused task stands alone. The task is then settled
// with less, step by step, so that it neither is lost nor holds up anybody.

// settlePieces settles some pieces of the transitions, and returns what is left for the next round.
func (s *settler) settlePieces(ctx context.Context, transitions []flight.Transition) (left []flight.Transition) {
	for range roundPieces {
		if len(transitions) == 0 || ctx.Err() != nil {
			break
		}
		n := flight.PieceOf(transitions)
		left = append(left, s.settlePiece(ctx, transitions[:n:n])...)
		transitions = transitions[n:]
	}
	if len(transitions) > 0 {
		s.kicks.Settle.Now()
	}
	return append(left, transitions...)
}

// settlePiece settles a piece and returns the part that is not durable: all when ctx ended, and a
// task refused by the database however little is left of it.
func (s *settler) settlePiece(ctx context.Context, piece []flight.Transition) []flight.Transition {
	err := s.settleThese(ctx, func() flight.Attempt {
		attempt := s.flight.Ours(piece)
		piece = attempt.Transitions
		return attempt
	})
	switch {
	case err == nil:
		return nil
	case !intake.BadRecord(err):
		return piece
	case len(piece) > 1:
		half := len(piece) / 2
		left := s.settlePiece(ctx, piece[:half:half])
		return append(left, s.settlePiece(ctx, piece[half:])...)
	}
	e := piece[0]
	s.metrics.refusedTransitions.Inc()
	topic, id := e.Name()
	s.log.Error("the database refuses how a task ends: settling it with less", zap.String("topic", topic), zap.String("id", id),
		zap.Int64("seq", e.Seq), zap.Int("step", e.Step()), zap.Error(err))
	if !e.Reduce(s.clock.Millis()) {
		return []flight.Transition{e} // the next round tries again; it holds up its slot and nothing else
	}
	return s.settlePiece(ctx, []flight.Transition{e})
}
