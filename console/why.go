package console

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/schemas"
)

// overdueAfter is from when on a task counts as overdue, as on the overview.
const overdueAfter = 5 * time.Second

// surroundings are possible causes of a delay. Unreadable and hidden parts are empty.
type surroundings struct {
	now      time.Time
	policies []api.TargetPolicy
	silent   []string // targets that do not answer
	slots    []api.Slot
}

// surroundings reads the data for why: the targets are enough for a task in time.
func (c *Console) surroundings(ctx context.Context, t *api.Task) surroundings {
	s := surroundings{now: time.Now()}
	if t.Next == 0 {
		return s
	}
	// After a failed reading less is said, and the task is still shown.
	var targets api.Targets
	_ = c.inside.get(ctx, "/targets", nil, &targets)
	s.policies = targets.Targets
	if s.late(t) > overdueAfter {
		var cluster api.Cluster
		_ = c.inside.get(ctx, "/cluster", nil, &cluster)
		var overview api.Overview
		_ = c.inside.get(ctx, "/overview", url.Values{"minutes": {"1"}}, &overview)
		s.slots, s.silent = cluster.Slots, overview.Targets.Unresponsive
	}
	return s
}

func (s *surroundings) late(t *api.Task) time.Duration { return s.now.Sub(time.UnixMilli(t.Next)) }

// why names the cause of a task's wait, to spare a look in four places. Empty: the task has ended.
func (s *surroundings) why(t *api.Task) string {
	switch t.State {
	case "pending":
		return s.held(t, "It is not due yet.", "It is due now.")
	case "claimed":
		return s.held(t, "It is about to be delivered.", "It is being delivered.")
	case "waiting_retry":
		said := fmt.Sprintf("Attempt %d failed%s. ", t.Attempt, because(t))
		if t.Attempt == 0 {
			said = "It was put off, and may have been sent already: Kafka has not answered, or its dispatcher is gone. "
		}
		return said + s.held(t, "The next one is at "+utc(t.Next)+".", "The next one is due now.")
	case "waiting_report":
		text := fmt.Sprintf("Attempt %d was delivered, and no consumer has reported what became of it. Without a report it has failed at %s.", t.Attempt, utc(t.Next))
		if s.late(t) > overdueAfter {
			text += " " + s.owner(t.Slot, "NotyetStuck")
		}
		return text
	case "dead":
		return fmt.Sprintf("It was given up%s. A replay of its dead letter brings it back.", because(t))
	}
	return ""
}

// held names the cause of a delay. early and due are the answers without one.
func (s *surroundings) held(t *api.Task, early, due string) string {
	var p api.TargetPolicy
	if i := slices.IndexFunc(s.policies, func(p api.TargetPolicy) bool { return p.Topic == t.Topic }); i >= 0 {
		p = s.policies[i]
	}
	late := s.late(t)
	switch {
	case late < 0 && p.Paused:
		return early + " Its target is paused: it then waits until somebody resumes the target."
	case late < 0:
		return early
	case p.Paused && t.State != "claimed":
		return "Its target is paused: it waits until somebody resumes the target."
	case late <= overdueAfter:
		return due
	case slices.Contains(s.silent, t.Topic):
		return "Its target does not answer. Runbook: NotyetTargetSick."
	case t.State == "claimed":
		return "Its dispatcher has taken it, and has not delivered it yet. " + s.owner(t.Slot, "NotyetStuck")
	case p.Rate > 0 || p.MaxInFlight > 0:
		return fmt.Sprintf("Its target is limited (rate: %s; in flight: %s), and %s due tasks are kept back, most likely this one too.",
			limit(p.Rate, "tasks a second"), limit(float64(p.MaxInFlight), "records"), counted(p.Held))
	}
	return "It is overdue, and no dispatcher has taken it. " + s.owner(t.Slot, "NotyetOverdue")
}

// owner names a slot's owner, and the runbook for the next step.
func (s *surroundings) owner(slot int, runbook string) string {
	i := slices.IndexFunc(s.slots, func(o api.Slot) bool { return o.Slot == slot })
	switch {
	case i < 0:
		return "Runbook: " + runbook + "."
	case s.slots[i].Owner == "":
		return fmt.Sprintf("Slot %d has no owner. Runbook: NotyetUnownedSlots.", slot)
	case !s.slots[i].Alive:
		return fmt.Sprintf("The owner of slot %d, %s, does not say that it is alive. Runbook: NotyetNoDispatcher.", slot, s.slots[i].Owner)
	}
	return fmt.Sprintf("Slot %d belongs to the dispatcher %s. Runbook if it stays so: %s.", slot, s.slots[i].Owner, runbook)
}

// because is the last reason in the history.
func because(t *api.Task) string {
	for _, e := range slices.Backward(t.Events) {
		if e.Reason != "" && (e.State == schemas.StateRetrying || e.State == schemas.StateDead) {
			return ", because: " + e.Reason
		}
	}
	return ""
}
