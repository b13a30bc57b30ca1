package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestHistory(t *testing.T) {
	settings := schemas.DefaultSettings()
	settings.Ack, settings.AckTimeout = schemas.AckReport, 100*time.Millisecond
	settings.Backoff = schemas.Backoff{First: 50 * time.Millisecond}
	fixed := schemas.EncodeBody(nil, nil, nil, nil, settings)
	letter := DeadLetter{Seq: 7, Kind: schemas.KindDead, Topic: "o", TaskID: "a", Due: 1000, Attempt: 2, Reason: "boom", DiedAt: 1500}
	replayed := letter
	replayed.ReplayedAt, replayed.ReplayedBy = 2000, "ann"
	rejected := DeadLetter{Seq: 9, Kind: schemas.KindRejected, Topic: "o", TaskID: "a", Reason: "bad", DiedAt: 300}
	event := func(state schemas.State, at, due int64, attempt int) schemas.Event {
		e := schemas.Event{Topic: "o", ID: "a", State: state, At: at, Due: due, Attempt: attempt}
		if attempt > 0 {
			e.Lateness = schemas.LatenessUnknown
		}
		return e
	}
	scheduled := event(schemas.StateScheduled, 500, 1000, 0)
	died := event(schemas.StateDead, 1500, 1000, 2)
	died.Kind, died.Reason = schemas.KindDead, "boom"
	again := event(schemas.StateScheduled, 2000, 2000, 0)
	again.Reason = "replayed by ann"
	wrong := event(schemas.StateRejected, 300, 0, 0)
	wrong.Kind, wrong.Reason = schemas.KindRejected, "bad"
	boom := event(schemas.StateRetrying, 1200, 1000, 1)
	boom.Reason = "boom"
	failed := []Note{NewNote(0, 1, 1200, "boom")}
	for name, c := range map[string]struct {
		task    Task
		phase   Phase
		letters []DeadLetter
		want    []schemas.Event
	}{
		"pending":                  {Task{Pos: 1000}, Pending, nil, []schemas.Event{scheduled}},
		"claimed":                  {Task{Pos: 1000}, InFlight, nil, []schemas.Event{scheduled}},
		"delivered":                {Task{Pos: 1000}, Ended, nil, []schemas.Event{scheduled, event(schemas.StateSucceeded, 0, 1000, 1)}},
		"due before it was stored": {Task{Pos: 499, Due: 499}, Ended, nil, []schemas.Event{event(schemas.StateScheduled, 500, 499, 0), event(schemas.StateSucceeded, 0, 499, 1)}},
		"delivered, placed late":   {Task{Pos: 1300}, Ended, nil, []schemas.Event{scheduled, event(schemas.StateSucceeded, 0, 1000, 1)}},
		"delivered after a pause":  {Task{Pos: Held(1300)}, Ended, nil, []schemas.Event{scheduled, event(schemas.StateSucceeded, 0, 1000, 1)}},
		"waits for a report":       {Task{Pos: 1700, State: StateReport, Attempt: 1, Body: fixed}, Between, nil, []schemas.Event{scheduled, event(schemas.StateDispatched, 1600, 1000, 1)}},
		"waits for a retry":        {Task{Pos: 1700, State: StateRetry, Attempt: 2, Body: fixed}, Between, nil, []schemas.Event{scheduled, event(schemas.StateRetrying, 0, 1000, 2)}},
		"an attempt failed":        {Task{Pos: 1700, State: StateRetry, Attempt: 1, Body: fixed, Failures: failed}, Between, nil, []schemas.Event{scheduled, boom}},
		"the next one, unknown":    {Task{Pos: 1700, State: StateRetry, Attempt: 2, Body: fixed, Failures: failed}, Between, nil, []schemas.Event{scheduled, boom, event(schemas.StateRetrying, 0, 1000, 2)}},
		"failed, then reported":    {Task{Slot: OutOfLine, Pos: 1800, State: StateSucceeded, Attempt: 2, Failures: failed}, Ended, nil, []schemas.Event{scheduled, boom, event(schemas.StateSucceeded, 1800, 1000, 2)}},
		"its retry is held":        {Task{Pos: Held(1700), State: StateRetry, Attempt: 2, Body: fixed}, Pending, nil, []schemas.Event{scheduled, event(schemas.StateRetrying, 0, 1000, 2)}},
		"put off unsent":           {Task{Pos: 1700, State: StateRetry, Body: fixed}, Between, nil, []schemas.Event{scheduled}},
		"a body that is no body":   {Task{Pos: 1700, State: StateReport, Attempt: 1, Body: []byte{0xff}}, Between, nil, []schemas.Event{scheduled, event(schemas.StateDispatched, 0, 1000, 1)}},
		"cancelled":                {Task{Slot: OutOfLine, Pos: 800, State: StateCancelled}, Ended, nil, []schemas.Event{scheduled, event(schemas.StateCancelled, 800, 1000, 0)}},
		"stopped":                  {Task{Slot: OutOfLine, Pos: 1800, State: StateStopped, Attempt: 2}, Ended, nil, []schemas.Event{scheduled, event(schemas.StateStopped, 1800, 1000, 2)}},
		"stopped, with a version":  {Task{Slot: OutOfLine, Pos: 1800, State: StateHalted, Attempt: 2}, Ended, nil, []schemas.Event{scheduled, event(schemas.StateStopped, 1800, 1000, 2)}},
		"reported":                 {Task{Slot: OutOfLine, Pos: 1800, State: StateSucceeded, Attempt: 3}, Ended, nil, []schemas.Event{scheduled, event(schemas.StateSucceeded, 1800, 1000, 3)}},
		"dead":                     {Task{Slot: OutOfLine, Pos: 1500, State: StateDead, Attempt: 2}, Ended, []DeadLetter{letter}, []schemas.Event{scheduled, died}},
		"dead, its letter purged":  {Task{Slot: OutOfLine, Pos: 1500, State: StateDead, Attempt: 2}, Ended, nil, []schemas.Event{scheduled, event(schemas.StateDead, 1500, 1000, 2)}},
		"replayed, and pending":    {Task{Pos: 2000, Due: 2000, Replay: 1}, Pending, []DeadLetter{replayed}, []schemas.Event{died, again}},
		"replayed, and dead again": {Task{Slot: OutOfLine, Pos: 2500, Due: 2000, Replay: 1, State: StateDead, Attempt: 1}, Ended, []DeadLetter{replayed}, []schemas.Event{died, again, event(schemas.StateDead, 2500, 2000, 1)}},
		"a rejected request":       {Task{Pos: 1000}, Pending, []DeadLetter{rejected}, []schemas.Event{wrong, scheduled}},
	} {
		t.Run(name, func(t *testing.T) {
			c.task.Seq, c.task.Topic, c.task.ID, c.task.Created = 7, "o", "a", 500
			if c.task.Due == 0 {
				c.task.Due = 1000
			}
			require.Equal(t, c.want, History(&c.task, c.phase, c.letters))
		})
	}
	tombstone := Task{Slot: OutOfLine, Pos: 800, State: StateTombstone, Topic: "o", ID: "a", Created: 500}
	require.Equal(t, []schemas.Event{event(schemas.StateCancelled, 800, 0, 0)}, History(&tombstone, Ended, nil), "a cancel that came first")
}
