package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// sending is a record on a target topic, with who handed it to the producer, and when.
type sending struct {
	arrival
	d    schemas.Delivery
	by   *process // nil: not known
	from time.Time
	slot int
}

// window is how long a member is trusted after an answer.
func (w *world) window() time.Duration { return w.session * 2 / 3 }

// judgeSenders holds what was sent against who had the slots (truth.go).
func (w *world) judgeSenders(h *history.History) {
	if w.truth == nil {
		return
	}
	byKey := map[string][]sending{}
	for _, a := range w.seen.all() {
		if a.r.Topic == schemas.TopicIntake || a.r.Topic == schemas.TopicReports || a.r.Topic == schemas.TopicResults || isTick(a.r) {
			continue
		}
		d, _, err := schemas.ParseDelivery(a.r)
		if err != nil {
			continue // it is found elsewhere
		}
		s := sending{arrival: a, d: d, by: w.truth.producer(a.r.ProducerID), from: a.r.Timestamp, slot: slots.Of(a.r.Topic, a.r.Key, d.ID, w.slots)}
		switch {
		case s.by != nil && s.by.apart && s.from.UnixMilli() >= w.kept.gone:
			w.judgeApart(s)
		case len(w.growth) > 0: // its slot changes
			s.slot = -1
		default:
			w.judgeSender(s)
		}
		byKey[d.Key] = append(byKey[d.Key], s)
	}
	for _, copies := range byKey {
		slices.SortStableFunc(copies, func(a, b sending) int { return cmp.Compare(a.from.UnixNano(), b.from.UnixNano()) })
		for i := 1; i < len(copies); i++ {
			w.judgeDoubled(h, copies[i-1], copies[i])
		}
	}
}

// judgeSender: a process that is not paused sends nothing of a slot that another has, once its own trust is over.
func (w *world) judgeSender(s sending) {
	if s.by == nil || s.by.paused(s.from.Add(-time.Second), s.from) {
		return
	}
	// A record has its time in whole ms, by the database's clock, which a process knows as well as a call of it tells, and which may
	// have been set back.
	const clockError = 20 * time.Millisecond
	if since, yes := s.by.unseen(s.from, clockError); yes && w.stepsBack == 0 {
		w.truth.once("trust", "%s sent attempt %d of %s/%s at %d, and has not looked at its slots since it was without trust at %d", s.by.name, s.d.Attempt, s.r.Topic, s.d.ID, s.from.UnixMilli(), since.UnixMilli())
	}
	owner, since := w.truth.ownerAt(s.slot, s.from.Add(w.stepsBack+clockError), s.by.name)
	if grace := w.window() + time.Second; !since.IsZero() && s.from.Sub(since) > grace {
		w.find("owner", "%s sent attempt %d of %s/%s at %d, though slot %d has been another's for %v, and is %s's", s.by.name, s.d.Attempt, s.r.Topic, s.d.ID,
			s.from.UnixMilli(), s.slot, s.from.Sub(since).Round(time.Millisecond), owner.owner)
	}
}

// judgeDoubled: a copy needs this very task in doubt when its slot changed hands, or an answer of the broker that was lost.
func (w *world) judgeDoubled(h *history.History, before, s sending) {
	grace := w.window() + time.Second
	if w.truth.inDoubt(s.slot, name{s.r.Topic, s.d.ID}, before.from.Add(-grace), s.from.Add(grace)) {
		return
	}
	for _, p := range []*process{before.by, s.by} {
		if p != nil && p.paused(before.from.Add(-time.Second), s.from) {
			return
		}
	}
	if w.lostHolds(before.d.Due) && (nameOf(before.by) == w.loss.n.name || nameOf(s.by) == w.loss.n.name) {
		return
	}
	for _, f := range h.Faults {
		aboutTopic := f.Target == s.r.Topic || strings.HasPrefix(f.Target, s.r.Topic+"/") || slices.Contains(f.Only, s.r.Topic) ||
			f.Kind == failingInPart && w.patched[s.r.Topic] == kerr.NotEnoughReplicasAfterAppend // stored, and answered with an error
		if f.Rewinds || (f.Target == w.kafkaSrv.name || aboutTopic) && f.Start-1000 <= s.from.UnixMilli() && f.End+1000 >= before.from.UnixMilli() {
			return
		}
	}
	w.find("I4", "%s/%s: attempt %d was sent at %d by %s and at %d by %s: it was not in doubt when its slot changed hands, and no answer was lost", s.r.Topic, s.d.ID, s.d.Attempt,
		before.from.UnixMilli(), nameOf(before.by), s.from.UnixMilli(), nameOf(s.by))
}

func nameOf(p *process) string {
	if p == nil {
		return "somebody"
	}
	return p.name
}
