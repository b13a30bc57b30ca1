package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// Why names the cause of a task's wait, so that nobody has to look in four places.
type Why struct {
	Reason string `json:"reason" doc:"the cause" enum:"not-due,due,paused,limited,silent,missing,unclaimed,no-owner,owner-away,in-flight,report,given-up"`
	Detail string `json:"detail" doc:"the cause in words, with the reason of the last failed attempt and the runbook, if there is one"`
}

// surroundings are possible causes of a delay. Unreadable and hidden parts are empty.
type surroundings struct {
	now     time.Time
	policy  TargetPolicy
	silent  []string // targets without answers
	missing bool     // the topic, as far as scanners know
	slot    Slot
	known   bool // slot was read
}

// explain adds the cause of a task's wait. After a failed reading, explain says less.
func (l *Local) explain(ctx context.Context, t *Task) {
	if t.Next == 0 && t.State != "dead" {
		return
	}
	now, err := l.store.Time(ctx)
	if err != nil {
		return
	}
	s := surroundings{now: now}
	policies, _ := admin.New(l.store).Policies(ctx)
	if i := slices.IndexFunc(policies, func(p admin.Policy) bool { return p.Topic == t.Topic }); i >= 0 {
		s.policy, _ = l.target(ctx, policies[i])
	}
	if s.late(t) > overdueAfter {
		if overview, err := l.overview.get(ctx); err == nil {
			s.silent = overview.Targets.Unresponsive
		}
		s.missing, _ = look.New(l.store).IsMissing(ctx, t.Topic)
		if cluster, err := l.members(ctx); err == nil { // two small tables: no turn among lists is waited for
			if c := access.From(ctx); c.May(access.Read) && !c.AllTopics() { // a command on this machine is nobody's
				cluster.anonymous()
			}
			i := slices.IndexFunc(cluster.Slots, func(o Slot) bool { return o.Slot == t.Slot })
			if s.known = i >= 0; s.known {
				s.slot = cluster.Slots[i]
			}
		}
	}
	t.Why = s.why(t)
}

// resumed is what ends the pause of the task's target.
func (s *surroundings) resumed() string {
	if s.policy.Until > 0 {
		return "until the pause ends at " + instant(s.policy.Until) + ", or somebody resumes the target."
	}
	return "until somebody resumes the target."
}

func (s *surroundings) late(t *Task) time.Duration { return s.now.Sub(time.UnixMilli(t.Next)) }

// why returns nil for a task that has ended.
func (s *surroundings) why(t *Task) *Why {
	switch t.State {
	case "pending":
		return s.held(t, "The task is not due yet.", "The task is due now.")
	case "claimed":
		return s.held(t, "The task is about to be delivered.", "The task is being delivered.")
	case "waiting_retry":
		said := fmt.Sprintf("Attempt %d failed%s. ", t.Attempt, because(t))
		if t.Attempt == 0 {
			said = "The task was put off, and may have been sent already: Kafka has not answered, or its dispatcher is gone. "
		}
		w := s.held(t, "The next attempt is at "+instant(t.Next)+".", "The next attempt is due now.")
		w.Detail = said + w.Detail
		return w
	case "waiting_report":
		w := &Why{"report", fmt.Sprintf("Attempt %d was delivered, and no consumer has reported on the delivery. Without a report the attempt fails at %s.", t.Attempt, instant(t.Next))}
		if s.late(t) > overdueAfter {
			w.Detail += " " + s.owner(t.Slot, "report", "NotyetStuck").Detail
		}
		return w
	case "dead":
		return &Why{"given-up", fmt.Sprintf("The task was given up%s. A replay of its dead letter brings the task back. A missed run of a timer has none: make the run with `notyet timer backfill`.", because(t))}
	}
	return nil
}

// held names the cause of a delay. early and due are the answers without one.
func (s *surroundings) held(t *Task, early, due string) *Why {
	late, p := s.late(t), s.policy
	switch {
	case late < 0 && p.Paused && (p.Until == 0 || p.Until > t.Next):
		return &Why{"not-due", early + " Its target is paused: then the task waits " + s.resumed()}
	case late < 0:
		return &Why{"not-due", early}
	case p.Paused && t.State != "claimed":
		return &Why{"paused", "Its target is paused: the task waits " + s.resumed()}
	case late <= overdueAfter:
		return &Why{"due", due}
	case slices.Contains(s.silent, t.Topic):
		return &Why{"silent", "Its target does not answer. Runbook: NotyetTargetSick."}
	case t.State == "claimed":
		w := s.owner(t.Slot, "in-flight", "NotyetStuck")
		w.Detail = "Its dispatcher has taken the task, and has not delivered it yet. " + w.Detail
		return w
	}
	w := s.owner(t.Slot, "unclaimed", "NotyetOverdue")
	if w.Reason == "unclaimed" && (p.Rate > 0 || p.MaxInFlight > 0) && p.Held > 0 {
		held := strconv.Itoa(p.Held)
		if p.Held >= heldCounted {
			held += " or more"
		}
		return &Why{"limited", fmt.Sprintf("Its target is limited (rate: %s; in flight: %s), and %s due tasks are kept back, most likely this one too.",
			limit(p.Rate, "tasks a second"), limit(float64(p.MaxInFlight), "records"), held)}
	}
	if w.Reason == "unclaimed" && s.missing {
		return &Why{"missing", "Its target topic does not exist. A dispatcher tries for undeliverable-after; then the task is a dead letter."}
	}
	w.Detail = "The task is overdue, and no dispatcher has taken it. " + w.Detail
	return w
}

// owner names a slot's owner, and the runbook for the next step. reason is that of a slot whose
// owner works.
func (s *surroundings) owner(slot int, reason, runbook string) *Why {
	switch {
	case !s.known:
		return &Why{reason, "Runbook: " + runbook + "."}
	case s.slot.Owner == "":
		return &Why{"no-owner", fmt.Sprintf("Slot %d has no owner. Runbook: NotyetUnownedSlots.", slot)}
	case !s.slot.Alive:
		return &Why{"owner-away", fmt.Sprintf("The owner of slot %d, %s, does not say that it is alive. Runbook: NotyetNoDispatcher.", slot, s.slot.Owner)}
	}
	return &Why{reason, fmt.Sprintf("Slot %d belongs to the dispatcher %s. Runbook if it stays so: %s.", slot, s.slot.Owner, runbook)}
}

// because is the last reason in the history.
func because(t *Task) string {
	for _, e := range slices.Backward(t.Events) {
		if e.Reason != "" && (e.State == schemas.StateRetrying || e.State == schemas.StateDead) {
			return ", because: " + e.Reason
		}
	}
	return ""
}

func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

func limit(n float64, unit string) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + " " + unit
}
