package check

import (
	"fmt"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// state is what the specification knows of an identity. It is written from the contract, not from the
// product's own rules, so that a mistake in those is found. It is comparable: two equal states have
// the same future.
type state struct {
	row
	now   int64  // the instant that has come at the least: the latest beginning of what has happened so far
	told  string // how often each answer was explained
	saved row    // what the next set-back leaves: see setback.go
	backs int    // twice the number of set-backs, and one more where saved is what the next one leaves
	redo  int    // how many requests have been read again since the last set-back
}

// row is what the database knows of an identity.
type row struct {
	next     int    // how many requests have been decided
	heard    uint64 // the reports that have been read
	sent     uint64 // the deliveries that are known to have been made: see publication
	phase    phase
	end      ending
	op       int64  // the request that made the task what it is
	merged   string // the requests whose values are combined in it
	due      int64
	created  int64
	version  int64
	attempt  int
	sentAt   int64 // when its latest attempt was published
	promised bool  // too_late was answered while it stood in line
	byCancel bool  // no task was known, only a cancel with a version
}

type phase int8

const (
	unknown phase = iota
	pending
	waiting // for a report or another attempt
	ended
)

type ending int8

const (
	delivered ending = iota
	succeeded
	cancelled
	tombstone // cancelled with a version
	stopped
	halted // stopped with a version
	died
)

// step returns what may become of a state by one operation; none: the operation is impossible now.
func (h *identity) step(s state, input any) (out []any) {
	var next []state
	switch o := input.(type) {
	case request:
		s.now = max(s.now, o.Accepted)
		next = h.decide(s, o)
	case publication:
		s.now = max(s.now, h.claimed(o.Delivery, o.At))
		if next = h.deliver(s, o); h.mayCopy(s, o) {
			next = append(next, s)
		}
	case heard:
		s.now = max(s.now, o.At)
		next = h.hear(s, o)
	case death:
		next = h.die(s)
	case *history.Look:
		s.now = max(s.now, o.Call)
		next = h.look(s, o)
	case kept:
		next = h.save(s, o)
	case gone:
		next = h.setBack(s, o)
	case again:
		next = h.again(s, o)
	default:
		next = h.close(s)
	}
	for _, n := range next {
		out = append(out, n)
	}
	return out
}

// decide is a request's turn.
func (h *identity) decide(s state, r request) (out []state) {
	if r.at < s.next && s.backs > 1 {
		return []state{s} // it was read again already
	}
	if r.at != s.next {
		return nil
	}
	s.next++
	out = append(out, h.refused(s, r)...)
	if r.Invalid {
		return out
	}
	for _, s := range h.forget(s, r.Accepted) {
		known := s.phase != unknown
		switch {
		case known && r.Version >= 0 && (r.Version < s.version || r.Version == s.version && s.isVersioned() && r.Kind == history.Schedule):
			out = append(out, h.answer(s, r, "stale", s.due)...)
		case r.Kind == history.Schedule:
			out = append(out, h.schedule(s, r)...)
		case r.Kind == history.Cancel:
			out = append(out, h.cancel(s, r)...)
		case r.Kind == history.Stop:
			out = append(out, h.stop(s, r)...)
		default:
			out = append(out, h.fire(s, r)...)
		}
	}
	return out
}

// isVersioned says that a cancel or stop with a version is in force.
func (s state) isVersioned() bool {
	return s.phase == ended && (s.end == tombstone || s.end == halted)
}
func (s state) isStopped() bool { return s.phase == ended && (s.end == stopped || s.end == halted) }
func (s state) isCancelled() bool {
	return s.phase == ended && (s.end == tombstone || s.end == cancelled)
}

// refused is a request that is rejected: a bad one, one beyond a quota, or one too many that waits for the outcome of
// a delivery. A rejection concerns no task, so its answer may come while the requests before it wait.
func (h *identity) refused(s state, r request) []state {
	t := h.answerTo(r, "rejected", 0)
	switch {
	case t == nil:
		return nil
	case int(s.told[t.index]) >= t.count:
		return h.untold(s)
	}
	return append(h.untold(s), s.tell(t))
}

// forget returns the state, and beside it the unknown one if the retention of what has ended may be over.
func (h *identity) forget(s state, now int64) []state {
	if keep := h.h.Run.Retention; keep == 0 || s.phase != ended || now < max(s.due, s.sentAt)+keep {
		return []state{s}
	}
	unknown := s
	unknown.row = row{next: s.next, heard: s.heard, sent: s.sent, version: -1}
	return []state{s, unknown}
}

func (h *identity) schedule(s state, r request) []state {
	if r.IfExists == history.Once && s.phase != unknown && !s.byCancel {
		return h.answer(s, r, "kept", s.due)
	}
	if s.phase == waiting {
		return nil // it waits until the attempts have ended
	}
	if s.phase == pending && (r.IfExists == history.Keep || r.IfExists == history.Once) {
		return h.answer(s, r, "kept", s.due)
	}
	next := s
	next.row = row{next: s.next, heard: s.heard, sent: s.sent, phase: pending, op: r.N, due: r.DueAt(), created: r.Accepted, version: r.Version, sentAt: s.sentAt}
	if r.Version < 0 && s.phase != unknown {
		next.version = s.version
	}
	name := "scheduled"
	if r.IfExists == history.Merge {
		if s.phase == pending {
			name, next.created, next.merged = "merged", s.created, s.merged
		}
		if r.Merge != "" {
			next.merged += fmt.Sprint(r.N, " ")
		}
		if r.MaxWait > 0 {
			next.due = min(next.due, next.created+r.MaxWait)
		}
	}
	if s.phase == ended && h.overtaken(s, r, name, next.due) {
		return nil
	}
	return h.answer(next, r, name, next.due)
}

// overtaken reports whether a request was answered before the delivery that it had to wait for was published.
func (h *identity) overtaken(s state, r request, name string, due int64) bool {
	t := h.answerTo(r, name, due)
	return h.tells(r, name) && t != nil && s.sentAt > t.last+h.bounds.Clock && h.cause(t.last, s.sentAt) == nil
}

func (h *identity) cancel(s state, r request) (out []state) {
	next := s
	next.phase, next.end = ended, cancelled
	if r.Version >= 0 {
		next.end, next.version = tombstone, r.Version
	}
	switch {
	case s.phase == unknown && r.Version < 0:
		return h.answer(s, r, "not_found", 0)
	case s.phase == unknown:
		next.byCancel, next.due = true, 0
		return h.answer(next, r, "cancelled", 0)
	case s.phase == pending:
		if !s.promised {
			out = h.answer(next, r, "cancelled", s.due)
		}
		if r.Kind == history.Stop {
			return out
		}
		return append(out, h.promise(s, r)...)
	case s.isCancelled() && (r.Version < 0 || s.isVersioned() && r.Version == s.version):
		return h.answer(s, r, "cancelled", s.due)
	case s.isCancelled():
		return h.answer(next, r, "cancelled", s.due)
	}
	return h.answer(s, r, "too_late", s.due)
}

// stop is a cancel that also ends what waits for a report or another attempt. Of what is claimed it awaits the outcome.
func (h *identity) stop(s state, r request) []state {
	switch {
	case s.isStopped() && (r.Version < 0 || s.isVersioned() && r.Version == s.version):
		return h.answer(s, r, "stopped", s.due)
	case s.phase != waiting && !s.isStopped() && !(s.phase == pending && s.promised):
		return h.cancel(s, r)
	}
	next := s
	next.phase, next.end = ended, stopped
	if r.Version >= 0 {
		next.end, next.version = halted, r.Version
	}
	return h.answer(next, r, "stopped", s.due)
}

// promise answers too_late about a task in line: its owner has claimed it, and may yet give it back unsent.
func (h *identity) promise(s state, r request) []state {
	t := h.answerTo(r, "too_late", s.due)
	if t == nil || !s.promised && t.last < h.claimable(s.due, t.last) {
		return nil
	}
	s.promised = true
	return h.answer(s, r, "too_late", s.due)
}

func (h *identity) fire(s state, r request) (out []state) {
	switch {
	case s.phase == unknown || s.isCancelled():
		return h.answer(s, r, "not_found", 0)
	case s.phase == waiting: // for a report, or it is under way; or for another attempt, which then comes at once
		next := s
		if r.Version >= 0 {
			next.version = r.Version
		}
		return append(h.answer(next, r, "fired", s.due), h.answer(s, r, "too_late", s.due)...)
	case s.phase != pending:
		return h.answer(s, r, "too_late", s.due)
	}
	for a := range h.answers {
		if a.state == "fired" && a.request == r.place && a.due >= r.Accepted-h.bounds.Clock {
			next := s
			next.due = a.due
			if r.Version >= 0 {
				next.version = r.Version
			}
			out = append(out, h.answer(next, r, "fired", a.due)...)
		}
	}
	return append(out, h.promise(s, r)...)
}

// deliver is the claim of an attempt that was published.
func (h *identity) deliver(s state, d publication) []state {
	if s.phase != pending && s.phase != waiting || d.Op != s.op || d.Attempt != s.attempt+1 || d.Due != s.due || !sameRequests(d.Merged, s.merged) {
		return nil
	}
	s.attempt, s.sentAt, s.promised, s.sent = d.Attempt, d.At, false, s.sent|1<<d.key
	if o := h.checker.ops[s.op]; o.AckTimeout > 0 {
		s.phase = waiting
		return []state{s}
	}
	s.phase, s.end = ended, delivered
	return h.outcome(s, "succeeded", s.due)
}

// sameRequests compares a delivery's requests with those of a state. The values of a sum show no order.
func sameRequests(got []int64, merged string) bool {
	if len(got) == 0 {
		return merged == ""
	}
	text := ""
	for _, n := range got {
		text += fmt.Sprint(n, " ")
	}
	return text == merged
}

// hear is a report. One that does not fit changes nothing.
func (h *identity) hear(s state, r heard) []state {
	if s.heard&(1<<r.at) != 0 {
		return []state{s} // it was read again already
	}
	if s.heard |= 1 << r.at; s.phase != waiting || r.Status != "ok" || r.Attempt > s.attempt || !h.isAbout(r.Report, s.op) {
		return []state{s}
	}
	s.phase, s.end = ended, succeeded
	return h.outcome(s, "succeeded", s.due)
}

// isAbout reports whether a report may be about a request's task: about a delivery of it, or about none in particular.
func (h *identity) isAbout(r *history.Report, op int64) bool {
	return r.Delivery == "" || slices.ContainsFunc(h.deliveries, func(d *history.Delivery) bool { return d.Key == r.Delivery && d.Op == op })
}

// die is the death of a task, by whichever cause.
func (h *identity) die(s state) []state {
	if s.phase != pending && s.phase != waiting {
		return nil
	}
	s.phase, s.end = ended, died
	return h.outcome(s, "dead", 0)
}

// look is what a client was shown.
func (h *identity) look(s state, l *history.Look) (out []state) {
	for _, at := range h.forget(s, l.Return) {
		if h.shows(at, l) {
			return []state{s}
		}
	}
	return nil
}

func (h *identity) shows(s state, l *history.Look) bool {
	if l.State == "" || s.phase == unknown {
		return l.State == "" && s.phase == unknown
	}
	same := l.Due == s.due && (l.Op == 0 || l.Op == s.op) && (l.Version == s.version || l.Version < 0 && s.version < 0)
	sent := s.phase == waiting || s.phase == ended && (s.end == delivered || s.end == succeeded)
	switch l.State {
	case "pending":
		return s.phase == pending && same
	case "claimed": // its delivery may be ordered before the look, or behind it
		return (s.phase == pending || sent) && same
	case "waiting_report", "waiting_retry": // what was sent and not answered in time may be tried again
		return (s.phase == pending || s.phase == waiting || sent && h.disturbed(s.sentAt, l.Return)) && same
	case "delivered", "succeeded":
		return s.phase == ended && sent && same
	case "cancelled":
		return s.isCancelled() && l.Due == s.due
	case "stopped":
		return s.isStopped() && same
	case "dead":
		return s.phase == ended && s.end == died && same
	}
	return false
}

// close is the end of the run: all requests have been decided, all that was due has ended, and every answer has a reason.
func (h *identity) close(s state) []state {
	open := s.phase == pending || s.phase == waiting
	if open && s.op != 0 && h.checker.ops[s.op].MayDie && h.hasEvent("succeeded") { // its topic was deleted with the record
		open = false
	}
	if s.next != len(h.life.ops) || open && s.due <= h.h.Run.End && !h.waiting()[h.ident] {
		return nil
	}
	for a, t := range h.answers {
		if s.told[t.index] == 0 && judged[a.state] {
			return nil
		}
	}
	return []state{s}
}

// answer tells a request's answer, if its caller wants to be told: then it must have come.
func (h *identity) answer(s state, r request, name string, due int64) []state {
	if !h.tells(r, name) {
		return []state{s}
	}
	t := h.answerTo(r, name, due)
	if t == nil || int(s.told[t.index]) >= t.count || t.last+h.bounds.Clock < s.now {
		return h.untold(s)
	}
	return append(h.untold(s), s.tell(t))
}

// tells reports whether a request's caller asked for an answer of this state.
func (h *identity) tells(r request, name string) bool {
	switch name {
	case "scheduled", "merged", "kept":
		return r.AllEvents
	case "stale":
		return r.Kind != history.Schedule || r.AllEvents || r.ID != ""
	}
	return true
}

// outcome tells what became of a task. Whether it had to be told is judged elsewhere.
func (h *identity) outcome(s state, name string, due int64) []state {
	if t := h.answers[answerOf(name, due, "")]; t != nil {
		s = s.tell(t)
	}
	return []state{s}
}

func (s state) tell(t *told) state {
	all := []byte(s.told)
	if all[t.index] < 255 {
		all[t.index]++
	}
	s.told = string(all)
	return s
}
