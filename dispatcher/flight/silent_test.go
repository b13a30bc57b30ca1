package flight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// What a topic answers is about all of its partitions, and is told once.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl := newFlight(t, Config{MemberID: "one", UndeliverableAfter: time.Minute})
		outs, missing, clock := fl.outlets, kerr.UnknownTopicOrPartition, kerr.InvalidTimestamp
		require.False(t, fl.Due.refusedForNow("a", nil))
		require.True(t, fl.Due.refusedForNow("a", missing))
		require.True(t, fl.Due.refusedForNow("a", missing), "another of those that were sent together")
		require.Equal(t, 1, outs.refusals.n)
		g := outs.byKey[outletKey{"a", -1}]
		require.Equal(t, g, outs.closing(outletKey{"a", 3}, time.Now()), "it is about the whole topic")
		require.Nil(t, outs.closing(outletKey{"b", 3}, time.Now()), "another target")
		time.Sleep(time.Minute)
		require.False(t, fl.Due.refusedForNow("a", missing), "patience is over")
		require.Nil(t, outs.closing(outletKey{"a", 3}, time.Now()), "now each is sent, and told what becomes of it")
		require.Equal(t, 1, fl.Figures().RefusedTargets)
		time.Sleep(3 * time.Minute)
		require.True(t, fl.Due.refusedForNow("a", missing), "nothing was sent for long: patience begins anew")

		require.False(t, fl.Due.refusedForNow("a", clock))
		require.Equal(t, g, outs.closing(outletKey{"a", 3}, time.Now().Add(time.Hour)), "a clock may be wrong for long")
		require.Equal(t, []int{1, 0}, []int{fl.Figures().ClockRefused, fl.Figures().RefusedTargets})
		require.True(t, fl.Due.refusedForNow("a", missing), "another reason has patience of its own")
		require.Equal(t, []int{0, 1}, []int{fl.Figures().ClockRefused, fl.Figures().RefusedTargets})

		before := g.refusal
		outs.fallsSilent(g)
		require.True(t, fl.Due.refusedForNow("a", missing), "of another partition")
		require.Equal(t, &g.silence, g.bar())
		fl.Due.respondsAgain(g)
		require.Equal(t, before, *g.bar(), "a silence between does not begin patience anew")

		l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
		fl.slots[0] = l
		fl.Outcomes.sendLater(&Task{slot: l, seq: 7, pos: 50, at: 40, content: &content{topic: "a", due: 40, outletKey: outletKey{"a", 3}, settings: schemas.DefaultSettings()}}, missing)
		require.False(t, fl.Due.refusedForNow("a", nil))
		require.True(t, g.bar().IsOpen(), "it takes records")
		require.Len(t, fl.inbox.recalls, 1, "and what was put off")
	})
}

// A task that asks a topic which refuses records gets no answer of its partition: it counts there from then on, and another one asks.
func TestAskerThatIsRehomedLeavesItsTurn(t *testing.T) {
	for name, err := range map[string]error{"given up": kgo.ErrRecordTimeout, "refused": kerr.UnknownTopicOrPartition} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{MemberID: "one", UndeliverableAfter: time.Hour, UnresponsiveAfter: time.Second})
			l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
			fl.slots[0] = l
			one := func(seq int64) *Task {
				return &Task{slot: l, seq: seq, pos: 50, at: 40, content: &content{topic: "x", due: 40, record: &kgo.Record{Topic: "x", Key: []byte("k")}, settings: schemas.DefaultSettings()}}
			}
			fl.outlets.where.ForTopic("x").Partition(one(9).record, 2) // the producer knows its partitions
			require.True(t, fl.Due.refusedForNow("x", kerr.TopicAuthorizationFailed))
			g := fl.outlets.byKey[outletKey{"x", -1}]
			g.refusal = refusesSince(time.Now().Add(-time.Second))
			asker := one(1)
			l.tasks = append(l.tasks, asker)
			require.True(t, fl.admits(asker, nowMillis()))
			require.False(t, g.refusal.MayAsk(time.Now().Add(time.Hour)))
			g.since = time.Now().Add(-2 * time.Second)
			fl.Outcomes.checkOutlets()
			require.NotEqual(t, g, asker.with)
			fl.Due.Answered(asker, Answer{Err: err})
			require.True(t, g.refusal.MayAsk(time.Now().Add(time.Hour)))
			g.refusal = refusesSince(time.Now().Add(-time.Second))
			require.True(t, fl.admits(one(2), nowMillis()))
		})
	}
}

// What a topic said before its brokers fell silent ends by quiet as well: its tasks are judged by their partitions again.
func TestARefusalInASilenceEnds(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one", UndeliverableAfter: time.Hour})
	require.True(t, fl.Due.refusedForNow("x", kerr.UnknownTopicOrPartition))
	g := fl.outlets.byKey[outletKey{"x", -1}]
	fl.outlets.fallsSilent(g)
	now := time.Now()
	require.Empty(t, fl.Outcomes.forgetClosed(now.Add(2*time.Minute)))
	require.False(t, g.refusal.IsOpen())
	require.Empty(t, fl.Outcomes.forgetClosed(now.Add(3*time.Minute)))
	require.True(t, g.refusal.IsOpen())
	require.False(t, g.silence.IsOpen())
}

// A task that finds no room leaves the turn to ask to another. What waits for room when its topic refuses is put off with the others.
func TestWhoHasNoRoomDoesNotAsk(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one", UndeliverableAfter: time.Hour, StageTasks: 10})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	one := func(seq int64) *Task {
		return &Task{slot: l, seq: seq, pos: 50, at: 40, content: &content{topic: "x", due: 40, record: &kgo.Record{Topic: "x"}, settings: schemas.DefaultSettings()}}
	}
	fl.outlets.buffered.tasks = 10
	require.False(t, fl.admits(one(1), nowMillis()))
	g := fl.outlets.byKey[outletKey{"x", -1}]
	require.Len(t, g.waiting, 1)
	require.True(t, fl.Due.refusedForNow("x", kerr.UnknownTopicOrPartition))
	require.Empty(t, g.waiting)
	g.refusal = refusesSince(time.Now().Add(-time.Second))
	require.False(t, fl.admits(one(2), nowMillis()))
	require.True(t, g.refusal.MayAsk(time.Now()))
	fl.outlets.buffered.tasks = 0
	require.True(t, fl.admits(one(3), nowMillis()))
	require.Len(t, fl.inbox.transitions, 2)
}
