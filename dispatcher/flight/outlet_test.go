package flight

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/schemas"
)

// The producer gave a task back, and what follows is not decided yet, for the database is slow. Meanwhile its target is found
// unresponsive: the task is not set aside as one that is unanswered, nor let go of twice.
func TestAnsweredTaskIsNotSetAside(t *testing.T) {
	fl := newFlight(t, Config{UnresponsiveAfter: time.Second})
	outs := fl.outlets
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	g := &Outlet{outletKey: outletKey{"x", -1}}
	outs.byKey[g.outletKey] = g
	for seq := range int64(2) {
		sent := &Task{slot: l, seq: seq, pos: 50, at: 50, status: sending,
			content: &content{topic: "x", due: 50, size: 10, outletKey: g.outletKey, settings: schemas.DefaultSettings(), record: &kgo.Record{Topic: "x", Key: []byte("k")}}}
		l.tasks = append(l.tasks, sent)
		outs.beginSending(g, sent)
	}
	given, unanswered := l.tasks[0], l.tasks[1]
	outs.where.ForTopic("x").Partition(unanswered.record, 1) // the producer learns of the partition
	fl.Due.Answered(given, Answer{Err: kerr.RequestTimedOut})
	g.since = time.Now().Add(-time.Minute)
	fl.Outcomes.checkOutlets()
	require.NotContains(t, fl.stuck, given.seq)
	require.Contains(t, fl.stuck, unanswered.seq)
	require.Equal(t, buffered{1, 10}, outs.buffered)
	require.Equal(t, outletKey{"x", 0}, unanswered.with.outletKey)
	require.NotContains(t, outs.byKey, g.outletKey, "it holds nothing any more")
	fl.Due.Answered(unanswered, Answer{Err: nil})
	require.Equal(t, buffered{}, outs.buffered)
}

// Origins that do not answer leave half of the room to Kafka's targets, however many they are and however large their requests. Those of one
// tenant leave room to the other tenants' origins.
func TestOriginsLeaveHalfOfTheRoom(t *testing.T) {
	for name, size := range map[string]int{"number": 1, "bytes": 50} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{MemberID: "one", StageTasks: 100, StageBytes: 1000, CallLimits: usualLimits})
			outs, all := fl.outlets, 0
			for _, tenant := range []string{"a", "b", "c"} {
				n := 0
				for ; n < 1000; n++ {
					key := outletKey{fmt.Sprintf("https://hook-%d.%s.example", n, tenant), -1}
					g := &Outlet{outletKey: key, origin: outs.origins.Keep(key.topic)}
					call := &Task{content: &content{topic: g.topic, tenant: tenant, size: size, call: &callback.Request{}}}
					if !outs.hasRoom(g, call) {
						break
					}
					outs.beginSending(g, call)
				}
				require.NotZero(t, n, tenant)
				all += n
			}
			require.LessOrEqual(t, all, min(50, 500/size))
			require.True(t, outs.hasRoom(&Outlet{outletKey: outletKey{"orders", 0}}, &Task{content: &content{}}))
		})
	}
}

// A target that is not in use is forgotten, though its last task never went to a producer: callers name as many as they like.
func TestIdleTargetsAreForgotten(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	for seq := range int64(10) {
		topic := fmt.Sprint("mistyped", seq)
		fl.Due.noteRefusal(topic, target.Refused, kerr.UnknownTopicOrPartition)
		held := &Task{slot: l, seq: seq, content: &content{topic: topic, record: &kgo.Record{Topic: topic}, settings: schemas.DefaultSettings()}}
		require.False(t, fl.admits(held, nowMillis()))
	}
	fl.Outcomes.checkOutlets()
	require.Len(t, fl.outlets.byKey, 10, "whether they are there is to be asked again")
	require.Len(t, fl.Outcomes.forgetClosed(time.Now().Add(3*time.Minute)), 10)
	require.Empty(t, fl.outlets.byKey)
}

// The producer itself refuses a record that is too large. That says nothing of a target which answers nothing.
func TestOnlyATargetShowsThatItIsThere(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	for name, c := range map[string]struct {
		err          error
		alone, there bool
	}{
		"taken":                         {nil, false, true},
		"does not exist":                {kerr.UnknownTopicOrPartition, false, true},
		"given up":                      {kgo.ErrRecordTimeout, false, false},
		"too large for the producer":    {kerr.MessageTooLarge, false, false},
		"too large, when it went alone": {kerr.MessageTooLarge, true, true},
	} {
		before := time.Now().Add(-time.Hour)
		g := &Outlet{outletKey: outletKey{"x", 0}, sending: 1}
		fl.outlets.byKey[g.outletKey] = g
		sent := &Task{content: &content{topic: "x", outletKey: g.outletKey}}
		fl.outlets.beginSending(g, sent)
		g.since = before
		fl.Due.Answered(sent, Answer{Err: c.err, Alone: c.alone})
		require.Equal(t, c.there, g.since.After(before), name)
	}
}
