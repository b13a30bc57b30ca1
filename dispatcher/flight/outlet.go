package flight

import (
	"time"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
)

// outlets are those in use, and what the producers hold for them.
type outlets struct {
	*env
	unsettled *unsettled
	where     *kafka.Placement // to which outlet a record goes; it has a lock of its own
	byKey     map[outletKey]*Outlet
	buffered  buffered
	atOrigins buffered // of it, what origins have
	probes    int      // under way
	gates     *gates
}

func newOutlets(fl *Flight) *outlets {
	return &outlets{env: &fl.env, unsettled: &fl.unsettled, gates: fl.gates, where: kafka.NewPlacement(), byKey: map[outletKey]*Outlet{}}
}

// outletKey names where records go that succeed or fail together: a partition of a target topic, or an origin. Records without a key, and
// those of a topic of which nothing is known yet, have the partition -1, which stands for all that may take them.
type outletKey struct {
	topic     string
	partition int32
}

// Outlet is one partition of a target, in use, and how it is doing. A target may have many: an outlet does not answer, or is full;
// an operator pauses or limits a target.
type Outlet struct {
	outletKey
	sending int            // records with a producer
	bytes   int            // their size
	owed    int            // tasks that are to wait for a report: see unsettled
	since   time.Time      // of the last sign of life, or of the first record sent after a rest
	waiting []*Task        // due, but the outlet has enough in flight
	closed  *closed        // nil while it takes records
	origin  bool           // it takes HTTP callbacks
	answers int            // of an origin, since the last look at it
	pace    int            // how many it gave in the second before that look
	seat    *callback.Seat // of an origin: taken for the next of its tasks that is sent.

	suspects []Sendable // refused, perhaps on another's account
	trying   bool       // somebody is at them
}

// Topic is the outlet's target.
func (k outletKey) Topic() string { return k.topic }

// buffered is what the producers hold for all outlets.
type buffered struct{ tasks, bytes int }

// of finds the outlet of a task, or begins one, and notes on the task which it is.
func (outs *outlets) of(t *Task) *Outlet {
	key := outletKey{t.topic, -1}
	// Tasks that came before the topic's partitions were known go first. A refusal is about the topic as a whole.
	if g := outs.byKey[key]; g == nil || len(g.waiting) == 0 && !g.refuses() {
		key = outs.keyOf(t)
	}
	t.outletKey = key
	g := outs.at(key)
	g.origin = t.call != nil
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

// hasRoom says whether a task may be sent through its outlet: one always, if there is room at all, and then an outlet's share of it.
func (outs *outlets) hasRoom(g *Outlet, t *Task) bool {
	if t.settings.Ack == schemas.AckReport {
		if !share.Has(outs.unsettled.room(), g.owed) {
			return false
		}
	}
	tasks, bytes := outs.cfg.StageTasks-outs.buffered.tasks, outs.cfg.StageBytes-outs.buffered.bytes
	if g.origin { // a request takes as long as its receiver likes: half of the room is the others'
		tasks = min(tasks, max(outs.cfg.StageTasks/2, 1)-outs.atOrigins.tasks)
		bytes = min(bytes, max(outs.cfg.StageBytes/2, 1)-outs.atOrigins.bytes)
	}
	return share.Has(tasks, g.sending) && share.Has(bytes, g.bytes)
}

// beginSending counts a task whose record goes to a producer.
func (outs *outlets) beginSending(g *Outlet, t *Task) {
	if g.sending == 0 {
		g.since = time.Now()
	}
	t.with = g
	outs.gates.begins(t.topic)
	outs.unsettled.begins(t, g)
	g.sending++
	g.bytes += t.size
	outs.count(g, 1, t.size)
}

// endSending is its counterpart, and returns who counted the task.
func (outs *outlets) endSending(t *Task) *Outlet {
	g := t.with
	t.with = nil
	outs.gates.ends(t.topic)
	g.sending--
	g.bytes -= t.size
	outs.count(g, -1, -t.size)
	if g.closed != nil {
		g.closed.probing = false
	}
	return g
}

func (outs *outlets) count(g *Outlet, tasks, bytes int) {
	outs.buffered.tasks += tasks
	outs.buffered.bytes += bytes
	if g.origin {
		outs.atOrigins.tasks += tasks
		outs.atOrigins.bytes += bytes
	}
}

// forgetIdle forgets an outlet that is not in use.
func (outs *outlets) forgetIdle(g *Outlet) {
	if g.sending == 0 && g.owed == 0 && len(g.waiting) == 0 && !g.trying && g.closed == nil && outs.byKey[g.outletKey] == g {
		delete(outs.byKey, g.outletKey)
	}
}

// rehome finds the partition of a task in flight that was sent before it was known.
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
