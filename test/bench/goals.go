package bench

import (
	"fmt"
	"slices"
	"strings"
)

// goal is one of notyet's goals.
type goal struct {
	what, want string
	figure     string
	limit      float64 // at most, or at least if more is better
	more       bool
	unit       string
	match      func(Result) bool
	// over, if set, divides the figure by another one, in percent or times.
	over func(Lines) float64
}

func shape(shape string, tasks int) func(Result) bool {
	return func(r Result) bool { return r.Label == "" && r.Shape == shape && (tasks == 0 || r.Tasks == tasks) }
}

func variant(v string) func(Result) bool {
	return func(r Result) bool { return r.Label == "" && r.Shape == "sustained" && r.Variant == v }
}

func callbacks(v string) func(Result) bool {
	return func(r Result) bool { return r.Label == "" && r.Shape == "callbacks" && r.Variant == v }
}

func spreadTimers(r Result) bool {
	return r.Label == "" && r.Shape == "timers" && r.Variant == "jitter 1s"
}

func labelled(label, shape string) func(Result) bool {
	return func(r Result) bool { return r.Label == label && r.Shape == shape }
}

func plain(l Lines) float64 { return medianOr0(l.find("delivered_per_s", variant("plain"))) }

// asynqDrain returns asynq's best rate: the highest drain of its bursts.
func asynqDrain(l Lines) float64 {
	best := 0.0
	for _, p := range l.Peers {
		if p.Peer == "asynq" {
			best = max(best, p.Drain)
		}
	}
	return best
}

func medianOr0(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return median(sorted)
}

var goals = []goal{
	{what: "steady, 2,000/s at random milliseconds", want: "p99 at most Kafka's own p99 + 3 ms", figure: "late_p99_over_raw_ms", limit: 3, unit: "ms over it", match: shape("steady", 0)},
	{what: "20,000 due in one second", want: "p99 at most 100 ms late", figure: "late_p99_ms", limit: 100, unit: "ms", match: shape("burst", 20_000)},
	{what: "100,000 due in one second", want: "p99 at most 250 ms late", figure: "late_p99_ms", limit: 250, unit: "ms", match: shape("burst", 100_000)},
	{what: "1,000,000 due in one second", want: "drained at 0.5 of Kafka's own rate or more", figure: "drain_to_raw", limit: 0.5, more: true, unit: "of Kafka's rate", match: shape("burst", 1_000_000)},
	{what: "intake until durable and visible", want: "0.6 of the database's own rate or more", figure: "ingest_to_raw", limit: 0.6, more: true, unit: "of the database's rate", match: shape("ingest", 0)},
	{what: "sustained: scheduled, delivered, settled", want: "20,000/s or more", figure: "delivered_per_s", limit: 20_000, more: true, unit: "/s", match: variant("plain")},
	{what: "the same beside asynq", want: "3 times asynq or more", figure: "delivered_per_s", limit: 3, more: true, unit: "times", match: variant("plain"), over: asynqDrain},
	{what: "sustained with reports: succeeded", want: "0.5 of the plain case or more", figure: "succeeded_per_s", limit: 0.5, more: true, unit: "of plain", match: variant("report"), over: plain},
	{what: "sustained with ids and final events", want: "0.5 of the plain case or more", figure: "delivered_per_s", limit: 0.5, more: true, unit: "of plain", match: variant("ids"), over: plain},
	{what: "sustained with priorities", want: "0.5 of the plain case or more", figure: "delivered_per_s", limit: 0.5, more: true, unit: "of plain", match: variant("priorities"), over: plain},
	{what: "100,000 timers of every minute, due in one second", want: "p99 at most 250 ms late", figure: "late_p99_ms", limit: 250, unit: "ms", match: spreadTimers},
	{what: "HTTP callbacks, 1,000/s", want: "p99 at most 25 ms late", figure: "late_p99_ms", limit: 25, unit: "ms", match: callbacks("")},
	{what: "the same beside an origin that does not answer", want: "p99 below 100 ms late", figure: "late_p99_ms", limit: 100, unit: "ms", match: callbacks("hanging")},
	{what: "a backlog of pending tasks: CPU a task", want: "at most 1.2 times without", figure: "cpu_ratio", limit: 1.2, unit: "times", match: shape("backlog", 0)},
	{what: "a backlog of pending tasks: intake", want: "0.85 of the rate without or more", figure: "intake_ratio", limit: 0.85, more: true, unit: "of the rate without", match: shape("backlog", 0)},
	{what: "30 days of history: CPU a task", want: "at most 1.1 times without", figure: "cpu_ratio", limit: 1.1, unit: "times", match: shape("history", 0)},
	{what: "idle: scanner's CPU", want: "at most 1 % of a core", figure: "cpu_scanner_percent", limit: 1, unit: "%", match: shape("idle", 0)},
	{what: "idle: dispatcher's CPU", want: "at most 1 % of a core", figure: "cpu_dispatcher_percent", limit: 1, unit: "%", match: shape("idle", 0)},
	{what: "idle: scanner's memory", want: "at most 60 MB", figure: "memory_scanner_mb", limit: 60, unit: "MB", match: shape("idle", 0)},
	{what: "idle: dispatcher's memory", want: "at most 60 MB", figure: "memory_dispatcher_mb", limit: 60, unit: "MB", match: shape("idle", 0)},
	{what: "`notyet dev`: start to ready", want: "at most 1 s", figure: "ready_s", limit: 1, unit: "s", match: labelled("dev", "start")},
	{what: "`notyet dev`: sustained", want: "3,000/s or more", figure: "delivered_per_s", limit: 3000, more: true, unit: "/s", match: labelled("dev", "sustained")},
}

// row returns "" if nothing was measured.
func (g goal) row(l Lines) string {
	values := l.find(g.figure, g.match)
	if len(values) == 0 {
		return ""
	}
	if g.over != nil {
		base := g.over(l)
		if base == 0 {
			return ""
		}
		for i := range values {
			values[i] /= base
		}
	}
	m := median(values)
	text := strings.TrimSpace(digits(m) + " " + g.unit)
	if len(values) > 1 {
		text += fmt.Sprintf(" (%s to %s, %d runs)", digits(values[0]), digits(slices.Max(values)), len(values))
	}
	met := "no"
	if g.more && m >= g.limit || !g.more && m <= g.limit {
		met = "yes"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", g.what, g.want, text, digits(m/g.limit), met)
}
