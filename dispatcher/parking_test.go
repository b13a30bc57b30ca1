package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// The tasks of a target that does not answer are read once, and then put off again and again without their bodies and without a word
// in the send log. When it answers, it gets each.
func TestBacklogOfASilentTargetIsReadOnce(t *testing.T) {
	f := newFixture(t, 2, "silent", "lively")
	answer := f.refuse("silent", kerr.NotEnoughReplicas)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond, StageTasks: 8000})
	const n = 10_000
	f.schedule(ask("silent", "first", time.Now()))
	f.eventually("it is found unresponsive", func() bool { return counted(d.metrics.unresponsive) == 1 })
	began := time.Now()
	for i := range 5 {
		f.schedule(askMany(n/5, "silent", fmt.Sprint("s", i, "-"), time.Now())...)
	}
	f.eventually("all are put off", func() bool { return d.inside(d.flight.parkedTasks) >= n-1 })
	const few = 20 // that went to ask, and what each took along
	require.LessOrEqual(t, counted(d.metrics.bodies), n+few)
	read, off := counted(d.metrics.bodies), counted(d.metrics.postponed)
	f.eventually("and put off again", func() bool { return counted(d.metrics.postponed) >= off+n-few })
	require.LessOrEqual(t, counted(d.metrics.bodies), read+few)
	intents := 0
	require.NoError(t, d.sent.Replay(t.Context(), began.Add(-time.Minute), func(e sendlog.Entry) error {
		if e.Intent != nil {
			intents++
		}
		return nil
	}))
	require.LessOrEqual(t, intents, few)

	answer()
	silent := f.read("silent")
	// A machine that is slow has come to the longest pause between two questions by now.
	require.Eventually(t, func() bool { return len(silent.copies()) == n+1 }, 2*longestProbePause, 10*time.Millisecond, "each arrives")
	f.eventually("all is settled", func() bool { return d.inside(func() int { return d.flight.entries }) == 0 })
	require.Zero(t, d.inside(d.flight.parkedTasks))
	require.Equal(t, n+1, silent.count(), "once")
}

// What is put off without its body expires when it is time, and comes back by itself if nobody calls it.
func TestParkedTaskExpires(t *testing.T) {
	f := newFixture(t, 2, "silent")
	f.refuse("silent", kerr.NotEnoughReplicas)
	events := f.read(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond})
	f.schedule(ask("silent", "first", time.Now()))
	f.eventually("it is found unresponsive", func() bool { return counted(d.metrics.unresponsive) == 1 })
	due := time.Now()
	f.schedule(askMany(20, "silent", "s", due, schemas.HeaderMaxLateness, "4s")...)
	f.eventually("they expire", func() bool { return len(events.events(t, schemas.StateDead)) >= 19 }) // one may have been sent to ask
	for id, told := range events.events(t, schemas.StateDead) {
		require.Equal(t, schemas.KindExpired, told[0].Kind, id)
		require.GreaterOrEqual(t, told[0].At, due.Add(4*time.Second).UnixMilli())
	}
}

func TestParking(t *testing.T) {
	f := newFixture(t, 1, "x")
	d := f.stepped(f.elect(5), Config{MemberID: "one", StageTasks: 2})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	d.flight.slots[0] = l
	now := time.Now()
	g := &outlet{outletKey: outletKey{"x", 0}, outage: newOutage(now)}
	d.sender.outlets.byKey[g.outletKey] = g
	parkable := func(seq int64, due int64) *claimedTask {
		return &claimedTask{slot: l, seq: seq, pos: 50, at: due, content: &content{topic: "x", due: due, settings: schemas.DefaultSettings()}}
	}
	for seq := range int64(d.sender.parking.parkedMost() + 10) {
		d.sender.parking.putOff(parkable(seq, 100_000-seq), g)
	}
	require.Len(t, l.parked, d.sender.parking.parkedMost(), "a bound")
	require.Len(t, d.flight.inbox.transitions, d.sender.parking.parkedMost()+10, "on what is remembered alone")

	unread := &claimedTask{slot: l, seq: 3, pos: 60, lane: 7}
	require.True(t, d.sender.parking.parksAgain(unread))
	last := d.flight.inbox.transitions[len(d.flight.inbox.transitions)-1]
	require.Equal(t, task.StateLine, last.State, "as what it is")
	require.Greater(t, last.Pos, now.UnixMilli())
	require.False(t, d.sender.parking.parksAgain(&claimedTask{slot: &ownedSlot{}, seq: 3}), "another line knows nothing of it")
	require.False(t, d.sender.parking.parksAgain(&claimedTask{slot: l, seq: int64(d.sender.parking.parkedMost())}), "it was too much to remember")

	g.outage.next = now.Add(-time.Second)
	require.False(t, d.sender.parking.parksAgain(unread), "the target is to be asked")
	require.True(t, d.sender.parking.parksAgain(&claimedTask{slot: l, seq: 4, pos: 60}), "by one")

	l.parked[5] = parked{outletKey: g.outletKey, expires: 1}
	require.False(t, d.sender.parking.parksAgain(&claimedTask{slot: l, seq: 5}), "its time is over")

	d.sender.parking.respondsAgain(g)
	require.Empty(t, l.parked)
	var order []int64
	for _, e := range d.flight.inbox.recalls {
		require.True(t, e.Recall)
		order = append(order, e.Seq)
	}
	require.Len(t, order, d.sender.parking.parkedMost()-2)
	require.Equal(t, []int64{4, 2, 1, 0}, order[len(order)-4:], "by due time")
}

// What a producer gave back is called back too when its target answers: it does not wait for the second probe after that.
func TestGivenBackIsParked(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		state task.State
	}{
		"perhaps sent": {kerr.RequestTimedOut, task.StateRetry},
		"not sent":     {kafka.ErrNotSent, task.StateLine},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "x")
			d := f.stepped(f.elect(5), Config{MemberID: "one"})
			l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
			d.flight.slots[0] = l
			g := &outlet{outletKey: outletKey{"x", 0}, outage: newOutage(time.Now())}
			d.sender.outlets.byKey[g.outletKey] = g
			d.sender.sendLater(&claimedTask{slot: l, seq: 7, pos: 50, at: 40, content: &content{topic: "x", due: 40, outletKey: g.outletKey, settings: schemas.DefaultSettings()}}, c.err)
			require.Equal(t, c.state, d.flight.inbox.transitions[0].State)
			require.Greater(t, d.flight.inbox.transitions[0].Pos, time.Now().UnixMilli())
			d.sender.parking.respondsAgain(g)
			require.Len(t, d.flight.inbox.recalls, 1)
			require.Equal(t, int64(40), d.flight.inbox.recalls[0].Pos)
		})
	}
}

// Tasks were put off while it was not known which partitions their topic has. The one that is to ask goes to its partition, so nobody
// would ask for the others: they are called back, to be judged by theirs.
func TestParkedTasksAreRejudged(t *testing.T) {
	f := newFixture(t, 1, "x")
	d := f.stepped(f.elect(5), Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	d.flight.slots[0] = l
	ask := func(seq int64) *claimedTask {
		record := &kgo.Record{Topic: "x", Key: []byte("k")}
		return &claimedTask{slot: l, seq: seq, pos: 50, at: 40, content: &content{topic: "x", due: 40, record: record, settings: schemas.DefaultSettings()}}
	}
	g := &outlet{outletKey: outletKey{"x", -1}, outage: newOutage(time.Now())}
	d.sender.outlets.byKey[g.outletKey] = g
	reads := func(t *claimedTask) {
		g.outage.next, g.outage.let = time.Now().Add(-time.Second), time.Time{}
		require.False(f, d.sender.parking.parksAgain(t))
	}
	for seq := range int64(4) {
		d.sender.parking.putOff(ask(seq), g)
	}
	same := ask(0)
	reads(same)
	require.True(t, d.sender.admit(same, nowMillis(), false))
	require.Empty(t, d.flight.inbox.recalls, "it goes where it was to ask")
	g.outage.probing = false

	require.NoError(t, d.client.ProduceSync(t.Context(), ask(9).record).FirstErr())
	other := ask(1)
	reads(other)
	require.True(t, d.sender.admit(other, nowMillis(), false))
	require.Equal(t, outletKey{"x", 0}, other.outletKey)
	require.Len(t, d.flight.inbox.recalls, 2)
	require.Empty(t, l.parked)
}
