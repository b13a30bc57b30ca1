package chaos

import (
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/test/chaos/history"
)

// planned is a request with its sending time.
type planned struct {
	at   int64
	op   history.Op
	turn int // order among those of one time
}

// Settings of tasks that wait for reports.
const (
	ackTimeout  = 4000 // ms
	ackAttempts = 4
	ackBackoff  = 1000 // ms
)

// life returns the requests about the n-th task, all of them determined by seed and n. now is when
// the first may be sent, longest the latest due time of an ordinary task from now, in ms.
func life(seed uint64, n, now, longest int64) []planned {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	base := history.Op{
		Kind: history.Schedule, Topic: plainTopics[r.IntN(len(plainTopics))], ID: fmt.Sprintf("t%d", n),
		Key: fmt.Sprintf("k%d", r.IntN(400)), Due: now + dueDistance(r, longest), Version: -1, High: r.IntN(10) == 0,
	}
	if n%stormEvery == 0 {
		return storm(r, base, now)
	}
	switch p := r.IntN(100); {
	case p < 50:
		return []planned{{at: now, op: base}}
	case p < 65:
		base.ID = ""
		if r.IntN(2) == 0 {
			base.Due, base.Delay = 0, base.Due-now
		}
		return []planned{{at: now, op: base}}
	case p < 74:
		return cancelled(r, base, now)
	case p < 86:
		return replaced(r, base, now)
	case p < 88:
		return overtaken(base, now)
	case p < 89:
		base.Due, base.Invalid = now, true
		return []planned{{at: now, op: base}}
	case p < 90:
		return []planned{{at: now, op: resident(r, base, now)}}
	default:
		base.Topic, base.AckTimeout, base.MaxAttempts, base.Backoff = ackTopic, ackTimeout, ackAttempts, ackBackoff
		return []planned{{at: now, op: base}}
	}
}

// dueDistance is mostly short, so that most tasks see few faults, and sometimes as long as
// possible.
func dueDistance(r *rand.Rand, longest int64) int64 {
	switch p := r.IntN(10); {
	case p < 3:
		return r.Int64N(min(longest, 2_000))
	case p < 8:
		return r.Int64N(min(longest, 20_000))
	}
	return r.Int64N(longest)
}

// cancelled adds a cancel, some time before the task is due or within 50 ms around it.
func cancelled(r *rand.Rand, s history.Op, now int64) []planned {
	at := now + r.Int64N(s.Due-now+1)
	if r.IntN(2) == 0 {
		at = max(now, s.Due-50+r.Int64N(101))
	}
	c := history.Op{Kind: history.Cancel, Topic: s.Topic, ID: s.ID, Key: s.Key, Version: -1}
	out := []planned{{at: now, op: s}, {at: at, op: c}}
	if r.IntN(4) == 0 { // the id is used again
		s.Due += 2000 + r.Int64N(3000)
		out = append(out, planned{at: at + 1, op: s})
	}
	return out
}

// replaced adds one to three newer versions, some of them about when the task is due, and one that
// is too old.
func replaced(r *rand.Rand, s history.Op, now int64) []planned {
	versions := r.IntN(3) > 0
	s.AllEvents = true
	if versions {
		s.Version = 10
	}
	out := []planned{{at: now, op: s}}
	at := now
	for range 1 + r.IntN(3) {
		at += r.Int64N(max(s.Due-at, 1))
		if r.IntN(2) == 0 {
			at = max(at, s.Due-50+r.Int64N(101))
		}
		s.Due = max(s.Due, at) + 1 + r.Int64N(5000) // due times within a life differ, so that a due time identifies its answer
		if versions {
			s.Version++
		}
		out = append(out, planned{at: at, op: s})
		if versions && r.IntN(4) == 0 {
			old := s
			old.Version, old.Due = s.Version-2, s.Due+1
			out = append(out, planned{at: at + 1, op: old})
		}
	}
	return out
}

// overtaken is a cancel that comes before the task that it is for.
func overtaken(s history.Op, now int64) []planned {
	c := history.Op{Kind: history.Cancel, Topic: s.Topic, ID: s.ID, Key: s.Key, Version: 3}
	s.Version = 3
	return []planned{{at: now, op: c}, {at: now + 1, op: s}}
}

// resident is still pending when the run ends: inside the index's window, or beyond it.
// The longest run is an hour, and is drained for some minutes until nothing is due within restHorizon.
func resident(r *rand.Rand, s history.Op, now int64) history.Op {
	const minute = 60_000
	s.Due = now + (75+r.Int64N(10))*minute
	if r.IntN(2) == 0 {
		s.Due += 200 * minute
	}
	return s
}

// record returns an op as an intake record, and sets the op's hash.
func record(op *history.Op, padding int) *kgo.Record {
	r := &kgo.Record{Topic: intakeTopic, Key: []byte(op.Key), Value: incompressible(op.Value(), op.N, padding), Headers: op.Headers()}
	if op.Kind == history.Cancel {
		return r
	}
	own := []kgo.RecordHeader{{Key: "app", Value: []byte("chaos")}, {Key: "n", Value: []byte{0, byte(op.N), 0xff}}, {Key: "app", Value: nil}}
	r.Headers = append(r.Headers, own...)
	op.Hash = history.BodyHash(r.Key, r.Value, own)
	beyondLimit(op.Hostile, r)
	return r
}

// incompressible appends bytes that do not compress, because brokers check the compressed size.
func incompressible(value []byte, n int64, size int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 0))
	for range size {
		value = append(value, byte(r.Uint32()))
	}
	return value
}
