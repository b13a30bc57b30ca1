package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/task"
)

// TestChecksAnswerInTheirOrder: all is against a task that is due, and then one thing less at a time.
func TestChecksAnswerInTheirOrder(t *testing.T) {
	fl := newFlight(t, Config{StageTasks: 10})
	now := nowMillis()
	slot := &ownedSlot{callMost: never, leaving: time.Now().Add(-time.Hour)}
	fl.slots[0], fl.gates.slots = slot, 1
	one := &Task{slot: slot, at: now - 1000, content: &content{topic: "orders", due: now - 1000, state: task.StateReport,
		settings: schemas.DefaultSettings(), record: &kgo.Record{Topic: "orders"}, call: &callback.Request{}}}
	one.settings.MaxLateness, one.settings.Run = time.Millisecond, schemas.Run{Timer: "t", Alone: true}
	fl.gates.apply([]admin.Policy{{Topic: "orders", Paused: true, MaxInFlight: 1, Changed: 1}})
	gate := fl.gates.byTopic["orders"]
	fl.outlets.unmet[""] = &unmet{topics: unmetMost}
	outlet := fl.outlets.at(outletKey{"orders", -1})
	outlet.refusal, outlet.waiting = refusesSince(time.Now()), []*Task{{}}

	for _, c := range []struct {
		want verdict
		mend func()
	}{
		{reportMissing, func() { one.state = task.StateLine }},
		{ownerLeaves, func() { slot.leaving = time.Time{} }},
		{runAsked, func() { one.started = true }},
		{expired, func() { one.settings.MaxLateness = 0 }},
		{noCallbacks, func() { one.call = nil }},
		{paused, func() { gate.Paused = false }},
		{behindHeld, func() { one.passed, gate.sending = true, 1 }},
		{limited, func() { gate.sending = 0 }},
		{tooManyNames, func() { fl.outlets.unmet[""].topics-- }},
		{outletClosed, func() { outlet.refusal = refusesSince(time.Now().Add(-time.Second)) }},
		{asks, func() { outlet.refusal.Open() }},
		{behindEarlier, func() { outlet.waiting, fl.outlets.buffered.tasks = nil, 10 }},
		{outletFull, func() { fl.outlets.buffered.tasks = 0 }},
		{sends, func() {}},
	} {
		for range 2 { // a check changes nothing
			require.Equal(t, c.want, (&look{machine: fl.machine, now: now, at: time.Now()}).judge(one, false))
		}
		c.mend()
	}
	require.Len(t, fl.outlets.byKey, 1)
	require.Nil(t, one.with)
	require.True(t, fl.admits(one, now))
	require.Equal(t, 1, outlet.sending)
	require.Equal(t, unmetMost, fl.outlets.unmet[""].topics, "its name counts")
}
