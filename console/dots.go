package console

import (
	"slices"
	"strconv"
	"time"

	"github.com/notyet/notyet/api"
)

// dot is a run of a timer, as a sign that needs no colour to be told from others.
type dot struct {
	runKind
	Path string // its task, or its line in the table when it has none
	Says string
}

type runKind struct{ Sign, Kind string }

// runKinds are the signs, in the order of their key.
var runKinds = []runKind{{"●", "sent"}, {"◐", "late"}, {"○", "missed"}, {"✕", "failed"}, {"◌", "held"}, {"?", "unknown"}}

// kindOf is what became of a run. One that people have cancelled was missed, and one that waits for
// its delivery or for its next attempt is held.
func kindOf(run *api.AuditedRun) string {
	switch run.State {
	case "missed", "cancelled":
		return "missed"
	case "dead", "stopped":
		return "failed"
	case "pending", "claimed", "waiting_retry":
		return "held"
	case "delivered", "succeeded", "waiting_report":
		if run.Late > 0 {
			return "late"
		}
		return "sent"
	}
	return "unknown"
}

// newDots are the runs, the oldest first.
func newDots(zone *time.Location, topic string, latestFirst []api.AuditedRun) (out []dot) {
	for i := range latestFirst {
		run := &latestFirst[i]
		d := dot{Path: runPath(topic, run), Says: clockIn(zone, run.At) + ": " + run.State}
		d.runKind = runKinds[slices.IndexFunc(runKinds, func(k runKind) bool { return k.Kind == kindOf(run) })]
		if run.Reason != "" {
			d.Says += ", " + run.Reason
		}
		if run.Late > 0 {
			d.Says += ", at least " + lasting(float64(run.Late)) + " late"
		}
		out = append(out, d)
	}
	slices.Reverse(out)
	return out
}

// runPath leads to the task of a run. One that was never made has none, and no due time.
func runPath(topic string, run *api.AuditedRun) string {
	if run.Due == 0 {
		return "#run-" + strconv.FormatInt(run.At, 10)
	}
	return taskPath(topic, run.ID)
}
