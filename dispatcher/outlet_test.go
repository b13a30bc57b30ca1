package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

func TestSilentTargetDelaysOnlyItself(t *testing.T) {
	f := newFixture(t, 4, "silent", "lively")
	silent, lively, events := f.read("silent"), f.read("lively"), f.read(results)
	answer := f.mute("silent")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond})
	due := time.Now()
	f.schedule(append(askMany(20, "silent", "s", due, schemas.HeaderEvents, "all"), askMany(20, "lively", "l", due, schemas.HeaderEvents, "none")...)...)
	f.eventually("the other is not held up", func() bool { return lively.count() == 20 })
	f.eventually("it is found sick", func() bool { return counted(d.metrics.unresponsive) == 1 })
	require.Equal(t, []string{"silent"}, d.Unresponsive())
	f.eventually("done moves on", func() bool { return f.settledUpTo(due) })
	require.Equal(t, 20, d.inside(func() int { return len(d.flight.stuck) }))

	again := time.Now() // what is due while it is sick is not sent at all, and can be cancelled
	f.schedule(append(append(askMany(5, "silent", "put-off", again, schemas.HeaderEvents, "all"), askMany(20, "lively", "again", again, schemas.HeaderEvents, "none")...),
		ask("silent", "cancelled", again, schemas.HeaderPriority, "low"))...) // the first of them may be sent to ask, the last not
	f.eventually("the other is not held up", func() bool { return lively.count() == 40 })
	f.eventually("they are put off", func() bool { return counted(d.metrics.postponed) >= 5 })
	f.eventually("done moves on", func() bool { return f.settledUpTo(again) })
	f.eventually("it can be cancelled", func() bool {
		v, err := f.store.Get(t.Context(), "silent", "cancelled")
		return err == nil && v.State == "pending"
	})
	f.cancel("silent", "cancelled")
	require.Zero(t, silent.count())

	answer()
	f.eventually("what it has is acknowledged, the rest sent", func() bool { return len(silent.copies()) == 25 })
	f.eventually("every end is told", func() bool {
		return len(events.events(t, schemas.StateDispatched)) == 25 && len(events.events(t, schemas.StateSucceeded)) == 25
	})
	f.eventually("nothing is left with the producer", func() bool { return d.inside(func() int { return len(d.flight.stuck) }) == 0 })
	f.eventually("all is settled", func() bool { return d.inside(func() int { return d.flight.entries }) == 0 })
	require.Equal(t, 25, silent.count(), "each once")
	require.NotContains(t, silent.copies(), "cancelled")
	for id, told := range events.events(t, schemas.StateSucceeded) {
		require.Len(t, told, 1, id)
		require.Equal(t, 1, told[0].Attempt)
	}
	for i := range 20 {
		v, err := f.store.Get(t.Context(), "silent", fmt.Sprint("s", i))
		require.NoError(t, err)
		require.Contains(t, []string{"succeeded", "delivered"}, v.State)
		require.Equal(t, 1, v.Attempt)
	}
	require.Len(t, lively.copies(), 40)
	require.Equal(t, 40, lively.count())
}

// The producer gave a task back, and what follows is not decided yet, for the database is slow. Meanwhile its target is found
// unresponsive: the task is not set aside as one that is unanswered, nor let go of twice.
func TestAnsweredTaskIsNotSetAside(t *testing.T) {
	fl := newInFlight(alone(t, Config{UnresponsiveAfter: time.Second}))
	outs := newOutlets(fl)
	s := newSender(newParking(fl, outs), nil, nil, newCalls(nil), nil, kafka.Config{})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	g := &outlet{outletKey: outletKey{"x", -1}}
	outs.byKey[g.outletKey] = g
	for seq := range int64(2) {
		sent := &claimedTask{slot: l, seq: seq, pos: 50, at: 50, status: sending,
			content: &content{topic: "x", due: 50, size: 10, outletKey: g.outletKey, settings: schemas.DefaultSettings(), record: &kgo.Record{Topic: "x", Key: []byte("k")}}}
		l.tasks = append(l.tasks, sent)
		outs.beginSending(g, sent)
	}
	given, unanswered := l.tasks[0], l.tasks[1]
	outs.where.ForTopic("x").Partition(unanswered.record, 1) // the producer learns of the partition
	s.answered(given, given.record, kerr.RequestTimedOut)
	g.since = time.Now().Add(-time.Minute)
	s.checkOutlets()
	require.NotContains(t, fl.stuck, given.seq)
	require.Contains(t, fl.stuck, unanswered.seq)
	require.Equal(t, buffered{1, 10}, outs.buffered)
	require.Equal(t, outletKey{"x", 0}, unanswered.with.outletKey)
	require.NotContains(t, outs.byKey, g.outletKey, "it holds nothing any more")
	s.answered(unanswered, unanswered.record, nil)
	require.Equal(t, buffered{}, outs.buffered)
}

// Origins that do not answer leave half of the room to Kafka's targets, however many they are and however large their requests.
func TestOriginsLeaveHalfOfTheRoom(t *testing.T) {
	for name, size := range map[string]int{"number": 1, "bytes": 50} {
		t.Run(name, func(t *testing.T) {
			sh := alone(t, Config{MemberID: "one", StageTasks: 100, StageBytes: 1000})
			fl := newInFlight(sh)
			outs := newOutlets(fl)
			newParking(fl, outs)
			n := 0
			for ; n < 1000; n++ {
				g := &outlet{outletKey: outletKey{fmt.Sprintf("https://hook-%d.example", n), -1}, origin: true}
				call := &claimedTask{content: &content{topic: g.topic, size: size}}
				if !outs.hasRoom(g, call) {
					break
				}
				outs.beginSending(g, call)
			}
			require.Equal(t, min(50, 500/size), n)
			require.True(t, outs.hasRoom(&outlet{outletKey: outletKey{"orders", 0}}, &claimedTask{content: &content{}}))
		})
	}
}

// A target that is not in use is forgotten, though its last task never went to a producer: callers name as many as they like.
func TestIdleTargetsAreForgotten(t *testing.T) {
	f := newFixture(t, 1, "x")
	d := f.stepped(f.elect(5), Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	d.flight.slots[0] = l
	for seq := range int64(10) {
		topic := fmt.Sprint("mistyped", seq)
		d.sender.outlets.refusals.refused(topic, false, time.Now())
		held := &claimedTask{slot: l, seq: seq, content: &content{topic: topic, record: &kgo.Record{Topic: topic}, settings: schemas.DefaultSettings()}}
		require.False(t, d.sender.admit(held, nowMillis(), false))
	}
	d.sender.checkOutlets()
	require.Empty(t, d.sender.outlets.byKey)
}

// The producer itself refuses a record that is too large. That says nothing of a target which answers nothing.
func TestOnlyATargetShowsThatItIsThere(t *testing.T) {
	f := newFixture(t, 1, "x")
	d := f.stepped(f.elect(5), Config{MemberID: "one"})
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
		g := &outlet{outletKey: outletKey{"x", 0}, sending: 1}
		d.sender.outlets.byKey[g.outletKey] = g
		sent := &claimedTask{content: &content{topic: "x", outletKey: g.outletKey}}
		d.sender.outlets.beginSending(g, sent)
		g.since = before
		d.sender.answeredBy(sent, &kgo.Record{}, c.err, c.alone)
		require.Equal(t, c.there, g.since.After(before), name)
	}
}
