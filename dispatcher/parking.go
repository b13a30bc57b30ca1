package dispatcher

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// parking puts off the tasks of outlets that do not answer, and calls them back. It has no state of its own: what it remembers stands with
// each slot.
type parking struct {
	*shared
	flight  *inFlight
	outlets *outlets
}

func newParking(fl *inFlight, outs *outlets) *parking {
	outs.policies = newPolicies(fl, outs)
	return &parking{shared: fl.shared, flight: fl, outlets: outs}
}

// respondsAgain ends an outage. inFlight.mu is held.
func (pk *parking) respondsAgain(g *outlet) {
	if g.outage == nil {
		return
	}
	g.outage = nil
	pk.recallParked(g.outletKey)
	pk.log.Info("a target answers again", zap.String("topic", g.topic), zap.Int32("partition", g.partition))
}

// parked is what a slot remembers of a task that was put off because its outlet does not answer: enough to put it off again without
// reading its body, and to call it back when the outlet answers. Others may end such a task, but only the owner of the slot changes it.
// So what is remembered stays true as long as the slot is owned.
type parked struct {
	outletKey outletKey
	at        int64 // not released before, Unix ms
	expires   int64 // from then on it is too late for it; 0: never
	attempt   int
	lane      task.Lane
}

// parkedMost bounds what is remembered, at about 150 bytes each: what is beyond it is read again each time.
func (pk *parking) parkedMost() int { return max(3*pk.cfg.StageTasks, 10_000) }

// putOff puts off a task that was not sent: until its outlet is asked again. inFlight.mu is held.
func (pk *parking) putOff(t *claimedTask, g *outlet) {
	p, state := parked{outletKey: g.outletKey, at: t.at, attempt: t.attempt, lane: t.lane}, task.StateLine
	if t.maybeSent() {
		state = task.StateRetry
	} else if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 {
		p.expires = t.due + bound + 1
	}
	if g.outage != nil && !t.slot.abandoned && pk.flight.parkedTasks() < pk.parkedMost() {
		if t.slot.parked == nil {
			t.slot.parked = map[int64]parked{}
		}
		t.slot.parked[t.seq] = p
	}
	pk.leaveParked(t, g, p, state)
}

// leaveParked takes a task out of its place; its body may not be known. inFlight.mu is held.
func (pk *parking) leaveParked(t *claimedTask, g *outlet, p parked, state task.State) {
	pk.outlets.policies.passesOver(g.topic, t.seq)
	pause := unsentPause
	if g.outage != nil {
		pause = g.outage.wait(time.Now())
	}
	pos := max(pk.clock.Millis()+pause.Milliseconds(), p.at)
	if p.expires > 0 {
		pos = min(pos, p.expires)
	}
	pk.metrics.postponed.Inc()
	pk.flight.leave(t, transition{Transition: store.Transition{State: state, Pos: pos, Attempt: p.attempt, Lane: t.lane}})
}

// parksAgain puts off a task whose body is not read, if its outlet still does not answer. inFlight.mu is held.
func (pk *parking) parksAgain(t *claimedTask) bool {
	p, ok := t.slot.parked[t.seq]
	if !ok {
		return false
	}
	g := pk.outlets.byKey[p.outletKey]
	late := p.expires > 0 && pk.clock.Millis() >= p.expires
	if late || g == nil || g.outage == nil || g.outage.lets(time.Now()) {
		delete(t.slot.parked, t.seq)
		t.asks, t.parkedAt = true, &p.outletKey
		return false
	}
	pk.leaveParked(t, g, p, task.StateLine) // as what it is
	return true
}

// parkUnsent puts off those of the tasks, just read, whose outlets do not answer, and returns the others. What an earlier owner may
// have sent goes on: the send log may know of it.
func (pk *parking) parkUnsent(tasks []*claimedTask) []*claimedTask {
	now := pk.clock.Millis()
	pk.flight.mu.Lock()
	defer pk.flight.mu.Unlock()
	return slices.DeleteFunc(tasks, func(t *claimedTask) bool {
		if t.record == nil || t.doubt || t.asks || t.slot.abandoned {
			return false
		}
		g := pk.outlets.byKey[pk.outlets.keyOf(t)]
		if g == nil || g.outage == nil || g.outage.lets(time.Now()) {
			return false
		}
		if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && now > t.due+bound {
			return false
		}
		t.outletKey = g.outletKey
		pk.putOff(t, g)
		t.dropContent()
		return true
	})
}

// recallMost is how many tasks are called back in one round of settling: 20 000 a second.
const recallMost = 1000

// recallParked notes whom to call back now that an outlet answers: those that it should have had first come first. inFlight.mu is held.
func (pk *parking) recallParked(o outletKey) {
	var back []transition
	for _, l := range pk.flight.slots {
		for seq, p := range l.parked {
			if p.outletKey == o {
				delete(l.parked, seq)
				back = append(back, transition{task: &claimedTask{slot: l, seq: seq, lane: p.lane},
					Transition: store.Transition{Seq: seq, Slot: l.number, Epoch: l.epoch, Recall: true, Pos: p.at, Attempt: p.attempt, Lane: p.lane}})
			}
		}
	}
	slices.SortFunc(back, func(a, b transition) int { return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Seq, b.Seq)) })
	pk.flight.inbox.recall(back)
	pk.kicks.settle.now()
}

// mayRecall separates the recalls of tasks whose last transition is settled from the others.
func mayRecall(recalls, unsettled []transition) (now, early []transition) {
	if len(recalls) == 0 || len(unsettled) == 0 {
		return recalls, nil
	}
	wait := make(map[int64]bool, len(unsettled))
	for _, e := range unsettled {
		wait[e.Seq] = true
	}
	for _, e := range recalls {
		if wait[e.Seq] {
			early = append(early, e)
		} else {
			now = append(now, e)
		}
	}
	return now, early
}

// quietAfter is how long an outlet may leave records unanswered before its tasks give way where room is scarce.
const quietAfter = time.Second

// giveWay puts off what waits for outlets that have answered nothing for a moment, if the room for bodies is scarce: others need
// it. inFlight.mu is held.
func (pk *parking) giveWay() {
	if !pk.flight.staging.scarce() {
		return
	}
	for _, g := range pk.outlets.byKey {
		switch {
		case g.origin && g.outage == nil && len(g.waiting) > 0:
			pk.spreadWaiting(g, 0)
		case len(g.waiting) > 0 && g.sending > 0 && time.Since(g.since) >= quietAfter:
			pk.postponeWaiting(g)
		}
	}
}

const (
	spreadEach = 50 * time.Millisecond // further apart than most origins answer
	spreadMost = time.Minute
)

// spreadWaiting puts off what waits for an origin that does not answer fast enough, but for the first to keep: one after the other, about
// as fast as it answers, so that they do not all come back at once. inFlight.mu is held.
func (pk *parking) spreadWaiting(g *outlet, keep int) {
	if len(g.waiting) <= keep {
		return
	}
	now, first, each := pk.clock.Millis(), unsentPause, spreadEach
	if g.pace > 0 {
		first, each = time.Second, time.Second/time.Duration(g.pace)
	}
	off := g.waiting[keep:]
	g.waiting = g.waiting[:keep:keep]
	for i, t := range off {
		pause := first + min(time.Duration(i)*each, time.Duration(i)*spreadMost/time.Duration(len(off)))
		if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && !t.maybeSent() {
			pause = max(min(pause, time.Duration(t.due+bound+1-now)*time.Millisecond), time.Millisecond)
		}
		pk.flight.postpone(t, now, pause)
	}
}

// putOffWaiting puts off what has waited for an origin for a second, because it holds up its slot. What the origin takes in the next two seconds, as
// fast as it has answered, stays. inFlight.mu is held.
func (pk *parking) putOffWaiting(g *outlet) {
	g.pace, g.answers = g.answers*int(time.Second/pk.cfg.checkEvery()), 0
	if g.outage == nil && len(g.waiting) > 0 && g.waiting[0].at+slowCall.Milliseconds() < pk.clock.Millis() {
		pk.spreadWaiting(g, 2*g.pace)
	}
}

func (pk *parking) postponeWaiting(g *outlet) {
	for _, t := range g.waiting {
		pk.putOff(t, g)
	}
	g.waiting = nil
}

// rejudgeParked calls back what was put off on account of an outlet if the task that was read to ask there goes to another partition now:
// which partitions the topic has is known since, or has changed. The others might go there too, and nobody would ask in their name. inFlight.mu is held.
func (pk *parking) rejudgeParked(t *claimedTask, g *outlet) {
	was := t.parkedAt
	t.parkedAt = nil
	if was == nil || g.partition < 0 || *was == g.outletKey {
		return
	}
	if old := pk.outlets.byKey[*was]; old != nil && old.outage != nil { // else all is called back
		pk.recallParked(*was)
	}
}
