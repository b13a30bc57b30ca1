package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// spin counts the turns of a loop that asks, each time, whether it is trusted. One that turns without a rest would stop virtual
// time: it is found, and then made to rest.
type spin struct {
	find func(invariant, format string, args ...any)

	mu     sync.Mutex
	second int64
	turns  int
	told   bool
}

const maxTurns = 20_000 // a virtual second

func (s *spin) turn(who string) {
	s.mu.Lock()
	if now := time.Now().Unix(); now != s.second {
		s.second, s.turns = now, 0
	}
	s.turns++
	spins, first := s.turns > maxTurns, !s.told
	s.told = s.told || spins
	s.mu.Unlock()
	if spins && first {
		s.find("spin", "a loop of %s turned %d times in a second", who, maxTurns)
	}
	if spins {
		time.Sleep(10 * time.Millisecond)
	}
}

// lasting are the gauges of scanners and dispatchers that may be above 0 while there is nothing to do. All others are 0 then, also those that are
// added one day.
var lasting = []string{
	"notyet_dispatcher_slots", "notyet_dispatcher_clock_offset_seconds", "notyet_dispatcher_send_log_bytes",
	"notyet_dispatcher_dead_letters", "notyet_dispatcher_dead_letter_bytes",
	"notyet_dispatcher_target_pending_tasks", "notyet_dispatcher_due_tasks", // what is due later
	"notyet_dispatcher_refused_targets", "notyet_dispatcher_unresponsive_targets", "notyet_callback_origins", "notyet_callback_open_circuits", // until the next task
}

// closures are the gauges of targets to which nothing is sent until they are asked again.
var closures = []string{"notyet_dispatcher_refused_targets", "notyet_dispatcher_unresponsive_targets", "notyet_callback_open_circuits"}

// answerPatience is how long a producer may hold a record whose task another owner has ended meanwhile: until it gives it up.
const answerPatience = 40 * time.Second

// settled looks whether what dispatchers hold is back to its size at rest.
func (w *world) settled() {
	for began := time.Now(); ; time.Sleep(time.Second) {
		held := w.held()
		if len(held) == 0 {
			return
		}
		if time.Since(began) > answerPatience {
			for _, what := range held {
				w.find("leak", "%s %v after all was at rest", what, answerPatience)
			}
			return
		}
	}
}

// held are the gauges that are not at rest.
func (w *world) held() (out []string) {
	for _, n := range w.nodes {
		if n.up == nil || n.up.gauges.Load() == nil {
			continue
		}
		families, err := n.up.gauges.Load().Gather()
		if err != nil {
			w.find("sim", "gathering the metrics of %s: %v", n.name, err)
		}
		// A task that a caller cancelled while it was parked is forgotten when its target is asked again.
		closed := slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return slices.Contains(closures, f.GetName()) && f.GetMetric()[0].GetGauge().GetValue() > 0
		})
		for _, f := range families {
			if f.GetType() != dto.MetricType_GAUGE || slices.Contains(lasting, f.GetName()) || closed && f.GetName() == "notyet_dispatcher_parked_tasks" {
				continue
			}
			for _, m := range f.GetMetric() {
				if v := m.GetGauge().GetValue(); v != 0 {
					out = append(out, fmt.Sprintf("%s%v of %s is %v", f.GetName(), m.GetLabel(), n.name, v))
				}
			}
		}
	}
	return out
}

// miscounts is the counter of settlements that closed other tasks than the database has.
const miscounts = "notyet_dispatcher_mismatch_total"

// judgeCounts: every settlement closes as many tasks as the database has there, unless that has forgotten some.
func (w *world) judgeCounts() {
	if w.truth == nil || w.setback.lost > 0 {
		return
	}
	for _, r := range w.registries {
		families, err := r.Gather()
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == miscounts })
		switch {
		case err != nil || i < 0:
			w.find("sim", "a dispatcher has no metric %s: %v", miscounts, err)
		case families[i].GetMetric()[0].GetCounter().GetValue() > 0:
			w.find("count", "a dispatcher closed a piece of a slot in which the database had other tasks")
		default:
			continue
		}
		return
	}
}

// forgotten waits for the retention, and looks whether what has ended is gone.
func (w *world) forgotten() {
	if !w.forgets {
		return
	}
	const rounds = 6 * time.Second // between two rounds, and some time for one
	keep := w.dispatcher.Retention + w.dispatcher.Retention/10 + rounds
	for began := time.Now(); time.Since(began) < keep+10*time.Second; time.Sleep(time.Second) {
		var n int
		err := w.looks.QueryRow(`SELECT COUNT(*) FROM tasks t LEFT JOIN slots s ON s.slot = t.slot WHERE t.pos < ? AND (s.slot IS NULL OR t.pos <= s.done)`,
			time.Now().Add(-keep).UnixMilli()).Scan(&n)
		if err != nil {
			w.find("sim", "counting what has ended: %v", err)
			return
		}
		if n > 0 {
			w.find("growth", "%d ended tasks are there, %v after they ended; the retention is %v", n, keep, w.dispatcher.Retention)
			return
		}
	}
}
