package flight

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// An outlet that takes nothing for now is closed. Its tasks are put off, and one of them at a time is sent to ask whether the outlet takes
// records again, longer and longer after the one before. When it does, the others are called back.

// cause says why an outlet is closed.
type cause int

const (
	// silent: a partition does not answer. It is asked from a producer made for that, so that nobody else's records share a request, a
	// connection or a buffer with it. An origin of callbacks is silent when package callback says that it is down.
	silent cause = iota
	// refused: the topic does not exist, or may not be written. It may be there in a moment, so until patience has passed its tasks wait.
	// After that each is sent, and is a dead letter if it is refused. The memory is this process's own: a new owner of a slot begins its own count.
	refused
	// clockDiffers: the broker refuses the database's time. The tasks wait until somebody corrects one of the two clocks.
	clockDiffers
)

// causes are how long nothing is sent at first, and at most. An outlet that nothing was sent to for quiet longer than that counts as any
// other: it may have come and gone meanwhile.
var causes = [...]struct{ first, longest, quiet time.Duration }{
	silent:       {5 * time.Second, 47 * time.Second, 10 * time.Minute}, // a probe may take 25 s: so an outlet that answers again is asked within 72 s
	refused:      {time.Second, 10 * time.Second, 2 * time.Minute},
	clockDiffers: {time.Second, 10 * time.Second, 2 * time.Minute},
}

// probesAtOnce bounds the producers that ask: each is a connection or more.
const probesAtOnce = 32

// closed is the time in which an outlet takes nothing.
type closed struct {
	cause     cause
	ends      time.Time     // the patience with a topic that refuses; zero: never
	first     time.Duration // for how long nothing is sent before the first task that asks
	asked     int           // how often a task was sent to ask
	next      time.Time     // nothing is sent before
	probing   bool          // a task is on its way
	probeRead time.Time     // when the latest one was read for that
	refusal   *closed       // of a silent outlet: what it said before
}

func newClosed(why cause, now time.Time) *closed {
	first := causes[why].first
	return &closed{cause: why, first: first, next: now.Add(first)}
}

// final says that the patience is over: each task is sent, and told what becomes of it.
func (c *closed) final(now time.Time) bool { return !c.ends.IsZero() && !now.Before(c.ends) }

// claim reports whether a task may be sent to ask the outlet, and takes the right to.
func (c *closed) claim(now time.Time) bool {
	if !c.mayAsk(now) {
		return false
	}
	c.probing = true
	c.asked++
	c.next = now.Add(c.pause(now))
	return true
}

func (c *closed) pause(now time.Time) time.Duration {
	return c.within(loop.Pause(c.asked+1, c.first, causes[c.cause].longest), now)
}

// within cuts a pause to the end of the patience.
func (c *closed) within(pause time.Duration, now time.Time) time.Duration {
	if left := c.ends.Sub(now); left > 0 {
		return min(pause, left)
	}
	return pause
}

func (c *closed) mayAsk(now time.Time) bool { return !c.probing && !now.Before(c.next) }

// readsProbe reports whether the body of a task is to be read to ask the outlet with, and takes the right to for a moment.
func (c *closed) readsProbe(now time.Time) bool {
	if !c.mayAsk(now) || now.Sub(c.probeRead) < time.Second {
		return false
	}
	c.probeRead = now
	return true
}

// wait is for how long a task is put off: until the outlet is asked again, or if that is about to happen, for as long as the pause
// before was.
func (c *closed) wait(now time.Time) time.Duration {
	if !now.Before(c.next) {
		return c.pause(now)
	}
	return c.within(max(c.next.Sub(now), time.Second), now)
}

func (c *closed) over(now time.Time) bool { return now.Sub(c.next) > causes[c.cause].quiet }

// silent says that an outlet does not answer.
func (g *Outlet) silent() bool { return g.closed != nil && g.closed.cause == silent }

// refusal is where an outlet that stands for a topic has the closure for its refusals.
func (g *Outlet) refusal() **closed {
	if g.silent() {
		return &g.closed.refusal
	}
	return &g.closed
}

// refuses says that an outlet stands for a topic that refuses every record, when it answers.
func (g *Outlet) refuses() bool { return *g.refusal() != nil }

// putsOff says that an outlet is closed to the tasks that are due.
func (g *Outlet) putsOff(now time.Time) bool {
	return g != nil && g.closed != nil && !g.closed.final(now)
}

// closing is the outlet that puts off what is to go to one now: the whole topic if it refuses every record, or that one itself; nil: none.
func (outs *outlets) closing(key outletKey, now time.Time) *Outlet {
	if all := outs.byKey[outletKey{key.topic, -1}]; all != nil && all.refuses() {
		key = all.outletKey
	}
	if g := outs.byKey[key]; g.putsOff(now) {
		return g
	}
	return nil
}

// fallsSilent closes an outlet that has not answered for long.
func (outs *outlets) fallsSilent(g *Outlet) {
	before := g.closed
	g.closed = newClosed(silent, time.Now())
	g.closed.refusal = before
	outs.metrics.Unresponsive.Inc()
	outs.log.Warn("a target does not answer: its tasks are set aside", zap.String("topic", g.topic), zap.Int32("partition", g.partition), zap.Int("in_flight", g.sending))
}

// refusedForNow takes note of an answer to a record, and reports whether its target refused it and may take it in a moment.
func (fl *Flight) refusedForNow(topic string, err error) bool {
	switch {
	case err == nil:
		if g := fl.outlets.byKey[outletKey{topic, -1}]; g != nil && g.refuses() {
			*g.refusal() = nil
			fl.recallParked(g.outletKey)
			fl.log.Info("a target takes records again", zap.String("topic", topic))
		}
	case kafka.TopicMayCome(err):
		return !fl.noteRefusal(topic, refused, err)
	case kafka.ClockDiffers(err):
		fl.noteRefusal(topic, clockDiffers, err)
	}
	return false
}

// noteRefusal closes a topic, or notes one more refusal, and reports whether it is one too many.
func (fl *Flight) noteRefusal(topic string, why cause, err error) (final bool) {
	outs, now := fl.outlets, time.Now()
	g := outs.at(outletKey{topic, -1})
	row := g.refusal()
	switch {
	case *row == nil || (*row).cause != why || (*row).over(now):
		*row = newClosed(why, now)
		if why == refused {
			(*row).ends = now.Add(outs.cfg.UndeliverableAfter)
			(*row).next = now.Add((*row).within((*row).first, now))
			outs.log.Warn("a target does not exist or may not be written: its tasks are tried for a while, then they are dead letters",
				zap.String("topic", topic), zap.Duration("undeliverable_after", outs.cfg.UndeliverableAfter), zap.Error(err))
		} else {
			outs.log.Error("a broker refuses the database's time: one of the two clocks is wrong, and tasks of the topic wait until it is corrected",
				zap.String("topic", topic), zap.Time("database_clock", outs.clock.Now()), zap.Duration("database_ahead_of_this_machine", outs.clock.Offset()), zap.Error(err))
		}
	case !now.Before((*row).next): // not one of many that were sent together
		(*row).next = now.Add((*row).pause(now))
	}
	if g.putsOff(now) {
		fl.postponeWaiting(g) // else one that comes later would ask before those
	}
	return (*row).final(now)
}

// respondsAgain ends a silence: what was put off is called back.
func (fl *Flight) respondsAgain(g *Outlet) {
	if g.silent() {
		g.closed = g.closed.refusal
		fl.recallParked(g.outletKey)
		fl.log.Info("a target answers again", zap.String("topic", g.topic), zap.Int32("partition", g.partition))
	}
}

// forgetClosed ends the closures of outlets to which nothing was to be sent for long: nobody knows. It returns the topics that the producer
// is to forget as well: it would ask the brokers for each name that anybody ever mistyped, four times a second. One that has something in
// flight answers for itself.
func (fl *Flight) forgetClosed(now time.Time) (topics []string) {
	used := map[string]bool{}
	var over []outletKey
	for key, g := range fl.outlets.byKey {
		if row := *g.refusal(); g.silent() && row != nil && row.over(now) {
			g.closed.refusal = nil
		}
		if used[key.topic] = used[key.topic] || g.sending > 0 || len(g.waiting) > 0; g.closed == nil || !g.closed.over(now) || g.sending > 0 {
			continue
		}
		if g.refuses() {
			topics = append(topics, key.topic)
		}
		over = append(over, key)
		g.closed = nil
		fl.outlets.forgetIdle(g)
	}
	fl.recallParked(over...)
	return slices.DeleteFunc(topics, func(topic string) bool { return used[topic] })
}
