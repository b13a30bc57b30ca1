package flight

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
)

// Topic is the outlet's target.
func (k outletKey) Topic() string { return k.topic }

// of finds the outlet of a task, or begins one.
func (outs *outlets) of(t *Task) *Outlet { return outs.enter(t, outs.goesTo(t)) }

// goesTo names the outlet of a task.
func (outs *outlets) goesTo(t *Task) outletKey {
	key := outletKey{t.topic, -1}
	// Tasks from before the topic's partitions were known go first. A refusal is about the topic as
	// a whole.
	if g := outs.byKey[key]; g == nil || len(g.waiting) == 0 && g.refusal.IsOpen() {
		key = outs.keyOf(t)
	}
	return key
}

// enter finds an outlet, or begins one, and notes the outlet on the task.
func (outs *outlets) enter(t *Task, key outletKey) *Outlet {
	t.outletKey = key
	g := outs.at(key)
	if t.call != nil && g.origin == nil {
		g.origin = outs.origins.Keep(key.topic)
	}
	return g
}

func (outs *outlets) at(key outletKey) *Outlet {
	g := outs.byKey[key]
	if g == nil {
		g = &Outlet{outletKey: key}
		outs.byKey[key] = g
	}
	return g
}

func (outs *outlets) keyOf(t *Task) outletKey {
	return outletKey{t.topic, outs.where.Of(t.topic, t.record.Key)}
}

// hasRoom says whether a task may be sent through its outlet: one always, if there is room at all,
// and then an outlet's share.
func (outs *outlets) hasRoom(g *Outlet, t *Task) bool {
	if t.settings.Ack == schemas.AckReport {
		if !share.Has(outs.unsettled.room(), g.owed) {
			return false
		}
	}
	tasks, bytes := outs.cfg.StageTasks-outs.buffered.tasks, outs.cfg.StageBytes-outs.buffered.bytes
	// A request takes as long as its receiver likes. So half of the room is for topics, and the
	// requests of a tenant leave as many bytes of the other half as they have.
	if g.origin != nil {
		if outs.origins.Lacks(g.origin, t.tenant, time.Now()) != "" {
			return false
		}
		left := max(outs.cfg.StageBytes/2, 1) - outs.atOrigins
		if bytes = min(bytes, left); outs.ofTenant[t.tenant] > left {
			return false
		}
	}
	return share.Has(tasks, g.sending) && share.Has(bytes, g.bytes)
}

// whyNotCalled says why a callback is not sent now.
func (outs *outlets) whyNotCalled(g *Outlet, t *Task) string {
	if !g.bar().IsOpen() {
		return target.Circuit
	}
	return cmp.Or(outs.origins.Lacks(g.origin, t.tenant, time.Now()), target.Full)
}

// beginSending counts a task on its way to a producer, or to a receiver.
func (outs *outlets) beginSending(g *Outlet, t *Task) {
	if g.sending == 0 {
		g.since = time.Now()
	}
	t.with = g
	outs.gates.begins(t.topic)
	outs.unsettled.begins(t, g)
	g.sending++
	g.bytes += t.size
	outs.count(t, 1, t.size)
	if g.origin != nil {
		now := time.Now()
		outs.calls[t] = call{now, outs.origins.Take(g.origin, t.tenant, now)}
	}
}

// endSending is the counterpart of beginSending, and returns the outlet with the task's count.
func (outs *outlets) endSending(t *Task) *Outlet {
	g := t.with
	t.with = nil
	outs.gates.ends(t.topic)
	g.sending--
	g.bytes -= t.size
	outs.count(t, -1, -t.size)
	if t.asks != nil {
		t.asks.Asked()
		t.asks = nil
	}
	return g
}

// leaveSeat takes back the seat of a callback.
func (outs *outlets) leaveSeat(t *Task, answered bool, now time.Time) {
	outs.origins.Leave(t.with.origin, outs.calls[t].seat, answered, now)
	delete(outs.calls, t)
}

// limitCalls sets the limits in force for callbacks, and the part of them that is ours.
func (outs *outlets) limitCalls(part float64) {
	if outs.cfg.CallLimits != nil {
		each, all := outs.cfg.CallLimits()
		outs.origins.Limit(each, min(all, max(outs.cfg.StageTasks/2, 1)), part)
	}
}

func (outs *outlets) count(t *Task, tasks, bytes int) {
	outs.buffered.tasks += tasks
	outs.buffered.bytes += bytes
	if t.call == nil {
		return
	}
	outs.atOrigins += bytes
	if outs.ofTenant[t.tenant] += bytes; outs.ofTenant[t.tenant] == 0 {
		delete(outs.ofTenant, t.tenant)
	}
}

// waits notes the waiting tasks of an outlet. Take looks at the outlets with such tasks.
func (outs *outlets) waits(g *Outlet, tasks []*Task) {
	if g.waiting = tasks; len(tasks) > 0 {
		outs.waiting[g] = true
	} else {
		g.waiting = nil
		delete(outs.waiting, g)
	}
}

// forgetIdle forgets an unused outlet.
func (outs *outlets) forgetIdle(g *Outlet) {
	if g.unmet != nil && outs.where.Knows(g.topic) {
		g.met()
	}
	if g.sending == 0 && g.owed == 0 && len(g.waiting) == 0 && !g.trying && g.bar().IsOpen() && outs.byKey[g.outletKey] == g {
		outs.forget(g)
	}
}

func (outs *outlets) forget(g *Outlet) {
	delete(outs.byKey, g.outletKey)
	g.met()
	if g.origin != nil {
		g.origin.Drop(time.Now())
	}
}

// rehome finds the partition of a task in flight, sent before the partition was known.
func (outs *outlets) rehome(t *Task, from *Outlet) *Outlet {
	if from.partition >= 0 || t.record == nil {
		return from
	}
	key := outs.keyOf(t)
	if key == from.outletKey {
		return from
	}
	to := outs.at(key)
	outs.endSending(t)
	outs.unsettled.ends(t)
	if outs.beginSending(to, t); to.sending == 1 {
		to.since = from.since
	}
	t.outletKey = key
	return to
}

// bar is what keeps records from the outlet: its own silence, or the refusal of its topic. An
// origin has one of its own.
func (g *Outlet) bar() *target.Bar {
	switch {
	case g.origin != nil:
		return g.origin.Bar()
	case g.silence.IsOpen():
		return &g.refusal
	}
	return &g.silence
}

// silent says whether an outlet does not answer.
func (g *Outlet) silent() bool {
	why := g.bar().Why()
	return why == target.Silent || why == target.Down
}

// putsOff says whether due tasks of the outlet are put off.
func (g *Outlet) putsOff(now time.Time) bool { return g != nil && g.bar().PutsOff(now) }

// closing is the outlet on whose account records to one are put off now: the whole topic's if the
// topic refuses every record, or the one itself; nil: none.
func (outs *outlets) closing(key outletKey, now time.Time) *Outlet {
	if all := outs.byKey[outletKey{key.topic, -1}]; all != nil && !all.refusal.IsOpen() {
		key = all.outletKey
	}
	if g := outs.byKey[key]; g.putsOff(now) {
		return g
	}
	return nil
}

// fallsSilent closes an outlet after a long silence.
func (outs *outlets) fallsSilent(g *Outlet) {
	g.silence.Close(target.Silent, time.Now())
	outs.metrics.Unresponsive.Inc()
	outs.log.Warn("a target does not answer: its tasks are set aside", zap.String("topic", g.topic), zap.Int32("partition", g.partition), zap.Int("in_flight", g.sending))
}
