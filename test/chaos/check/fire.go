package check

import (
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// decisions are the answers to a cancel or a fire that was not stale.
var decisions = []string{"cancelled", "fired", "too_late", "not_found"}

// answerInOneWay checks that who won, the delivery or the request, was answered in one way only. A life has at most one cancel
// and one fire.
func (w *walk) answerInOneWay() {
	cancels, fires := w.only(history.Cancel), w.only(history.Fire)
	if w.decidedTwice(w.life) || cancels == nil && fires == nil {
		return
	}
	expected := map[string]int{}
	if cancels != nil {
		expected[w.answerTo()]++
	}
	if fires != nil {
		expected[w.answerToFire()]++
	}
	for _, state := range decisions {
		told := 0
		for _, e := range w.events {
			if e.State == state {
				told++
			}
		}
		switch {
		case told > 0 && expected[state] == 0:
			w.about(w.life, "I5", "%s was answered, and something else too", state)
		case told < expected[state]:
			w.about(w.life, "I1", "%s is the answer to %d requests, and came %d times", state, expected[state], told)
		}
	}
}

// only returns the request of this kind.
func (l *life) only(kind string) *history.Op {
	i := slices.IndexFunc(l.ops, func(o *history.Op) bool { return o.Kind == kind && !o.Invalid })
	if i < 0 {
		return nil
	}
	return l.ops[i]
}

// answerToFire returns the answer to the only fire of a life. too_late and not_found may be the answer to its cancel instead.
func (l *life) answerToFire() string {
	cancel, fire := l.only(history.Cancel), l.only(history.Fire)
	cancelledBefore := cancel != nil && slices.Index(l.ops, cancel) < slices.Index(l.ops, fire) && l.hasEvent("cancelled")
	switch {
	case l.hasEvent("fired"):
		return "fired"
	case l.hasEvent("not_found") && (cancelledBefore || !l.hasEvent("too_late")):
		return "not_found"
	case l.hasEvent("too_late"):
		return "too_late"
	case l.hasEvent("stale"):
		return "stale"
	}
	return "nothing"
}

// fire checks a request to deliver now. The task goes at once and is due at the instant of the fire, or the answer says that
// there was nothing to fire.
func (w *walk) fire(o *history.Op) {
	answer := w.answerToFire()
	w.answered(o, answer)
	switch answer {
	case "fired":
		w.isFired(o, w.event("fired"))
	case "nothing":
		w.about(w.life, "I1", "fire %d was not answered", o.N)
	}
}

// answered checks the answer to a cancel or a fire against what was known of the task.
func (w *walk) answered(o *history.Op, answer string) {
	switch answer {
	case "cancelled", "fired", "stale":
		if w.outdated(o) != (answer == "stale") {
			w.about(w.life, "I6", "%s was answered to %s %d of version %d, though %d was known", answer, o.Kind, o.N, o.Version, w.version)
		}
	case "too_late":
		if w.last == nil || !w.ended(w.last) {
			w.about(w.life, "I5", "too_late was answered, and nothing was delivered before or after")
		}
	case "not_found":
		if w.last != nil {
			w.about(w.life, "I5", "not_found was answered, and request %d came before", w.last.N)
		}
	}
}

func (w *walk) isFired(o *history.Op, answer *history.Event) {
	if w.last == nil {
		w.about(w.life, "I5", "fired was answered, and there was no task")
		return
	}
	// The fire of a task that waits for a retry makes the retry now, and the due time stays.
	retry := w.event("retrying") != nil && answer.Due == w.dueOf(w.last)
	if answer.Due < o.Accepted-w.bounds.Clock && !retry {
		w.about(w.life, "I2", "fire %d took effect at %d, %d ms before it was asked for", o.N, answer.Due, o.Accepted-answer.Due)
	}
	if well := w.calmTime(nil, o.Accepted, answer.Due); well > w.bounds.Recovery {
		w.about(w.life, "I12", "fire %d took effect after %d ms, of which nothing was broken for %d", o.N, answer.Due-o.Accepted, well)
	}
	w.fired[w.last.N] = answer
	if o.Version >= 0 {
		w.version = o.Version
	}
	for _, d := range w.deliveries {
		// What was sent before the fire took effect, and was not known to have been sent.
		early := d.Due == w.last.DueAt() && d.At <= answer.At && w.cause(d.At, answer.At) != nil
		again := w.eventAt("fired", d.Due) != nil && w.decidedTwice(w.life) // the second answer counts
		if d.Op == w.last.N && d.Due != answer.Due && !early && !again && !w.rewound(answer.Since(), d.At) {
			w.about(w.life, "I5", "request %d was published at %d as due at %d, though it was fired at %d", d.Op, d.At, d.Due, answer.Due)
		}
	}
}

// dueOf returns when the request's task was due: as requested, or when it was fired.
func (w *walk) dueOf(o *history.Op) int64 {
	if e := w.fired[o.N]; e != nil {
		return e.Due
	}
	return o.DueAt()
}
