package dispatcher

import (
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
)

// outlet is where records go that succeed or fail together: a partition of a topic. Records without a key, and those of a topic of
// which nothing is known yet, have the partition -1, which stands for all that may take them.
type outlet struct {
	topic     string
	partition int32
}

// target is an outlet in use and how it is doing. The dispatcher's lock guards it.
type target struct {
	outlet
	sending int            // records with a producer
	bytes   int            // their size
	since   time.Time      // of the last sign of life, or of the first record sent after a rest
	waiting []*claimedTask // due, but the target has enough in flight
	outage  *outage        // nil while it answers

	suspects []sendable // refused, perhaps on another's account
	trying   bool       // somebody is at them
}

// flight is what the producers hold for all targets.
type flight struct{ tasks, bytes int }

// quietAfter is how long a target may leave records unanswered before its tasks give way where room is scarce.
const quietAfter = time.Second

// targetOf finds the target of a task, or begins one, and notes on the task which it is. mu is held.
func (d *Dispatcher) targetOf(t *claimedTask) *target {
	key := outlet{t.topic, -1}
	// What came before the topic's partitions were known goes first. A refusal is about the topic as a whole.
	if g := d.targets[key]; (g == nil || len(g.waiting) == 0) && d.refusals.topics[t.topic] == nil {
		key = d.outletOf(t)
	}
	t.outlet = key
	g := d.targets[key]
	if g == nil {
		g = &target{outlet: key}
		d.targets[key] = g
	}
	return g
}

func (d *Dispatcher) outletOf(t *claimedTask) outlet {
	if faultpoint.Without(faultpoint.JudgedByPartition) {
		return outlet{t.topic, -1}
	}
	return outlet{t.topic, d.where.Of(t.topic, t.record.Key)}
}

// shareOf is the part of the room that is left which one target may have in flight. So n targets that take nothing leave
// (8/9)^n of the room to the others.
const shareOf = 8

// hasRoom says whether one more of a target's records may be sent: one always, if there is room at all. mu is held.
func (d *Dispatcher) hasRoom(g *target) bool {
	if faultpoint.Without(faultpoint.RoomForOthers) {
		return g.sending < max(d.cfg.StageTasks/4, 1)
	}
	tasks, bytes := d.cfg.StageTasks-d.flight.tasks, d.cfg.StageBytes-d.flight.bytes
	if tasks <= 0 || bytes <= 0 {
		return false
	}
	return g.sending == 0 || g.sending < tasks/shareOf && g.bytes < bytes/shareOf
}

// beginSending counts a task whose record goes to a producer. mu is held.
func (d *Dispatcher) beginSending(g *target, t *claimedTask) {
	if g.sending == 0 {
		g.since = time.Now()
	}
	t.with = g
	g.sending++
	g.bytes += t.size
	d.flight.tasks++
	d.flight.bytes += t.size
}

// endSending is its counterpart, and returns who counted the task. mu is held.
func (d *Dispatcher) endSending(t *claimedTask) *target {
	g := t.with
	t.with = nil
	g.sending--
	g.bytes -= t.size
	d.flight.tasks--
	d.flight.bytes -= t.size
	return g
}

// forgetIdle forgets a target that is not in use. mu is held.
func (d *Dispatcher) forgetIdle(g *target) {
	if g.sending == 0 && len(g.waiting) == 0 && !g.trying && g.outage == nil && d.targets[g.outlet] == g {
		delete(d.targets, g.outlet)
	}
}

// giveWay puts off what waits for targets that have answered nothing for a moment, if the room for bodies is scarce: others need
// it. mu is held.
func (d *Dispatcher) giveWay() {
	if !d.staging.scarce() || faultpoint.Without(faultpoint.RoomForOthers) {
		return
	}
	for _, g := range d.targets {
		if len(g.waiting) > 0 && time.Since(g.since) >= quietAfter {
			d.postponeWaiting(g)
		}
	}
}

func (d *Dispatcher) postponeWaiting(g *target) {
	for _, t := range g.waiting {
		d.putOff(t, g)
	}
	g.waiting = nil
}

// checkTargets finds targets that have not answered for long. What is with the producer cannot be called back: it leaves
// its line, so that the line goes on, and its answer is still waited for. mu is held.
func (d *Dispatcher) checkTargets() {
	silent := map[outlet]*target{}
	for key, g := range d.targets {
		switch {
		case g.outage != nil && g.outage.over(time.Now()) && g.sending == 0:
			d.recallParked(key)
			g.outage = nil // nothing was to be sent there for long: nobody knows
			d.forgetIdle(g)
		case g.outage == nil && g.sending > 0 && time.Since(g.since) >= d.cfg.UnresponsiveAfter:
			silent[key] = g
		default:
			d.forgetIdle(g) // what waited there was put off, or went elsewhere
		}
	}
	if len(silent) == 0 {
		return
	}
	for _, l := range d.lines {
		for _, t := range l.open() {
			if t.status != sending || t.with == nil { // or its answer is about to be looked at
				continue
			}
			if g := silent[t.with.outlet]; g != nil {
				home := d.rehome(t, g)
				silent[home.outlet] = home
				d.stuck[t.seq] = t
				body := t.body // for the dead letter that it may yet become
				d.setAside(t, t)
				t.body = body
			}
		}
	}
	for _, g := range silent {
		if g.sending > 0 && g.outage == nil && time.Since(g.since) >= d.cfg.UnresponsiveAfter {
			d.fallsSilent(g)
			d.postponeWaiting(g)
		}
		d.forgetIdle(g)
	}
}

// rehome finds the partition of a task in flight that was sent before it was known. mu is held.
func (d *Dispatcher) rehome(t *claimedTask, from *target) *target {
	if from.partition >= 0 || t.record == nil {
		return from
	}
	key := d.outletOf(t)
	if key == from.outlet {
		return from
	}
	to := d.targets[key]
	if to == nil {
		to = &target{outlet: key}
		d.targets[key] = to
	}
	d.endSending(t)
	if d.beginSending(to, t); to.sending == 1 {
		to.since = from.since
	}
	t.outlet = key
	return to
}
