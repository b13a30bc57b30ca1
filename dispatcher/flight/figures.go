package flight

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/notyet/notyet/dispatcher/flight/target"
)

// Figures count the things in flight.
type Figures struct {
	Slots                    int
	Claimed                  int // tasks in slots, with their bodies or without
	StagedTasks, StagedBytes int
	SentTasks                int           // with producers, or with receivers of callbacks
	Stuck                    int           // sent, unanswered for long, and out of their slots since
	Parked                   int           // put off without reading their bodies until their target answers
	Gated                    int           // at gates, or on their way to them
	Due                      int           // staged, and waiting for their instant
	Calls                    int           // callbacks under way
	Proofs                   int           // tasks in doubt of which the send log proves something
	Leaving                  int           // on their way out of their places
	Unannounced              int           // delivered, their last events with the producer
	Unsettled                time.Duration // how long ago the oldest delivery was made that is not durable

	Unread            int     // claimed, and their bodies not read
	Probes, SentBytes int     // of what is sent: outlets that are asked, and bytes
	OutletTasks       int     // the same as SentTasks, as the outlets count it
	OutletBytes       int     // likewise
	GateTasks         int     // of them, as the gates count it
	Owed, Undurable   int     // tasks that are to wait for reports; deliveries that are not durable
	Gates             int     // targets with a policy, or with tasks at their gates
	Part              float64 // of the installation's slots that is owned, as far as the policies go

	Outlets, UnresponsiveOutlets  int
	RefusedTargets, ClockRefused  int
	PausedTargets, LimitedTargets int
}

// Figures returns the figures of this moment.
func (fl *Flight) Figures() Figures {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	f := Figures{
		Slots: len(fl.slots), Claimed: fl.entries, StagedTasks: fl.staging.tasks, StagedBytes: fl.staging.bytes, SentTasks: fl.outlets.buffered.tasks,
		Stuck: len(fl.stuck), Parked: fl.parked, Unannounced: len(fl.unannounced.published), Unsettled: fl.unsettled.oldest(),
		Due: len(fl.due), Calls: len(fl.outlets.calls), Proofs: len(fl.proofs), Leaving: fl.inbox.leavingTasks(), Probes: fl.outlets.probes, SentBytes: fl.outlets.buffered.bytes,
		Owed: fl.unsettled.owed, Undurable: len(fl.unsettled.deliveries), Gates: len(fl.gates.byTopic), Part: fl.gates.part(),
		Outlets: len(fl.outlets.byKey), Unread: fl.backlog.size(),
	}
	for _, g := range fl.outlets.byKey {
		f.OutletTasks += g.sending
		f.OutletBytes += g.bytes
		if g.silent() {
			f.UnresponsiveOutlets++
		}
		switch g.refusal.Why() {
		case target.Refused:
			f.RefusedTargets++
		case target.ClockDiffers:
			f.ClockRefused++
		}
	}
	for _, g := range fl.gates.byTopic {
		f.Gated += len(g.waiting) + g.coming.count()
		f.GateTasks += g.sending
		switch {
		case g.Paused:
			f.PausedTargets++
		case !g.Open():
			f.LimitedTargets++
		}
	}
	return f
}

// held are the figures to be 0 while there is nothing to do: one above 0 takes room from others for
// good.
func (f Figures) held() map[string]int {
	return map[string]int{
		"sent_tasks": f.SentTasks, "sent_bytes": f.SentBytes, "outlet_tasks": f.OutletTasks, "outlet_bytes": f.OutletBytes, "gate_tasks": f.GateTasks, "probes": f.Probes,
		"due_tasks": f.Due, "unread_tasks": f.Unread, "callbacks": f.Calls, "leaving_tasks": f.Leaving, "owed_reports": f.Owed, "undurable_deliveries": f.Undurable, "unannounced_events": f.Unannounced,
	}
}

// RegisterGauges shows the figures.
func (fl *Flight) RegisterGauges(reg prometheus.Registerer) {
	f := promauto.With(reg)
	measure := func(name, help string, of func(Figures) float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help}, func() float64 { return of(fl.Figures()) })
	}
	gauge := func(name, help string, of func(Figures) int) {
		measure(name, help, func(f Figures) float64 { return float64(of(f)) })
	}
	gauge("slots", "Slots owned.", func(f Figures) int { return f.Slots })
	gauge("claimed_tasks", "Claimed tasks that are not settled.", func(f Figures) int { return f.Claimed })
	gauge("staged_tasks", "Tasks in memory with their bodies.", func(f Figures) int { return f.StagedTasks })
	gauge("staged_bytes", "Memory that bodies of staged tasks take.", func(f Figures) int { return f.StagedBytes })
	gauge("refused_targets", "Targets that do not exist or may not be written.", func(f Figures) int { return f.RefusedTargets })
	gauge("clock_refused_targets", "Targets whose brokers refuse the database's time.", func(f Figures) int { return f.ClockRefused })
	gauge("unresponsive_targets", "Partitions of targets, and origins of callbacks, that do not answer.", func(f Figures) int { return f.UnresponsiveOutlets })
	gauge("parked_tasks", "Tasks that are put off without reading their bodies until their target answers.", func(f Figures) int { return f.Parked })
	gauge("stuck_tasks", "Tasks with the producer that have been set aside.", func(f Figures) int { return f.Stuck })
	measure("unsettled_seconds", "How long ago the oldest delivery was made that is not durable: if the dispatcher died, it would be made again.", func(f Figures) float64 { return f.Unsettled.Seconds() })
	gauge("paused_targets", "Targets that an operator has paused.", func(f Figures) int { return f.PausedTargets })
	gauge("limited_targets", "Targets that an operator has limited, and not paused.", func(f Figures) int { return f.LimitedTargets })
	for what := range (Figures{}).held() {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "held", Help: "What is held in flight, by what it is. 0 while there is nothing to do.", ConstLabels: prometheus.Labels{"what": what}},
			func() float64 { return float64(fl.Figures().held()[what]) })
	}
	atOrigins := func(name, help string, of func(target.Counts) int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "callback", Name: name, Help: help}, func() float64 {
			fl.mu.Lock()
			defer fl.mu.Unlock()
			return float64(of(fl.outlets.origins.Counts()))
		})
	}
	atOrigins("in_flight", "Requests that are under way.", func(n target.Counts) int { return n.Held })
	atOrigins("slow_in_flight", "Of them, those that are slow: to origins not known to answer, or for longer than a second.", func(n target.Counts) int { return n.Slow })
	atOrigins("busy_origins", "Origins with requests under way.", func(n target.Counts) int { return n.Busy })
	atOrigins("origins", "Origins that are known.", func(n target.Counts) int { return n.Known })
	atOrigins("open_circuits", "Origins that do not answer, and are asked one request at a time.", func(n target.Counts) int { return n.Down })
	gauge("gated_tasks", "Tasks in memory that wait for what their target's limits let through.", func(f Figures) int { return f.Gated })
}

// SlotLook is an owned slot with its tasks, for tests and for debugging.
type SlotLook struct {
	SlotView
	Owned   bool
	Epoch   int64
	Drained bool
	Leaving bool
	Seqs    []int64 // of the tasks that are not closed
	InDoubt int     // of them
}

// Look shows a slot.
func (fl *Flight) Look(slot int) SlotLook {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	l := fl.slots[slot]
	if l == nil {
		return SlotLook{SlotView: SlotView{Slot: slot}}
	}
	out := SlotLook{SlotView: SlotView{l.number, l.claimed, l.done}, Owned: true, Epoch: l.epoch, Drained: l.drained(), Leaving: !l.leaving.IsZero()}
	for _, t := range l.open() {
		out.Seqs = append(out.Seqs, t.seq)
		if t.doubt {
			out.InDoubt++
		}
	}
	return out
}

// GateLook is the gate of a target with a policy, likewise.
type GateLook struct {
	Known, Paused, Open, Free, Looked bool
	Room                              int // its share of what may be in flight; 0: no limit
	Sending, Unread                   int
}

// LookAtGate shows the gate of a target.
func (fl *Flight) LookAtGate(topic string) GateLook {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	g := fl.gates.byTopic[topic]
	if g == nil {
		return GateLook{}
	}
	return GateLook{Known: true, Paused: g.Paused, Open: g.Open(), Free: g.free(), Looked: !g.looked.IsZero(), Room: g.room, Sending: g.sending, Unread: g.undecided()}
}
