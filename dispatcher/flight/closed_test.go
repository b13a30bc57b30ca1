package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

func TestClosed(t *testing.T) {
	for why, pauses := range map[cause][]time.Duration{silent: {10, 20, 40, 47, 47}, refused: {2, 4, 8, 10, 10}, clockDiffers: {2, 4, 8, 10, 10}} {
		now := time.Now()
		c := newClosed(why, now)
		require.False(t, c.claim(now), "it was just found closed")
		for _, pause := range pauses {
			now = c.next
			require.True(t, c.claim(now))
			require.False(t, c.claim(now), "one at a time")
			require.Equal(t, pause*time.Second, c.wait(now))
			require.False(t, c.claim(c.next), "however long it takes")
			require.Equal(t, time.Second, c.wait(c.next.Add(-time.Millisecond)))
			require.Equal(t, pause*time.Second, c.wait(c.next))
			c.probing = false
		}
		require.True(t, c.readsProbe(c.next), "one is read to ask with")
		require.False(t, c.readsProbe(c.next))
		require.True(t, c.readsProbe(c.next.Add(time.Second)), "and another, if nothing came of it")
		require.False(t, c.over(c.next.Add(causes[why].quiet)))
		require.True(t, c.over(c.next.Add(causes[why].quiet+1)))
	}
}

func TestRefusals(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one", UndeliverableAfter: time.Minute})
	outs, missing, clock := fl.outlets, kerr.UnknownTopicOrPartition, kerr.InvalidTimestamp
	require.False(t, fl.Due.refusedForNow("a", nil))
	require.True(t, fl.Due.refusedForNow("a", missing))
	g := outs.byKey[outletKey{"a", -1}]
	first := g.closed.next
	require.True(t, fl.Due.refusedForNow("a", missing), "another of those that were sent together")
	require.Equal(t, first, g.closed.next)
	now := time.Now()
	require.Equal(t, g, outs.closing(outletKey{"a", 3}, now), "it is about the whole topic")
	require.Nil(t, outs.closing(outletKey{"b", 3}, now), "another target")

	g.closed.next = now.Add(-time.Second)
	require.True(t, fl.Due.refusedForNow("a", missing))
	require.True(t, g.closed.next.After(now), "an answer that came late")

	g.closed.ends = now
	require.False(t, fl.Due.refusedForNow("a", missing), "patience is over")
	require.Nil(t, outs.closing(outletKey{"a", 3}, now), "now each is sent, and told what becomes of it")
	require.Equal(t, 1, fl.Figures().RefusedTargets)
	g.closed.next = now.Add(-causes[refused].quiet - time.Second)
	require.True(t, fl.Due.refusedForNow("a", missing), "nothing was sent for long: patience begins anew")

	require.False(t, fl.Due.refusedForNow("a", clock))
	require.Equal(t, g, outs.closing(outletKey{"a", 3}, now.Add(time.Hour)), "a clock may be wrong for long")
	require.Equal(t, []int{1, 0}, []int{fl.Figures().ClockRefused, fl.Figures().RefusedTargets})
	require.True(t, fl.Due.refusedForNow("a", missing), "another reason has patience of its own")
	require.Equal(t, []int{0, 1}, []int{fl.Figures().ClockRefused, fl.Figures().RefusedTargets})

	ends := g.closed.ends
	outs.fallsSilent(g)
	require.True(t, fl.Due.refusedForNow("a", missing), "of another partition")
	require.True(t, g.silent())
	fl.Due.respondsAgain(g)
	require.Equal(t, ends, g.closed.ends, "a silence between does not begin patience anew")

	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	fl.Outcomes.sendLater(&Task{slot: l, seq: 7, pos: 50, at: 40, content: &content{topic: "a", due: 40, outletKey: outletKey{"a", 3}, settings: schemas.DefaultSettings()}}, missing)
	require.False(t, fl.Due.refusedForNow("a", nil))
	require.Nil(t, g.closed, "it takes records")
	require.Len(t, fl.inbox.recalls, 1, "and what was put off")
}

// No pause between attempts makes the wait for a target longer than the configuration says.
func TestRefusalsRestNoLongerThanTheirPatience(t *testing.T) {
	now := time.Now()
	c := newClosed(refused, now)
	c.ends = now.Add(6500 * time.Millisecond)
	for _, pause := range []time.Duration{2, 4} {
		now = c.next
		require.True(t, c.claim(now))
		require.LessOrEqual(t, c.wait(now), pause*time.Second)
		c.probing = false
	}
	require.Equal(t, c.ends, c.next, "the pause would be 4 s")
	require.Equal(t, time.Millisecond, c.wait(c.ends.Add(-time.Millisecond)), "of a task that came later")
	require.False(t, c.final(c.ends.Add(-1)))
	require.True(t, c.final(c.ends))
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
			g.closed.next = time.Now()
			asker := one(1)
			l.tasks = append(l.tasks, asker)
			require.True(t, fl.admits(asker, nowMillis()))
			require.True(t, g.closed.probing)
			g.since = time.Now().Add(-2 * time.Second)
			fl.Outcomes.checkOutlets()
			require.NotEqual(t, g, asker.with)
			fl.Due.Answered(asker, Answer{Err: err})
			g.closed.next = time.Now()
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
	require.Empty(t, fl.Outcomes.forgetClosed(now.Add(causes[refused].quiet)))
	require.True(t, g.refuses())
	require.Empty(t, fl.Outcomes.forgetClosed(now.Add(causes[refused].quiet+causes[refused].longest)))
	require.False(t, g.refuses())
	require.True(t, g.silent())
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
	g.closed.next = time.Now()
	require.False(t, fl.admits(one(2), nowMillis()))
	require.Zero(t, g.closed.asked)
	fl.outlets.buffered.tasks = 0
	require.True(t, fl.admits(one(3), nowMillis()))
	require.Len(t, fl.inbox.transitions, 2)
}
