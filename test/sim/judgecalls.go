package sim

import (
	"cmp"
	"slices"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// judgeCalls compares what the receivers got with what was asked for, and with what the results topic tells.
func (w *world) judgeCalls(h *history.History) {
	told := map[string][]schemas.Event{}
	for _, a := range w.seen.all() {
		if a.r.Topic == schemas.TopicResults && isCall(a.r) {
			e, _ := schemas.DecodeEvent(a.r)
			told[e.ID] = append(told[e.ID], e)
		}
	}
	keys := map[string]string{}
	for id, q := range w.calls.asked {
		w.judgeCall(h, q, w.calls.arrivals[id], told[id])
		for _, a := range w.calls.arrivals[id] {
			if other, used := keys[a.key]; used && other != id {
				w.find("callbacks", "%s and %s share a delivery key", id, other)
			}
			keys[a.key] = id
		}
	}
}

func (w *world) judgeCall(h *history.History, q *askedCall, arrivals []callArrival, told []schemas.Event) {
	w.judgeArrivals(h, q, arrivals)
	// As they happened: while the results topic is silent, they wait at several dispatchers, and come in any order.
	slices.SortStableFunc(told, func(a, b schemas.Event) int { return cmp.Compare(a.At, b.At) })
	var end *schemas.Event
	for _, e := range told {
		switch e.State {
		case schemas.StateDispatched, schemas.StateDead, schemas.StateCancelled:
			// Who takes over sends again what was delivered and not settled yet, and receivers in trouble may not take it this time.
			failedAgain := e.State == schemas.StateDead && w.deaf > 0 && !w.healthy()
			if end != nil && end.State != e.State && !failedAgain {
				w.find("callbacks", "%s ended %s and %s", q.id, end.State, e.State)
			}
			end = &e
		case schemas.StateRejected:
			w.find("callbacks", "%s was rejected: %s", q.id, e.Reason)
		}
	}
	if end == nil {
		w.find("callbacks", "%s never ended", q.id)
		return
	}
	answered := func(these ...reply) bool {
		return slices.ContainsFunc(arrivals, func(a callArrival) bool { return slices.Contains(these, a.answer) })
	}
	switch {
	case end.State == schemas.StateCancelled && !q.cancelled:
		w.find("callbacks", "%s was cancelled, and nobody asked for it", q.id)
	case end.State == schemas.StateCancelled && len(arrivals) > 0:
		w.find("callbacks", "%s was answered cancelled at %d, and had come at %d", q.id, end.At, arrivals[0].at)
	case q.cancelled && !slices.ContainsFunc(told, func(e schemas.Event) bool {
		return e.State == schemas.StateCancelled || e.State == schemas.StateTooLate
	}):
		w.find("callbacks", "the cancel of %s was not answered", q.id)
	case end.State == schemas.StateDispatched && !answered(answerOK, answerSlowly):
		w.find("callbacks", "%s is said to be delivered, and no request was answered so", q.id)
	case end.State == schemas.StateDead && end.Kind == schemas.KindCallback && !answered(answerNo, answerElsewhere):
		w.find("callbacks", "%s died by an answer that was never given: %s", q.id, end.Reason)
	}
	if w.healthy() && w.deaf == 0 && end.State != schemas.StateCancelled {
		w.judgeScript(q, arrivals, *end)
	}
}

// judgeArrivals looks at each request at the receiver by itself, and at its copies.
func (w *world) judgeArrivals(h *history.History, q *askedCall, arrivals []callArrival) {
	first := map[int]callArrival{} // of each attempt
	for _, a := range arrivals {
		before, again := first[a.attempt]
		switch earlier, retry := first[a.attempt-1]; {
		case a.attempt < 1 || a.attempt > callAttempts:
			w.find("callbacks", "%s has attempt %d", q.id, a.attempt)
		case a.at < q.due:
			w.find("callbacks", "%s came %d ms early", q.id, q.due-a.at)
		case retry && w.deaf == 0 && a.at < earlier.at+q.backoff.Milliseconds():
			w.find("callbacks", "attempt %d of %s came %d ms after the one before: its backoff is %v", a.attempt, q.id, a.at-earlier.at, q.backoff)
		case retry && earlier.answer == answerLater && w.healthy() && w.deaf == 0 && a.at < earlier.at+callPause.Milliseconds():
			w.find("callbacks", "attempt %d of %s came %d ms after an answer that asked for %v", a.attempt, q.id, a.at-earlier.at, callPause)
		}
		if !again {
			first[a.attempt] = a
			continue
		}
		if before.key != a.key {
			w.find("callbacks", "copies of attempt %d of %s carry different keys", a.attempt, q.id)
		}
		// A connection that was closed without an answer is tried once more at once. And no slot waits for a slow answer when it
		// moves: its next owner sends the request again.
		moved := (a.answer == answerSlowly || a.answer == answerTooLate) && (!w.healthy() || len(w.growth) > 0)
		if a.answer != answerNothing && w.deaf == 0 && !moved && !explains(h, before.at, a.at) {
			w.find("callbacks", "attempt %d of %s came at %d and at %d, and no fault explains it", a.attempt, q.id, before.at, a.at)
		}
	}
	for n, a := range first {
		for m, b := range first {
			if n < m && a.key == b.key {
				w.find("callbacks", "attempts %d and %d of %s have one key", n, m, q.id)
			}
		}
	}
}

// explains tells whether a fault may have doubled what came at first and at second.
func explains(h *history.History, first, second int64) bool {
	const aftermath = 30_000
	return slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
		return f.Doubles && f.Start <= second && f.End+aftermath >= first
	})
}

// judgeScript holds the end against what the receiver's answers demand, where nothing had failed.
func (w *world) judgeScript(q *askedCall, arrivals []callArrival, end schemas.Event) {
	state, kind, made := schemas.StateDead, schemas.KindDead, callAttempts
	for n := 1; n <= callAttempts; n++ {
		a := w.answerOf(q.n, n)
		if a == answerOK || a == answerSlowly {
			state, kind, made = schemas.StateDispatched, "", n
			break
		}
		if a == answerNo || a == answerElsewhere {
			kind, made = schemas.KindCallback, n
			break
		}
	}
	last := 0
	for _, a := range arrivals {
		last = max(last, a.attempt)
	}
	if end.State != state || end.Kind != kind || end.Attempt != made || last != made {
		w.find("callbacks", "%s ended %s %s at attempt %d (%s), and the last that came was %d: its answers demand %s %s at attempt %d", q.id, end.State, end.Kind, end.Attempt, end.Reason, last, state, kind, made)
	}
}

// healthy says that nothing but the receivers may fail.
func (w *world) healthy() bool { return w.faults == 0 && !w.silent && w.moves == 0 && w.stepsBack == 0 }
