package dispatcher

import (
	"context"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/store/line"
)

const (
	// proofsWithin bounds how long a takeover waits for its send log: what is not read by then is sent again.
	proofsWithin = 10 * time.Second
	// proofsBack is how far back the send log is read at most.
	proofsBack = time.Hour
	// proofsSlack is for the database's clock, which may have been corrected since it went into the send log. It also covers tasks that
	// stand behind a long look-ahead, later than they are due.
	proofsSlack = 2 * time.Minute
)

// loggedSince returns from when on the send log is read for tasks of which the first stands at a place. Nothing is
// sent before it is due. But a place further ahead than anybody claims says nothing: it lies behind what was claimed before the database's
// clock was set back.
func (o *ownership) loggedSince(first int64) time.Time {
	now := o.clock.Now()
	since, back := time.UnixMilli(first).Add(-proofsSlack), now.Add(-proofsBack)
	if ahead := max(o.cfg.LookAhead, o.cfg.BurstLookAhead); since.Before(back) || first > now.Add(ahead).UnixMilli() {
		since = back
	}
	return since
}

// proofsOf reads what the send log proves of tasks in doubt.
func (o *ownership) proofsOf(ctx context.Context, entries []line.Entry) flight.Proofs {
	if len(entries) == 0 {
		return nil
	}
	doubted := make(map[int64]struct{}, len(entries))
	first := int64(math.MaxInt64)
	for _, e := range entries {
		doubted[e.Seq] = struct{}{}
		first = min(first, e.Pos)
	}
	bound, cancel := context.WithTimeout(ctx, proofsWithin)
	defer cancel()
	acked, err := o.sent.Acked(bound, o.loggedSince(first), func(seq int64) bool { _, ok := doubted[seq]; return ok })
	if err != nil {
		o.log.Warn("reading the send log failed: what it does not prove is sent again", zap.Error(err))
	}
	return flight.ProofsOf(acked)
}
