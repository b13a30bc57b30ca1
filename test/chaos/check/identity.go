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
	if slices.ContainsFunc(l.deliveries, func(d *history.Delivery) bool { return d.Replay > 0 }) || max(len(l.reports), len(l.deliveries)) > 64 {
		c.Figures.Undecided++
		return
	}
	h := &identity{checker: c, life: l, answers: map[answer]*told{}, setbacks: c.setbacksOf(l)}
	h.gather()
	steps := 0
	model := (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{row: row{version: -1}, told: string(make([]byte, len(h.answers)))}} },
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

// identity is a life as operations.
type identity struct {
	*checker
	*life
	requests   []request
	sent       []publication
	answers    map[answer]*told
	setbacks   []history.Setback // in which the database forgot something of this life
	operations []porcupine.Operation
}

// answer is what an event says. The due times of some states are not known to the judge, and left 0.
type answer struct {
	state   string
	due     int64
	request string // the place of the request that it answers; "": none
}

// told is how often an answer came, and when last.
type told struct {
	index, count int
	last         int64
}

// judged are the states that the specification gives, and whether each one must have been told.
var judged = map[string]bool{"scheduled": true, "merged": true, "kept": true, "stale": true, "rejected": true, "cancelled": true, "too_late": true, "not_found": true, "fired": true, "stopped": true, "succeeded": false, "dead": false}

func answerOf(state string, due int64, request string) answer {
	switch state {
	case "rejected", "not_found", "dead":
		due = 0
	}
	return answer{state, due, request}
}

// answerTo returns the answer to a request, if it came.
func (h *identity) answerTo(r request, state string, due int64) *told {
	return h.answers[answerOf(state, due, r.place)]
}

// Operations of an identity. A request of a client is one too.
type (
	request struct {
		at    int
		place string // as its answers name it
		*history.Op
	}
	publication struct {
		*history.Delivery
		key  int  // counts the delivery keys
		copy bool // another record has this key and came before
	}
	heard struct {
		at int
		*history.Report
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
		a := answerOf(e.State, e.Due, e.Request)
		if h.answers[a] == nil {
			h.answers[a] = &told{index: len(h.answers)}
		}
		t := h.answers[a]
		t.count++
		t.last = max(t.last, e.At)
	}
	for i, o := range h.life.ops {
		h.requests = append(h.requests, request{i, h.place(o), o})
		h.add(h.requests[i], o.Accepted, forever) // its answer says by when: see state.now
	}
	h.publications()
	for i, r := range h.reports {
		h.add(heard{i, r}, r.At, forever)
	}
	h.deaths()
	h.readAgain()
	for i, g := range h.looks {
		if i > 0 && i < len(h.looks)-1 && g.Same(h.looks[i-1]) && g.Same(h.looks[i+1]) {
			continue // it shows nothing that its neighbours do not
		}
		h.add(g, g.Call, g.Return)
	}
	h.add(end{}, forever-1, forever)
}

// publications are the deliveries. Where the database forgot nothing, the copies of one are one. Where it did, each may be of a claim of its own.
func (h *identity) publications() {
	last, keys := map[string]int64{}, map[string]int{}
	for _, d := range h.deliveries {
		last[d.Key] = d.At
	}
	for _, d := range h.deliveries {
		until := last[d.Key] // its outcome is known with its last copy at the latest
		key, copied := keys[d.Key]
		if !copied {
			key = len(keys)
			keys[d.Key] = key
		}
		if p := (publication{d, key, copied}); !copied || len(h.setbacks) > 0 {
			h.sent = append(h.sent, p)
			h.add(p, h.claimed(d, until), until)
		}
	}
}

// claimed returns the earliest time at which a delivery may have been claimed.
func (h *identity) claimed(d *history.Delivery, until int64) int64 {
	at := min(h.claimable(d.Due, until), d.At)
	for _, b := range h.setbacks {
		if h.calmTime(nil, b.Back, d.At) > fromMemory { // nobody has it in memory still
			at = max(at, b.Back+1)
		}
	}
	return at
}

func (h *identity) add(input any, call, ret int64) {
	h.operations = append(h.operations, porcupine.Operation{ClientId: len(h.operations), Input: input, Call: min(call, ret), Return: ret})
}

// deaths adds when the task died: before it was told, and not known better. A letter is dated before the commit that makes it true.
// A death that is only told has no letter here.
func (h *identity) deaths() {
	until, count := int64(forever), 0
	if t := h.answers[answer{state: "dead"}]; t != nil {
		until, count = t.last+h.bounds.Clock, 1
	}
	if n := len(slices.DeleteFunc(slices.Clone(h.letters), func(d *history.Letter) bool { return d.Kind == "rejected" })); n > 0 {
		count = n
	}
	for range count {
		h.add(death{}, 0, until)
	}
	if count > 0 {
		for i, b := range h.setbacks {
			h.add(again{i, death{}}, b.Gone, forever)
		}
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
	case publication:
		return fmt.Sprintf("attempt %d of request %d, due %d, published at %d", o.Attempt, o.Op, o.Due, o.At)
	case heard:
		return fmt.Sprintf("report %s on attempt %d at %d", o.Status, o.Attempt, o.At)
	case *history.Look:
		return fmt.Sprintf("a look from %d to %d: %s, request %d, due %d", o.Call, o.Return, o.State, o.Op, o.Due)
	case death:
		return "its death"
	case kept:
		return fmt.Sprintf("what set-back %d leaves", o.n)
	case gone:
		return fmt.Sprintf("set-back %d", o.n)
	case again:
		return fmt.Sprintf("after set-back %d again: %s", o.setback, describe(o.input))
	}
	return "its end"
}
