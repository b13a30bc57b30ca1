package dispatcher

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/notyet/notyet/store/look"
)

// Metrics of single targets have a label, and each value makes series for a monitor to keep. So
// only some targets are named: configured ones, or those with the most traffic. The rest are
// "other" together.

const (
	otherTargets = "other"
	// rankEvery is how often the targets with the most traffic are chosen, and half of the earlier
	// counts forgotten: so a target without traffic is named for some ten minutes more, and a
	// rarely used one not at all.
	rankEvery = time.Minute
	// maxCandidates bounds the targets with counted traffic. Of the deliveries to others, one in
	// admittedOneOf has its target take the place of the one with least traffic among
	// evictionSample: names that come once each cost little, and a busy one is soon counted.
	maxCandidates  = 2000
	admittedOneOf  = 8
	evictionSample = 8
	// lateAfter and veryLateAfter are the seconds from which a delivery is late, and very late.
	lateAfter, veryLateAfter = 1, 60
	// measureEvery is how often the owner of slot 0 counts the waiting tasks of each named target;
	// it rests 20 times as long as the count took.
	measureEvery = 30 * time.Second
	measureRest  = 20
	// pendingCounted is up to where the tasks of a target are counted.
	pendingCounted = 100_000
	// overdueLooked is how many overdue tasks of each slot are looked at, the first ones.
	overdueLooked = 1000
	// overdueAfter is how long a task may be due before it counts as overdue: delivered tasks are
	// settled well within this time.
	overdueAfter = 5 * time.Second
	// dueCounted is for how long tasks that fall due are counted, some two million a second. A task
	// overdue for more than dueBacklog is not counted.
	dueCounted = 500 * time.Millisecond
	dueBacklog = 24 * time.Hour
)

// dueWithin are the spans of the counts of due tasks, the longest last.
var dueWithin = []struct {
	label string
	span  time.Duration
}{{"1m", time.Minute}, {"5m", 5 * time.Minute}, {"15m", 15 * time.Minute}}

// waiting counts the waiting tasks of targets. All calls read indexes only, within the given
// bounds.
type waiting interface {
	Forecast(ctx context.Context, f look.ForecastFilter) (steps []look.ForecastStep, next int64, err error)
	CountPending(ctx context.Context, topic string, after, most int64) (look.Bounded, error)
	OldestOverdue(ctx context.Context, topics []string, before int64, perSlot int) (oldest map[string]int64, others int64, err error)
}

// targetMetrics are the metrics of single targets.
type targetMetrics struct {
	lateness        *prometheus.HistogramVec
	pending, oldest *prometheus.GaugeVec
	due             *prometheus.GaugeVec // of all targets together
	top             int                  // how many are named
	fixed           bool                 // they are configured, and nobody else is

	mu      sync.Mutex // of the fields below; it is the last that anybody takes
	named   map[string]prometheus.Observer
	traffic map[string]*traffic
	passing traffic // of targets that are not admitted; nobody reads it
	other   prometheus.Observer
}

// Deliveries counts a target's deliveries, by lateness, and its dead letters.
type Deliveries struct{ InTime, Late, VeryLate, Dead int64 }

// traffic is what a target has received.
type traffic struct {
	weight float64 // deliveries; those of earlier minutes count less
	Deliveries
}

func newTargetMetrics(configured []string, top int, reg prometheus.Registerer) *targetMetrics {
	f := promauto.With(reg)
	gauge := func(name, label, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: name, Help: help}, []string{label})
	}
	m := &targetMetrics{
		lateness: f.NewHistogramVec(prometheus.HistogramOpts{Namespace: "notyet", Subsystem: "dispatcher", Name: "target_lateness_seconds",
			Help: "As lateness_seconds, of single targets: those that are configured or have the most traffic, and other.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"target"}),
		due:     gauge("due_tasks", "within", "Tasks that are overdue or fall due within this time, at least: they are counted for half a second. As the owner of slot 0 sees it, and not there elsewhere."),
		pending: gauge("target_pending_tasks", "target", "Tasks of a target that come later, or are held, counted up to 100000; as the owner of slot 0 sees it, and not there elsewhere."),
		oldest:  gauge("target_oldest_overdue_seconds", "target", "How long the first task of a target that is overdue has been due; as the owner of slot 0 sees it, and not there elsewhere."),
		top:     top, fixed: len(configured) > 0, named: map[string]prometheus.Observer{}, traffic: map[string]*traffic{},
	}
	m.other = m.lateness.WithLabelValues(otherTargets)
	for _, topic := range configured {
		m.named[topic] = m.lateness.WithLabelValues(topic)
	}
	return m
}

// observe counts a delivery.
func (m *targetMetrics) observe(topic string, seconds float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.of(topic)
	t.weight++
	switch {
	case seconds < lateAfter:
		t.InTime++
	case seconds < veryLateAfter:
		t.Late++
	default:
		t.VeryLate++
	}
	named := m.named[topic]
	if named == nil && !m.fixed && len(m.named) < m.top {
		named = m.lateness.WithLabelValues(topic)
		m.named[topic] = named
	}
	if named == nil {
		named = m.other
	}
	named.Observe(seconds)
}

// died counts a dead letter.
func (m *targetMetrics) died(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(topic).Dead++
}

// of returns the counts of a target. A new one may take the place of another, or is not counted.
func (m *targetMetrics) of(topic string) *traffic {
	if t := m.traffic[topic]; t != nil {
		return t
	}
	if len(m.traffic) >= maxCandidates {
		if rand.IntN(admittedOneOf) > 0 {
			return &m.passing
		}
		m.evict()
	}
	m.traffic[topic] = &traffic{}
	return m.traffic[topic]
}

// evict forgets a target with little traffic.
func (m *targetMetrics) evict() {
	evicted, least, looked := "", 0.0, 0
	for topic, t := range m.traffic { // begins anywhere
		if weight := t.weight + float64(t.Dead); looked == 0 || weight < least {
			evicted, least = topic, weight
		}
		if looked++; looked == evictionSample {
			break
		}
	}
	delete(m.traffic, evicted)
}

// take returns the counts since the last call.
func (m *targetMetrics) take() map[string]Deliveries {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]Deliveries{}
	for topic, t := range m.traffic {
		if t.Deliveries != (Deliveries{}) {
			out[topic] = t.Deliveries
			t.Deliveries = Deliveries{}
		}
	}
	return out
}

// rank names the targets with the most traffic, unless they are configured, and forgets half of the
// traffic.
func (m *targetMetrics) rank() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.fixed {
		m.nameBusiest()
	}
	for topic, t := range m.traffic {
		if t.weight /= 2; t.weight < 1 && t.Deliveries == (Deliveries{}) {
			delete(m.traffic, topic)
		}
	}
}

// nameBusiest names the targets with the most traffic. A named one stays unless another has twice
// as much.
func (m *targetMetrics) nameBusiest() {
	weights := make(map[string]float64, len(m.traffic))
	for topic, t := range m.traffic {
		switch {
		case t.weight < 1:
		case m.named[topic] != nil:
			weights[topic] = 2 * t.weight
		default:
			weights[topic] = t.weight
		}
	}
	ranked := slices.SortedFunc(maps.Keys(weights), func(a, b string) int { return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b)) })
	keep := map[string]bool{}
	for _, topic := range ranked[:min(len(ranked), m.top)] {
		keep[topic] = true
	}
	for topic := range m.named {
		if !keep[topic] {
			delete(m.named, topic)
			for _, vec := range []interface{ DeleteLabelValues(...string) bool }{m.lateness, m.pending, m.oldest} {
				vec.DeleteLabelValues(topic)
			}
		}
	}
	for topic := range keep {
		if m.named[topic] == nil {
			m.named[topic] = m.lateness.WithLabelValues(topic)
		}
	}
}

func (m *targetMetrics) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.named))
}

// measure counts due tasks, and the waiting ones of each named target. Counts of another dispatcher
// are not shown here.
func (m *targetMetrics) measure(ctx context.Context, from waiting, now int64) error {
	if err := m.measureDue(ctx, from, now); err != nil {
		return err
	}
	names := m.names()
	pending := make(map[string]look.Bounded, len(names))
	for _, topic := range names {
		n, err := from.CountPending(ctx, topic, now, pendingCounted)
		if err != nil {
			return err
		}
		pending[topic] = n
	}
	oldest, others, err := from.OldestOverdue(ctx, names, now-overdueAfter.Milliseconds(), overdueLooked)
	if err != nil {
		return err
	}
	late := func(pos int64) float64 {
		if pos == 0 {
			return 0
		}
		return float64(now-pos) / 1000
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, topic := range names {
		if m.named[topic] != nil { // otherwise its series have gone meanwhile
			m.pending.WithLabelValues(topic).Set(float64(pending[topic].N))
			m.oldest.WithLabelValues(topic).Set(late(oldest[topic]))
		}
	}
	m.oldest.WithLabelValues(otherTargets).Set(late(others))
	return nil
}

func (m *targetMetrics) measureDue(ctx context.Context, from waiting, now int64) error {
	longest := dueWithin[len(dueWithin)-1].span
	steps, _, err := from.Forecast(ctx, look.ForecastFilter{From: now - dueBacklog.Milliseconds(), To: now + longest.Milliseconds(), Step: time.Minute.Milliseconds(), Within: dueCounted})
	if err != nil {
		return err
	}
	for _, within := range dueWithin {
		n := int64(0)
		for _, s := range steps {
			if s.At < now+within.span.Milliseconds() {
				n += s.Count
			}
		}
		m.due.WithLabelValues(within.label).Set(float64(n))
	}
	return nil
}

// forget shows nothing of what waits.
func (m *targetMetrics) forget() {
	m.due.Reset()
	m.pending.Reset()
	m.oldest.Reset()
}
