package dispatcher

import (
	"context"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
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

// proofs are attempts of which the send log proves that they were delivered, and when, by the seq of a task in doubt. Each is dropped with
// its first use or with its task, so there are never more than tasks in doubt. inFlight.mu guards them.
type proofs map[int64]map[sendlog.Proof]int64

// take returns when the attempt that a task is to make was delivered, if it was, and forgets all proofs of its seq. The task must be the
// one that was sent, by name and content.
func (p proofs) take(t *claimedTask) (at int64, ok bool) {
	of := p[t.seq]
	if of == nil {
		return 0, false
	}
	delete(p, t.seq)
	at, ok = of[sendlog.Proof{Subject: sendlog.SubjectOf(t.seq, t.topic, t.id, xxhash.Sum64(t.body)), Attempt: t.sendNumber()}]
	return at, ok
}

func (p proofs) forget(seq int64) { delete(p, seq) }

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
func (o *ownership) proofsOf(ctx context.Context, entries []store.Entry) proofs {
	found := proofs{}
	if len(entries) == 0 {
		return found
	}
	doubted := make(map[int64]struct{}, len(entries))
	first := int64(never)
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
	for proof, o := range acked {
		if found[proof.Seq] == nil {
			found[proof.Seq] = map[sendlog.Proof]int64{}
		}
		found[proof.Seq][proof] = o.At
	}
	return found
}
