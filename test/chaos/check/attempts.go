package check

import (
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// judgeAttempts checks I8, for a task that waits for reports. Each attempt is followed by another
// one, in its time, until a report ends the task or the attempts are used up. Then the task is
// dead, once.
func (c *checker) judgeAttempts(l *life) {
	if len(l.ops) != 1 || l.ops[0].AckTimeout == 0 || len(l.deliveries) == 0 {
		return
	}
	o := l.ops[0]
	first := l.firstCopies()
	last := first[len(first)-1]
	for i, d := range first {
		if d.Attempt != i+1 {
			c.about(l, "I8", "attempt %d follows attempt %d", d.Attempt, i)
			return
		}
	}
	if most := o.MaxAttempts + l.snoozed(); last.Attempt > most {
		c.about(l, "I8", "attempt %d, and %d are allowed", last.Attempt, most)
	}
	for i := 1; i < len(first); i++ {
		c.judgeRedelivery(l, o, first[i-1], first[i])
	}
	c.judgeEnd(l, o, last)
}

// snoozed is how many attempts were reported as snoozed.
func (l *life) snoozed() int {
	attempts := map[int]bool{}
	for _, r := range l.reports {
		if r.Status == "snooze" {
			attempts[r.Attempt] = true
		}
	}
	return len(attempts)
}

// judgeStops: no attempt follows behind the one after which a task was stopped. An attempt that was
// published before that answer may be of a life that the database had forgotten when it was decided.
func (c *checker) judgeStops(l *life) {
	for _, e := range l.events {
		if e.State != "stopped" || c.forgot(e) {
			continue
		}
		for _, d := range l.deliveries {
			if d.Due != e.Due || d.Attempt <= e.Attempt {
				continue
			}
			from := e.Since()
			if d.At < from {
				from = c.handedOver(d)
			}
			if !c.rewound(from, max(e.Since(), d.At)) {
				c.about(l, "I5", "stopped was answered after attempt %d, and attempt %d was published at %d", e.Attempt, d.Attempt, d.At)
			}
		}
	}
}

// handedOver returns when a producer was given a delivery: by the newest intent before it.
func (c *checker) handedOver(d *history.Delivery) int64 {
	at := d.At
	for i := range c.h.Sent {
		s := &c.h.Sent[i]
		if !s.Outcome && s.Topic == d.Topic && s.ID == d.ID && s.Attempt == d.Attempt && s.At <= d.At {
			at = s.At
		}
	}
	return at
}

// judgeReports: a task succeeds by a report about one of its own deliveries, never by one about an
// earlier task of its id.
func (c *checker) judgeReports(l *life) {
	for _, o := range l.ops {
		if o.AckTimeout == 0 || len(l.ops) < 2 || o.IfExists != "" && !l.delivered(o) { // one that was kept may be due when another is
			continue
		}
		keys := map[string]bool{"": true} // a report that names no delivery may be about any
		for _, d := range l.deliveries {
			keys[d.Key] = keys[d.Key] || d.Op == o.N
		}
		succeeded := slices.ContainsFunc(l.events, func(e *history.Event) bool { return e.State == "succeeded" && e.Due == o.DueAt() })
		if succeeded && !slices.ContainsFunc(l.reports, func(r *history.Report) bool { return r.Status == "ok" && keys[r.Delivery] }) {
			c.about(l, "I8", "request %d succeeded, and nobody reported ok about a delivery of it", o.N)
		}
	}
}

// firstCopies returns the first copy of each attempt, by attempt.
func (l *life) firstCopies() []*history.Delivery {
	var out []*history.Delivery
	for _, d := range l.deliveries {
		if !slices.ContainsFunc(out, func(b *history.Delivery) bool { return b.Attempt == d.Attempt }) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *history.Delivery) int { return a.Attempt - b.Attempt })
	return out
}

// judgeRedelivery: a redelivery comes not before its time, soon after it, and only if nothing has
// ended the task.
func (c *checker) judgeRedelivery(l *life, o *history.Op, before, d *history.Delivery) {
	const onItsWay = 2000 // a report that is stored while the next attempt is being sent cannot stop it
	from := before.At + o.AckTimeout + o.Pause(before.Attempt)
	for _, r := range l.reports {
		if r.Attempt != before.Attempt || r.Status != "retry" && r.Status != "snooze" {
			continue
		}
		wait := o.Pause(before.Attempt)
		if r.RetryAfter >= 0 {
			wait = r.RetryAfter
		}
		from = min(from, r.At+wait)
	}
	if d.At < from {
		c.about(l, "I8", "attempt %d at %d, before %d", d.Attempt, d.At, from)
	}
	// Reports of a scanner that went without a word are read by nobody until its session (6 s) ends and its group has met again.
	const unread = 8000
	if c.disturbed(before.At-unread, d.At) {
		return // reports and time-outs may have overtaken one another
	}
	r := l.report(before.Attempt, before.At, before.At+o.AckTimeout)
	switch {
	case r == nil || r.Status == "retry" || r.Status == "snooze":
		if d.At > from+c.bounds.Window {
			c.about(l, "I8", "attempt %d at %d, %d ms behind its time", d.Attempt, d.At, d.At-from)
		}
	case d.At > r.At+onItsWay:
		c.about(l, "I8", "attempt %d at %d, though attempt %d was reported %s at %d", d.Attempt, d.At, before.Attempt, r.Status, r.At)
	}
}

// report returns the first report about an attempt in the span.
func (l *life) report(n int, from, to int64) *history.Report {
	for _, r := range l.reports {
		if r.Attempt == n && r.At >= from && r.At <= to {
			return r
		}
	}
	return nil
}

// judgeEnd: a task ends, either by a report of ok or dead, and only once.
func (c *checker) judgeEnd(l *life, o *history.Op, last *history.Delivery) {
	succeeded, dead := l.hasEvent("succeeded"), len(l.letters)
	allowed := o.MaxAttempts // a snooze that comes late does not count
	if !c.disturbed(o.DueAt(), last.At+o.AckTimeout) {
		allowed += l.snoozed()
	}
	switch {
	case dead > 1:
		c.about(l, "I8", "died %d times", dead)
	case succeeded && (dead == 0 && c.stateRevoked(l, "dead", "succeeded") || dead == 1 && c.stateRevoked(l, "succeeded", "dead")):
		c.Figures.Reversed++
	case succeeded && (dead == 1 || l.hasEvent("dead")):
		c.about(l, "I8", "succeeded and died")
	case succeeded && !slices.ContainsFunc(l.reports, func(r *history.Report) bool { return r.Status == "ok" }):
		c.about(l, "I8", "succeeded, and nobody reported ok")
	case dead == 1 && last.Attempt < allowed && !slices.ContainsFunc(l.reports, func(r *history.Report) bool { return r.Status == "fail" }):
		c.about(l, "I8", "died after attempt %d of %d, and nobody reported fail: %s", last.Attempt, allowed, l.letters[0].Reason)
	case !succeeded && dead == 0 && last.Attempt >= o.MaxAttempts+l.snoozed():
		c.about(l, "I8", "%d attempts are used up, and it is not dead", last.Attempt)
	case !succeeded && dead == 0:
		c.about(l, "I8", "attempt %d was not followed by another, nor by an end", last.Attempt)
	}
}

// stateRevoked reports whether the database was restored between an event with this state and a
// later, different one. Its requests and reports are then read again, and timeouts that had expired
// have not expired yet; or reports that were in time come too late.
func (c *checker) stateRevoked(l *life, state, by string) bool {
	var first *history.Event
	for _, e := range l.events {
		switch {
		case e.State == state && first == nil:
			first = e
		case e.State == by && first != nil:
			return c.forgot(first)
		}
	}
	return false
}
