package flight

import (
	"github.com/cespare/xxhash/v2"

	"github.com/notyet/notyet/internal/sendlog"
)

// Proofs are attempts of which the send log proves that they were delivered, and when, by the seq of a task in doubt. Each is dropped with
// its first use or with its task, so there are never more than tasks in doubt.
type Proofs map[int64]map[sendlog.Proof]int64

// take returns when the attempt that a task is to make was delivered, if it was, and forgets all proofs of its seq. The task must be the
// one that was sent, by name and content.
func (p Proofs) take(t *Task) (at int64, ok bool) {
	of := p[t.seq]
	if of == nil {
		return 0, false
	}
	delete(p, t.seq)
	at, ok = of[sendlog.Proof{Subject: sendlog.SubjectOf(t.seq, t.topic, t.id, xxhash.Sum64(t.body)), Attempt: t.sendNumber()}]
	return at, ok
}

func (p Proofs) forget(seq int64) { delete(p, seq) }

// ProofsOf gathers what the send log proves of tasks in doubt, for Took.
func ProofsOf(acked map[sendlog.Proof]sendlog.Outcome) Proofs {
	found := Proofs{}
	for proof, o := range acked {
		if found[proof.Seq] == nil {
			found[proof.Seq] = map[sendlog.Proof]int64{}
		}
		found[proof.Seq][proof] = o.At
	}
	return found
}
