package flight

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/internal/kafka"
)

// Check looks at outlets without answers for long, and at events without acknowledgements. It
// returns the topics for the producer to forget.
func (fl Outcomes) Check() (forget []string) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.checkOutlets()
	fl.deferSlow()
	fl.outlets.tellRefusals()
	return fl.forgetClosed(time.Now())
}

// refusedForNow takes note of an answer to a record, and reports whether the target refused the
// record and may take it in a moment.
func (fl Due) refusedForNow(topic string, err error) bool {
	switch {
	case err == nil:
		if g := fl.outlets.byKey[outletKey{topic, -1}]; g != nil && !g.refusal.IsOpen() {
			g.refusal.Open()
			fl.recallParked(g)
			fl.log.Info("a target takes records again", zap.String("topic", topic))
		}
	case kafka.TopicMayCome(err):
		return !fl.noteRefusal(topic, target.Refused, err)
	case kafka.ClockDiffers(err):
		fl.noteRefusal(topic, target.ClockDiffers, err)
	}
	return false
}

// noteRefusal closes a topic, or notes one more refusal, and reports whether it is one too many.
func (fl Due) noteRefusal(topic string, why target.Why, err error) (final bool) {
	outs, now := fl.outlets, time.Now()
	g := outs.at(outletKey{topic, -1})
	var ends time.Time
	many := 0
	if why == target.Refused {
		patience := outs.cfg.UndeliverableAfter
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			patience = max(patience, topicSpreads)
		}
		ends = now.Add(patience)
		if g.unmet != nil {
			many = g.unmet.topics
		}
	}
	switch news := g.refusal.Refuse(why, ends, many, now); {
	case news && why == target.Refused:
		outs.refusals.n++
		outs.refusals.topic, outs.refusals.err = topic, err
	case news:
		outs.log.Error("a broker refuses the database's time: one of the two clocks is wrong, and tasks of the topic wait until it is corrected",
			zap.String("topic", topic), zap.Time("database_clock", outs.clock.Now()), zap.Duration("database_ahead_of_this_machine", outs.clock.Offset()), zap.Error(err))
	}
	if g.putsOff(now) {
		fl.postponeWaiting(g) // else one that comes later would ask before those
	}
	return !g.refusal.PutsOff(now)
}

// respondsAgain ends a silence: the parked tasks are called back.
func (fl Due) respondsAgain(g *Outlet) {
	if !g.silence.IsOpen() {
		g.silence.Open()
		fl.recallParked(g)
		fl.log.Info("a target answers again", zap.String("topic", g.topic), zap.Int32("partition", g.partition))
	}
}

// forgetClosed ends the closures of outlets without traffic for long: nobody knows their state. It
// returns the topics for the producer to forget as well: a producer asks the brokers for each name
// that anybody ever mistyped, four times a second. An outlet with something in flight answers for
// itself.
func (fl Outcomes) forgetClosed(now time.Time) (topics []string) {
	used := map[string]bool{}
	var over []*Outlet
	for key, g := range fl.outlets.byKey {
		bar := g.bar()
		if bar == &g.silence && g.refusal.IsOver(now) {
			g.refusal.Open()
		}
		if used[key.topic] = used[key.topic] || g.sending > 0 || len(g.waiting) > 0; !bar.IsOver(now) || g.sending > 0 {
			continue
		}
		if bar == &g.refusal {
			topics = append(topics, key.topic)
		}
		over = append(over, g)
		if g.origin != nil { // it is asked before anything else is sent, however long that may be
			fl.outlets.forget(g)
			continue
		}
		bar.Open()
		fl.outlets.forgetIdle(g)
	}
	fl.recallParked(over...)
	return slices.DeleteFunc(topics, func(topic string) bool { return used[topic] })
}

// checkOutlets finds outlets that have not answered for long. A task with the producer cannot be
// called back: the task leaves its place, so that its slot goes on, and the answer is still waited
// for.
func (fl Outcomes) checkOutlets() {
	silent := map[outletKey]*Outlet{}
	for key, g := range fl.outlets.byKey {
		if g.origin != nil {
			fl.putOffWaiting(g)
		}
		if fl.fallsSilent(g) {
			silent[key] = g
		}
		fl.outlets.forgetIdle(g) // what waited there was put off, or went elsewhere
	}
	fl.setAsideSlow()
	if len(silent) == 0 {
		return
	}
	for _, l := range fl.slots {
		for _, t := range l.open() {
			if t.status != sending || t.with == nil { // or its answer is about to be looked at
				continue
			}
			if g := silent[t.with.outletKey]; g != nil {
				home := fl.outlets.rehome(t, g)
				silent[home.outletKey] = home
				fl.setAsideSent(t)
			}
		}
	}
	for _, g := range silent {
		if fl.fallsSilent(g) {
			fl.outlets.fallsSilent(g)
			fl.postponeWaiting(g)
		}
		fl.outlets.forgetIdle(g)
	}
}

// probesAtOnce bounds the asking producers: each is a connection or more.
const probesAtOnce = 32

// fallsSilent says whether records of a partition were not answered for long.
func (fl Outcomes) fallsSilent(g *Outlet) bool {
	return g.sending > 0 && g.silence.IsOpen() && g.origin == nil && time.Since(g.since) >= fl.cfg.UnresponsiveAfter
}

// setAsideSlow takes requests under way for long out of their places, so that their slots go on.
// Each answer is still waited for, as long as the request's own timeout.
func (fl Outcomes) setAsideSlow() {
	for t, call := range fl.outlets.calls {
		if t.status == sending && time.Since(call.since) >= min(slowCall, fl.cfg.UnresponsiveAfter) && fl.stuck[t.seq] == nil && !t.slot.abandoned {
			fl.setAsideSent(t)
		}
	}
}

// setAsideSent takes a task with its sender out of its place. The answer is still waited for.
func (fl *machine) setAsideSent(t *Task) {
	fl.stuck[t.seq] = t
	fl.unsettled.ends(t)
	body := t.body // for the dead letter that it may yet become
	fl.setAside(t, t)
	t.body = body
}

// originDown puts off what waits for an origin that has just failed once too often.
func (fl Due) originDown(g *Outlet, o callback.Outcome) {
	fl.metrics.Unresponsive.Inc()
	fl.metrics.Circuits.Inc()
	fl.log.Warn("an origin does not answer: its callbacks are put off, and one at a time asks it", zap.String("origin", g.topic), zap.Int("status", o.Status), zap.String("failure", o.Failure))
	fl.postponeWaiting(g) // until it is asked
}

// Unresponsive returns the topics and origins with a part that does not answer, in order. For
// operators.
func (fl *Flight) Unresponsive() []string {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	names := map[string]bool{}
	for key, g := range fl.outlets.byKey {
		if g.silent() {
			names[key.topic] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
