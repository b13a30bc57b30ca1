package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestProofExceeds(t *testing.T) {
	row := &Task{Replay: 1, Attempt: 2}
	for name, c := range map[string]struct {
		proof Proof
		want  bool
	}{
		"the attempt that is known":  {Proof{Replay: 1, Attempt: 2}, false},
		"an earlier attempt":         {Proof{Replay: 1, Attempt: 1}, false},
		"a later attempt":            {Proof{Replay: 1, Attempt: 3}, true},
		"a later replay":             {Proof{Replay: 2, Attempt: 1}, true},
		"an attempt before a replay": {Proof{Replay: 0, Attempt: 9}, false},
		"nothing at all":             {Proof{}, false},
	} {
		require.Equal(t, c.want, c.proof.Exceeds(row), name)
	}
}

func TestProofFollowsRequest(t *testing.T) {
	const taken = 10_000
	proof := Proof{Taken: taken}
	for name, c := range map[string]struct {
		op       schemas.Op
		ifExists schemas.IfExists
		accepted int64
		want     bool
	}{
		"fire before the claim":            {op: schemas.OpFire, accepted: taken - ClaimMargin - 1, want: true},
		"fire within the margin":           {op: schemas.OpFire, accepted: taken - ClaimMargin},
		"fire after the claim":             {op: schemas.OpFire, accepted: taken + 1},
		"keep before the claim":            {op: schemas.OpSchedule, ifExists: schemas.Keep, accepted: taken - ClaimMargin - 1, want: true},
		"keep within the margin":           {op: schemas.OpSchedule, ifExists: schemas.Keep, accepted: taken - ClaimMargin},
		"once before the claim":            {op: schemas.OpSchedule, ifExists: schemas.Once, accepted: taken - ClaimMargin - 1, want: true},
		"a replacement was never before":   {op: schemas.OpSchedule, ifExists: schemas.Replace, accepted: 1},
		"a merge was never before":         {op: schemas.OpSchedule, ifExists: schemas.Merge, accepted: 1},
		"a cancel was never before either": {op: schemas.OpCancel, accepted: 1},
	} {
		r := &schemas.Request{Op: c.op, Accepted: c.accepted}
		r.Settings.IfExists = c.ifExists
		require.Equal(t, c.want, proof.Follows(r), name)
	}
}

func TestProve(t *testing.T) {
	const due, sent = 2_000_000, 2_000_500
	for name, c := range map[string]struct {
		ack    schemas.Ack
		events schemas.Events
		proof  Proof
		next   Task // what of it matters
		event  schemas.State
		dead   string
	}{
		"acknowledged": {events: schemas.EventsAll, proof: Proof{Attempt: 1, At: sent},
			next: Task{Slot: OutOfLine, Pos: testNow, State: StateSucceeded, Attempt: 1}, event: schemas.StateSucceeded},
		"acknowledged, nobody asked for events": {events: schemas.EventsNone, proof: Proof{Attempt: 1, At: sent},
			next: Task{Slot: OutOfLine, Pos: testNow, State: StateSucceeded, Attempt: 1}},
		"its report is awaited": {ack: schemas.AckReport, events: schemas.EventsAll, proof: Proof{Replay: 1, Attempt: 2, At: sent},
			next: Task{Slot: 1, Pos: sent + time.Minute.Milliseconds(), State: StateReport, Replay: 1, Attempt: 2}, event: schemas.StateDispatched},
		"refused": {events: schemas.EventsAll, proof: Proof{Attempt: 3, At: sent, Refused: "too large"},
			next: Task{Slot: OutOfLine, Pos: testNow, State: StateDead, Attempt: 2}, event: schemas.StateDead, dead: "kafka refused it: too large"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schemas.DefaultSettings()
			settings.Ack, settings.AckTimeout, settings.Events = c.ack, time.Minute, c.events
			cur := Task{Seq: 7, Slot: 1, Pos: due, Due: due, Topic: "orders", ID: "a", Body: schemas.EncodeBody(nil, nil, []byte("v"), nil, settings)}
			before := cur
			v := Prove(&cur, c.proof, testNow)
			require.Equal(t, before, cur, "what came in is left as it is")
			require.Equal(t, c.next, Task{Slot: v.Next.Slot, Pos: v.Next.Pos, State: v.Next.State, Replay: v.Next.Replay, Attempt: v.Next.Attempt})
			require.Equal(t, c.event, v.Event.State)
			if c.dead == "" {
				require.Nil(t, v.Dead)
				return
			}
			require.Equal(t, schemas.KindUndeliverable, v.Dead.Kind)
			require.Equal(t, c.dead, v.Dead.Reason)
			require.Equal(t, c.next.Attempt, v.Dead.Attempt)
			require.EqualValues(t, testNow, v.Dead.DiedAt)
		})
	}
	damaged := &Task{Body: []byte{0xff}}
	require.Equal(t, Verdict{Next: damaged}, Prove(damaged, Proof{Attempt: 1}, testNow), "it cannot have been sent")
}
