package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// An outage can end with a million tasks that leave their places at once. They are settled in pieces, so that no transaction grows
// with them, and done moves between the pieces. A piece that the database refuses for what is in it is halved until the task stands
// alone; that task is then settled with less, step by step, so that it neither is lost nor holds up anybody.

const (
	// pieceTasks and pieceBytes bound one transaction: about 100 ms of work for the database, and as many rows as a statement of the store has.
	pieceTasks = 900
	pieceBytes = 16 << 20
	// roundPieces is how many pieces are settled before outcomes are noted and done moves: about half a second's work.
	roundPieces = 4
	// shortReason is what remains of a reason that may have been too long.
	shortReason = 500
	// refusedPause is how long a task is put off whose end the database does not take.
	refusedPause = time.Minute
)

// pieceOf returns how many of the transitions one transaction takes: at least one.
func pieceOf(transitions []transition) int {
	bytes := 0
	for n, e := range transitions {
		if bytes += e.bytes(); n > 0 && (n == pieceTasks || bytes > pieceBytes) {
			return n
		}
	}
	return len(transitions)
}

// bytes is about what the transition adds to a transaction.
func (e transition) bytes() int {
	n := 100
	if e.Dead != nil {
		n += len(e.Dead.Body) + len(e.Dead.Reason)
	}
	for _, ev := range e.events {
		n += 200 + len(ev.ID) + len(ev.Topic) + len(ev.Reason)
	}
	return n
}

// settlePieces settles some pieces of the transitions, and returns what is left for the next round.
func (s *settler) settlePieces(ctx context.Context, transitions []transition) (left []transition) {
	for range roundPieces {
		if len(transitions) == 0 || ctx.Err() != nil {
			break
		}
		n := pieceOf(transitions)
		left = append(left, s.settlePiece(ctx, transitions[:n:n])...)
		transitions = transitions[n:]
	}
	if len(transitions) > 0 {
		s.kicks.settle.now()
	}
	return append(left, transitions...)
}

// settlePiece settles a piece and returns those of it that are not durable: all when ctx ended, and a task that the database refuses
// however little is left of it.
func (s *settler) settlePiece(ctx context.Context, piece []transition) []transition {
	piece = s.ours(piece)
	err := s.settleThese(ctx, piece, func() ([]store.Done, []*ownedSlot) { return nil, nil })
	switch {
	case err == nil:
		return nil
	case !store.BadRecord(err):
		return piece
	case len(piece) > 1:
		half := len(piece) / 2
		left := s.settlePiece(ctx, piece[:half:half])
		return append(left, s.settlePiece(ctx, piece[half:])...)
	}
	e := piece[0]
	s.metrics.refusedTransitions.Inc()
	topic, id := "", "" // of some the body was never read
	if e.task.content != nil {
		topic, id = e.task.topic, e.task.id
	}
	s.log.Error("the database refuses how a task ends: settling it with less", zap.String("topic", topic), zap.String("id", id),
		zap.Int64("seq", e.Seq), zap.Int("step", e.reduced+1), zap.Error(err))
	if !e.reduce(s.clock.Millis()) {
		return []transition{e} // the next round tries again; it holds up its slot and nothing else
	}
	return s.settlePiece(ctx, []transition{e})
}

// reduce leaves out of a transition what the database may have refused: first long texts, then the body of its dead letter, which its row
// still has. In the end a task that was to become a dead letter stays pending, and comes again in a minute. False: nothing is left to
// leave out.
func (e *transition) reduce(now int64) bool {
	e.reduced++
	switch e.reduced {
	case 1:
		e.cutReasons(shortReason)
	case 2:
		e.cutReasons(0)
		if e.Dead != nil {
			dead := *e.Dead
			dead.Body, dead.Reason = nil, "the database refused its body and its reason here; the task's row has the body until the retention ends"
			e.Dead = &dead
		}
	case 3:
		if e.Dead == nil {
			return false
		}
		e.Dead, e.events, e.State, e.Pos = nil, nil, task.StateLine, now+refusedPause.Milliseconds()
	default:
		return false
	}
	return true
}

func (e *transition) cutReasons(n int) {
	events := make([]schemas.Event, len(e.events)) // another try may still hold the old ones
	for i, ev := range e.events {
		ev.Reason = cutASCII(ev.Reason, n)
		events[i] = ev
	}
	e.events = events
	if e.Dead != nil {
		dead := *e.Dead
		dead.Reason = cutASCII(dead.Reason, n)
		e.Dead = &dead
	}
}

// cutASCII shortens s to n bytes and writes a question mark for whatever is not printable ASCII.
func cutASCII(s string, n int) string {
	b := []byte(s[:min(n, len(s))])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
