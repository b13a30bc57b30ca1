package flight

import (
	"time"

	"go.uber.org/zap"
)

// A topic not met by any producer is looked up for the first task to be sent there. Until a
// producer meets the topic, the outlet counts for the tenant of the task. A tenant's tasks for more
// topics than unmetMost are put off unasked. Such tasks come again after a second, and unaskedEach
// after one another.
const unmetMost, unaskedEach = 2000, time.Second / 2000

// topicSpreads is within which time each broker knows a new topic.
const topicSpreads = 4 * time.Second

// unmet counts a tenant's topics that no producer has met. At next, the next task for one too many
// comes again.
type unmet struct {
	topics int
	next   time.Time
}

// newName says whether the topic of an outlet has to be looked up, and no tenant counts the outlet
// yet.
func (outs *outlets) newName(g *Outlet) bool {
	return g.partition < 0 && g.origin == nil && g.sending == 0 && g.unmet == nil && !outs.where.Knows(g.topic)
}

// oneTooMany says whether a task goes to a new name, and its tenant has too many new names.
func (outs *outlets) oneTooMany(g *Outlet, t *Task) bool {
	u := outs.unmet[t.tenant]
	return u != nil && u.topics >= unmetMost && outs.newName(g)
}

// countName counts the outlet of a task, if it has a new name.
func (outs *outlets) countName(g *Outlet, t *Task) {
	if !outs.newName(g) {
		return
	}
	u := outs.unmet[t.tenant]
	if u == nil {
		u = &unmet{}
		outs.unmet[t.tenant] = u
	}
	u.topics++
	g.unmet = u
}

// unasked is for how long a task for one name too many is put off.
func (outs *outlets) unasked(t *Task) time.Duration {
	now, u := time.Now(), outs.unmet[t.tenant]
	if u.next = u.next.Add(unaskedEach); u.next.Before(now.Add(time.Second)) {
		u.next = now.Add(time.Second)
	}
	return u.next.Sub(now)
}

// met says that an outlet counts no more.
func (g *Outlet) met() {
	if g.unmet != nil {
		g.unmet.topics--
		g.unmet = nil
	}
}

// refusals are the targets found to refuse records since the latest log line, and the latest
// target.
type refusals struct {
	n     int
	topic string
	err   error
	told  time.Time
}

// tellRefusals has one line in the log for all of a second.
func (outs *outlets) tellRefusals() {
	if r, now := outs.refusals, time.Now(); r.n > 0 && now.Sub(r.told) >= time.Second {
		outs.log.Warn("targets do not exist or may not be written: their tasks are tried for a while, then they are dead letters",
			zap.Int("topics", r.n), zap.String("one", r.topic), zap.Duration("undeliverable_after", outs.cfg.UndeliverableAfter), zap.Error(r.err))
		outs.refusals = refusals{told: now}
	}
}
