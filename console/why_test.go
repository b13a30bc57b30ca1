package console

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/schemas"
)

func TestWhy(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	paused, limited := api.TargetPolicy{Topic: "orders", Paused: true}, api.TargetPolicy{Topic: "orders", Rate: 2.5, Held: 1000}
	owned := api.Slot{Slot: 3, Owner: "d-1", Alive: true}
	failed := []api.TaskEvent{{State: schemas.StateRetrying, Reason: "first"}, {State: schemas.StateRetrying, Reason: "no stock"}, {State: schemas.StateKept, Reason: "not this"}}
	for name, c := range map[string]struct {
		task api.Task
		s    surroundings
		says string
	}{
		"later":              {api.Task{State: "pending", Next: at(time.Hour)}, surroundings{}, "It is not due yet."},
		"later and paused":   {api.Task{State: "pending", Next: at(time.Hour)}, surroundings{policies: []api.TargetPolicy{paused}}, "not due yet. Its target is paused"},
		"another's pause":    {api.Task{State: "pending", Next: at(0)}, surroundings{policies: []api.TargetPolicy{{Topic: "bills", Paused: true}}}, "It is due now."},
		"paused":             {api.Task{State: "pending", Next: at(-time.Hour)}, surroundings{policies: []api.TargetPolicy{paused}, silent: []string{"orders"}}, "Its target is paused"},
		"limited":            {api.Task{State: "pending", Next: at(-time.Hour)}, surroundings{policies: []api.TargetPolicy{limited}}, "(rate: 2.5 tasks a second; in flight: no limit), and 1000 or more due tasks"},
		"limited and silent": {api.Task{State: "pending", Next: at(-time.Hour)}, surroundings{policies: []api.TargetPolicy{limited}, silent: []string{"orders"}}, "does not answer"},
		"nobody takes it":    {api.Task{State: "pending", Next: at(-time.Hour)}, surroundings{slots: []api.Slot{owned}}, "belongs to the dispatcher d-1. Runbook if it stays so: NotyetOverdue."},
		"no owner":           {api.Task{State: "pending", Next: at(-time.Hour)}, surroundings{slots: []api.Slot{{Slot: 3}}}, "Slot 3 has no owner. Runbook: NotyetUnownedSlots."},
		"owner is dead":      {api.Task{State: "claimed", Next: at(-time.Hour)}, surroundings{slots: []api.Slot{{Slot: 3, Owner: "d-2"}}}, "The owner of slot 3, d-2, does not say that it is alive. Runbook: NotyetNoDispatcher."},
		"slots not known":    {api.Task{State: "pending", Next: at(-time.Hour)}, surroundings{}, "no dispatcher has taken it. Runbook: NotyetOverdue."},
		"under way":          {api.Task{State: "claimed", Next: at(-time.Second)}, surroundings{slots: []api.Slot{owned}}, "It is being delivered."},
		"silent":             {api.Task{State: "claimed", Next: at(-time.Hour)}, surroundings{silent: []string{"orders"}, slots: []api.Slot{owned}}, "does not answer. Runbook: NotyetTargetSick."},
		"report":             {api.Task{State: "waiting_report", Next: at(time.Minute), Attempt: 2}, surroundings{}, "Attempt 2 was delivered, and no consumer has reported"},
		"retry":              {api.Task{State: "waiting_retry", Next: at(time.Minute), Attempt: 2, Events: failed}, surroundings{}, "Attempt 2 failed, because: no stock. The next one is at 2027-01-15 08:01:00.000 UTC."},
		"retry is late":      {api.Task{State: "waiting_retry", Next: at(-time.Minute), Attempt: 2}, surroundings{slots: []api.Slot{{Slot: 3}}}, "Attempt 2 failed. It is overdue, and no dispatcher has taken it. Slot 3 has no owner."},
		"retry is held":      {api.Task{State: "waiting_retry", Next: at(-time.Minute), Attempt: 2}, surroundings{policies: []api.TargetPolicy{paused}}, "Attempt 2 failed. Its target is paused"},
		"set aside":          {api.Task{State: "waiting_retry", Next: at(5 * time.Second)}, surroundings{silent: []string{"orders"}}, "It was put off, and may have been sent already"},
		"report is late":     {api.Task{State: "waiting_report", Next: at(-time.Minute), Attempt: 2}, surroundings{slots: []api.Slot{{Slot: 3}}}, "Slot 3 has no owner."},
		"dead":               {api.Task{State: "dead"}, surroundings{}, "It was given up. A replay"},
	} {
		t.Run(name, func(t *testing.T) {
			c.task.Topic, c.task.Slot, c.s.now = "orders", 3, now
			require.Contains(t, c.s.why(&c.task), c.says)
		})
	}
	for _, ended := range []string{"delivered", "succeeded", "cancelled"} {
		require.Empty(t, (&surroundings{now: now}).why(&api.Task{State: ended}), ended)
	}
}

func TestTheTasksPageSaysWhatItWaitsFor(t *testing.T) {
	w := newWorld(t, true)
	w.schedule("orders", "o-1", nil)
	b := w.as("operate")
	_, text := b.get(taskPath("orders", "o-1"))
	require.Contains(t, text, `id="why">It is not due yet.<`)
	resp, _ := b.post("/targets", url.Values{"do": {"pause"}, "topic": {"orders"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	for _, role := range []string{"read", "operate"} {
		_, text = w.as(role).get(taskPath("orders", "o-1"))
		require.Contains(t, text, "Its target is paused", role)
	}
}
