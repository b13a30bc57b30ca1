package check

import (
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/notyet/notyet/test/chaos/history"
)

// linearSteps bounds the search for an order in one life. A life without a verdict by then is counted as undecided.
const linearSteps = 200_000

// judgeIdentity looks for one order of everything that happened to an identity, in which each
// request, delivery, answer and look has the effect that the contract gives it (spec.go). An order
// must keep what is known of time: who ended before the other began comes first, and requests
// take effect in the order of the intake. The sums of a run can be right although no such order exists.
func (c *checker) judgeIdentity(l *life) {
	if c.unordered(l) {
		c.Figures.Undecided++
		return
	}
	h := &identity{checker: c, life: l, answers: map[answer]*told{}}
	h.gather()
	steps := 0
	model := (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{version: -1, told: string(make([]byte, len(h.answers)))}} },
		Step: func(s, input, _ any) []any {
			if steps++; steps > linearSteps {
				return nil
			}
			return h.step(s.(state), input)
		},
		Equal: func(a, b any) bool { return a == b },
	}).ToModel()
	verdict, info := porcupine.CheckOperationsVerbose(model, h.operations, 0)
	switch {
	case verdict == porcupine.Ok:
		c.Figures.Linear++
	case steps > linearSteps:
		c.Figures.Undecided++
	default:
		c.about(l, "linear", "no order of its requests, deliveries, answers and looks explains them: %s", h.explain(info))
	}
}

// unordered reports whether a life cannot be judged: it was decided twice, or it has a replay.
func (c *checker) unordered(l *life) bool {
	return c.decidedTwice(l) || slices.ContainsFunc(l.deliveries, func(d *history.Delivery) bool { return d.Replay > 0 })
}

// decidedTwice reports whether the database was set back in a life.
func (c *checker) decidedTwice(l *life) bool {
	last := l.ops[len(l.ops)-1].Accepted
	for _, d := range l.deliveries {
		last = max(last, d.At)
	}
	for _, e := range l.events {
		last = max(last, e.At)
	}
	return slices.ContainsFunc(c.faults, func(f *history.Fault) bool {
		return f.Rewinds && f.Start <= last+c.bounds.Recovery && f.End+c.bounds.Recovery >= l.ops[0].Accepted
	})
}

// identity is a life as operations.
type identity struct {
	*checker
	*life
	answers    map[answer]*told
	operations []porcupine.Operation
}

// answer is what an event says. The due times of some states are not known to the judge, and left 0.
type answer struct {
	state string
	due   int64
}

// told is how often an answer came, and when last.
type told struct {
	index, count int
	last         int64
}

// judged are the states that the specification gives, and whether each one must have been told.
var judged = map[string]bool{"scheduled": true, "merged": true, "kept": true, "stale": true, "rejected": true, "cancelled": true, "too_late": true, "not_found": true, "fired": true, "succeeded": false, "dead": false}

func answerOf(state string, due int64) answer {
	switch state {
	case "rejected", "not_found", "dead":
		due = 0
	}
	return answer{state, due}
}

// Operations of an identity. A request of a client is one too.
type (
	request struct {
		at int
		*history.Op
	}
	death struct{}
	end   struct{}
)

const forever = math.MaxInt64

func (h *identity) gather() {
	for _, e := range h.events {
		if _, ok := judged[e.State]; !ok {
			continue
		}
		a := answerOf(e.State, e.Due)
		if h.answers[a] == nil {
			h.answers[a] = &told{index: len(h.answers)}
		}
		t := h.answers[a]
		t.count++
		t.last = max(t.last, e.At)
	}
	for i, o := range h.life.ops {
		h.add(request{i, o}, o.Accepted, forever) // its answer says by when: see state.now
	}
	last := map[string]int64{}
	for _, d := range h.deliveries {
		last[d.Key] = d.At
	}
	for _, d := range h.deliveries {
		if until, first := last[d.Key]; first { // its outcome is known with its last copy at the latest
			delete(last, d.Key)
			h.add(d, min(h.claimable(d.Due, until), d.At), until)
		}
	}
	for _, r := range h.reports {
		h.add(r, r.At, forever)
	}
	h.deaths()
	for i, g := range h.looks {
		if i > 0 && i < len(h.looks)-1 && g.Same(h.looks[i-1]) && g.Same(h.looks[i+1]) {
			continue // it shows nothing that its neighbours do not
		}
		h.add(g, g.Call, g.Return)
	}
	h.add(end{}, forever-1, forever)
}

func (h *identity) add(input any, call, ret int64) {
	h.operations = append(h.operations, porcupine.Operation{ClientId: len(h.operations), Input: input, Call: min(call, ret), Return: ret})
}

// deaths adds when the task died: before it was told, and not known better. A letter is dated before the commit that makes it true.
// A death that is only told has no letter here.
func (h *identity) deaths() {
	until, count := int64(forever), 0
	if t := h.answers[answer{"dead", 0}]; t != nil {
		until, count = t.last+h.bounds.Clock, 1
	}
	if n := len(slices.DeleteFunc(slices.Clone(h.letters), func(d *history.Letter) bool { return d.Kind == "rejected" })); n > 0 {
		count = n
	}
	for range count {
		h.add(death{}, 0, until)
	}
}

// claimable returns the earliest time at which a task that is due then may have been claimed.
func (h *identity) claimable(due, until int64) int64 {
	at := due - h.bounds.Ahead - h.bounds.Clock
	if h.disturbed(at, until) {
		return 0
	}
	return at
}

// explain names the operations that the longest order leaves out.
func (h *identity) explain(info porcupine.LinearizationInfo) string {
	var longest []int
	for _, part := range info.PartialLinearizations() {
		for _, order := range part {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	text := fmt.Sprintf("the longest has %d of %d, without", len(longest), len(h.operations))
	for i, o := range h.operations {
		if !slices.Contains(longest, i) {
			text += " [" + describe(o.Input) + "]"
		}
	}
	return text
}

func describe(input any) string {
	switch o := input.(type) {
	case request:
		return fmt.Sprintf("%s %s %d, version %d, due %d", o.Kind, o.IfExists, o.N, o.Version, o.DueAt())
	case *history.Delivery:
		return fmt.Sprintf("attempt %d of request %d, due %d, published at %d", o.Attempt, o.Op, o.Due, o.At)
	case *history.Report:
		return fmt.Sprintf("report %s on attempt %d at %d", o.Status, o.Attempt, o.At)
	case *history.Look:
		return fmt.Sprintf("a look from %d to %d: %s, request %d, due %d", o.Call, o.Return, o.State, o.Op, o.Due)
	case death:
		return "its death"
	}
	return "its end"
}
