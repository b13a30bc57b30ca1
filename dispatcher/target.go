package dispatcher

import (
	"time"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/kafka"
)

// targets are the outlets in use, and what the producers hold for them. The lock of those in flight guards them: the release and settle
// loops, probes and promises write, the fetch loop reads.
type targets struct {
	*shared
	where    *kafka.Placement // to which outlet a record goes; it has a lock of its own
	outlets  map[outlet]*target
	buffered buffered
	probes   int // under way
	policies *policies
	refusals refusals
}

func newTargets(sh *shared) *targets {
	return &targets{shared: sh, where: kafka.NewPlacement(), outlets: map[outlet]*target{}, refusals: refusals{patience: sh.cfg.UndeliverableAfter}}
}

// outlet is where records go that succeed or fail together: a partition of a topic. Records without a key, and those of a topic of
// which nothing is known yet, have the partition -1, which stands for all that may take them.
type outlet struct {
	topic     string
	partition int32
}

// target is an outlet in use and how it is doing. The lock of those in flight guards it.
type target struct {
	outlet
	sending int             // records with a producer
	bytes   int             // their size
	since   time.Time       // of the last sign of life, or of the first record sent after a rest
	waiting []*claimedTask  // due, but the target has enough in flight
	outage  *outage         // nil while it answers
	origin  bool            // it takes HTTP callbacks
	answers int             // of an origin, since the last look at it
	pace    int             // how many it gave in the second before that look
	place   *callback.Place // of an origin: taken for the next of its tasks that is sent. The release loop takes and uses it

	suspects []sendable // refused, perhaps on another's account
	trying   bool       // somebody is at them
}

// buffered is what the producers hold for all targets.
type buffered struct{ tasks, bytes int }

// of finds the target of a task, or begins one, and notes on the task which it is. inFlight.mu is held.
func (ts *targets) of(t *claimedTask) *target {
	key := outlet{t.topic, -1}
	// What came before the topic's partitions were known goes first. A refusal is about the topic as a whole.
	if g := ts.outlets[key]; (g == nil || len(g.waiting) == 0) && ts.refusals.topics[t.topic] == nil {
		key = ts.outletOf(t)
	}
	t.outlet = key
	g := ts.outlets[key]
	if g == nil {
		g = &target{outlet: key, origin: t.call != nil}
		ts.outlets[key] = g
	}
	return g
}

func (ts *targets) outletOf(t *claimedTask) outlet {
	if faultpoint.Without(faultpoint.JudgedByPartition) {
		return outlet{t.topic, -1}
	}
	return outlet{t.topic, ts.where.Of(t.topic, t.record.Key)}
}

// shareOf is the part of the room that is left which one target may have in flight. So n targets that take nothing leave
// (8/9)^n of the room to the others.
const shareOf = 8

// hasRoom says whether one more of a target's records may be sent: one always, if there is room at all. inFlight.mu is held.
func (ts *targets) hasRoom(g *target) bool {
	if faultpoint.Without(faultpoint.RoomForOthers) {
		return g.sending < max(ts.cfg.StageTasks/4, 1)
	}
	tasks, bytes := ts.cfg.StageTasks-ts.buffered.tasks, ts.cfg.StageBytes-ts.buffered.bytes
	if tasks <= 0 || bytes <= 0 {
		return false
	}
	return g.sending == 0 || g.sending < tasks/shareOf && g.bytes < bytes/shareOf
}

// beginSending counts a task whose record goes to a producer. inFlight.mu is held.
func (ts *targets) beginSending(g *target, t *claimedTask) {
	if g.sending == 0 {
		g.since = time.Now()
	}
	t.with = g
	ts.policies.begins(t.topic)
	g.sending++
	g.bytes += t.size
	ts.buffered.tasks++
	ts.buffered.bytes += t.size
}

// endSending is its counterpart, and returns who counted the task. inFlight.mu is held.
func (ts *targets) endSending(t *claimedTask) *target {
	g := t.with
	t.with = nil
	ts.policies.ends(t.topic)
	g.sending--
	g.bytes -= t.size
	ts.buffered.tasks--
	ts.buffered.bytes -= t.size
	return g
}

// forgetIdle forgets a target that is not in use. inFlight.mu is held.
func (ts *targets) forgetIdle(g *target) {
	if g.sending == 0 && len(g.waiting) == 0 && !g.trying && g.outage == nil && ts.outlets[g.outlet] == g {
		delete(ts.outlets, g.outlet)
	}
}

// rehome finds the partition of a task in flight that was sent before it was known. inFlight.mu is held.
func (ts *targets) rehome(t *claimedTask, from *target) *target {
	if from.partition >= 0 || t.record == nil {
		return from
	}
	key := ts.outletOf(t)
	if key == from.outlet {
		return from
	}
	to := ts.outlets[key]
	if to == nil {
		to = &target{outlet: key}
		ts.outlets[key] = to
	}
	ts.endSending(t)
	if ts.beginSending(to, t); to.sending == 1 {
		to.since = from.since
	}
	t.outlet = key
	return to
}
