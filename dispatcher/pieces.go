package dispatcher

import (
	"context"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/store/intake"
)

// An outage can end with a million tasks that leave their places at once. They are settled in pieces, so that no transaction grows
// with them, and done moves between the pieces. A piece that the database refuses for what is in it is halved until the task stands
// alone; that task is then settled with less, step by step, so that it neither is lost nor holds up anybody.

const (
	// roundPieces is how many pieces are settled before outcomes are noted and done moves: about half a second's work.
	roundPieces = 4
)

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

// settlePiece settles a piece and returns those of it that are not durable: all when ctx ended, and a task that the database refuses
// however little is left of it.
func (s *settler) settlePiece(ctx context.Context, piece []flight.Transition) []flight.Transition {
	err := s.settleThese(ctx, piece, func() []flight.Closing { return nil })
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
