package api

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestWhy(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	paused, limited := TargetPolicy{Topic: "orders", Paused: true}, TargetPolicy{Topic: "orders", Rate: 2.5, Held: 1000}
	forAWhile := TargetPolicy{Topic: "orders", Paused: true, Until: at(time.Hour)}
	owned := Slot{Slot: 3, Owner: "d-1", Alive: true}
	failed := []TaskEvent{{State: schemas.StateRetrying, Reason: "first"}, {State: schemas.StateRetrying, Reason: "no stock"}, {State: schemas.StateKept, Reason: "not this"}}
	for name, c := range map[string]struct {
		task Task
		s    surroundings
		why  string
		says string
	}{
		"later":                 {Task{State: "pending", Next: at(time.Hour)}, surroundings{}, "not-due", "The task is not due yet."},
		"later and paused":      {Task{State: "pending", Next: at(time.Hour)}, surroundings{policy: paused}, "not-due", "not due yet. Its target is paused"},
		"due":                   {Task{State: "pending", Next: at(0)}, surroundings{}, "due", "The task is due now."},
		"paused":                {Task{State: "pending", Next: at(-time.Hour)}, surroundings{policy: paused, silent: []string{"orders"}}, "paused", "Its target is paused"},
		"paused for a while":    {Task{State: "pending", Next: at(-time.Hour)}, surroundings{policy: forAWhile}, "paused", "until the pause ends at 2027-01-15T09:00:00Z, or somebody resumes"},
		"paused before":         {Task{State: "pending", Next: at(2 * time.Hour)}, surroundings{policy: forAWhile}, "not-due", "The task is not due yet."},
		"paused until later":    {Task{State: "pending", Next: at(time.Minute)}, surroundings{policy: forAWhile}, "not-due", "then the task waits until the pause ends at 2027"},
		"limited":               {Task{State: "pending", Next: at(-time.Hour)}, surroundings{policy: limited}, "limited", "(rate: 2.5 tasks a second; in flight: no limit), and 1000 or more due tasks"},
		"limited, none is held": {Task{State: "pending", Next: at(-time.Hour)}, surroundings{policy: TargetPolicy{Rate: 1000}, slot: owned, known: true}, "unclaimed", "belongs to the dispatcher d-1."},
		"limited, no owner":     {Task{State: "pending", Next: at(-time.Hour)}, surroundings{policy: limited, slot: Slot{Slot: 3}, known: true}, "no-owner", "Slot 3 has no owner."},
		"limited and silent":    {Task{State: "pending", Next: at(-time.Hour)}, surroundings{policy: limited, silent: []string{"orders"}}, "silent", "does not answer"},
		"nobody takes it":       {Task{State: "pending", Next: at(-time.Hour)}, surroundings{slot: owned, known: true}, "unclaimed", "belongs to the dispatcher d-1. Runbook if it stays so: NotyetOverdue."},
		"no such topic":         {Task{State: "pending", Next: at(-time.Hour)}, surroundings{missing: true, slot: owned, known: true}, "missing", "Its target topic does not exist."},
		"no topic, no owner":    {Task{State: "pending", Next: at(-time.Hour)}, surroundings{missing: true, slot: Slot{Slot: 3}, known: true}, "no-owner", "Slot 3 has no owner."},
		"no owner":              {Task{State: "pending", Next: at(-time.Hour)}, surroundings{slot: Slot{Slot: 3}, known: true}, "no-owner", "Slot 3 has no owner. Runbook: NotyetUnownedSlots."},
		"owner is dead":         {Task{State: "claimed", Next: at(-time.Hour)}, surroundings{slot: Slot{Slot: 3, Owner: "d-2"}, known: true}, "owner-away", "The owner of slot 3, d-2, does not say that it is alive. Runbook: NotyetNoDispatcher."},
		"slots not known":       {Task{State: "pending", Next: at(-time.Hour)}, surroundings{}, "unclaimed", "no dispatcher has taken it. Runbook: NotyetOverdue."},
		"under way":             {Task{State: "claimed", Next: at(-time.Second)}, surroundings{slot: owned, known: true}, "due", "The task is being delivered."},
		"silent":                {Task{State: "claimed", Next: at(-time.Hour)}, surroundings{silent: []string{"orders"}, slot: owned, known: true}, "silent", "does not answer. Runbook: NotyetTargetSick."},
		"report":                {Task{State: "waiting_report", Next: at(time.Minute), Attempt: 2}, surroundings{}, "report", "Attempt 2 was delivered, and no consumer has reported"},
		"retry":                 {Task{State: "waiting_retry", Next: at(time.Minute), Attempt: 2, Events: failed}, surroundings{}, "not-due", "Attempt 2 failed, because: no stock. The next attempt is at 2027-01-15T08:01:00Z."},
		"retry is late":         {Task{State: "waiting_retry", Next: at(-time.Minute), Attempt: 2}, surroundings{slot: Slot{Slot: 3}, known: true}, "no-owner", "Attempt 2 failed. The task is overdue, and no dispatcher has taken it. Slot 3 has no owner."},
		"retry is held":         {Task{State: "waiting_retry", Next: at(-time.Minute), Attempt: 2}, surroundings{policy: paused}, "paused", "Attempt 2 failed. Its target is paused"},
		"set aside":             {Task{State: "waiting_retry", Next: at(5 * time.Second)}, surroundings{silent: []string{"orders"}}, "not-due", "The task was put off, and may have been sent already"},
		"report is late":        {Task{State: "waiting_report", Next: at(-time.Minute), Attempt: 2}, surroundings{slot: Slot{Slot: 3}, known: true}, "report", "Slot 3 has no owner."},
		"dead":                  {Task{State: "dead"}, surroundings{}, "given-up", "The task was given up. A replay"},
	} {
		t.Run(name, func(t *testing.T) {
			c.task.Topic, c.task.Slot, c.s.now = "orders", 3, now
			w := c.s.why(&c.task)
			require.Equal(t, c.why, w.Reason)
			require.Contains(t, w.Detail, c.says)
		})
	}
	for _, ended := range []string{"delivered", "succeeded", "cancelled"} {
		require.Nil(t, (&surroundings{now: now}).why(&Task{State: ended}), ended)
	}
}

// The answer about one task does not wait for its turn among lists.
func TestWhyBesideManyLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withoutBroker(t)
		w.schedule("orders", "late", time.Now().Add(-time.Hour).UnixMilli(), nil, nil)
		defer hold(w.local.lists)()
		began := time.Now()
		got, err := w.local.Task(t.Context(), "orders", "late")
		require.NoError(t, err)
		require.Equal(t, "no-owner", got.Why.Reason)
		require.Zero(t, time.Since(began))
	})
}
