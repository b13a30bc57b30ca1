package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight/target"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// What waits for an origin that answers too slowly gives way where room is scarce: one after the other, and not beyond its lateness.
func TestWaitingCallbacksGiveWayOneAfterTheOther(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one", StageTasks: 10})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	now := fl.clock.Millis()
	g := &Outlet{outletKey: outletKey{"https://a", -1}, origin: fl.outlets.origins.Keep("https://a"), since: time.Now()}
	fl.outlets.byKey[g.outletKey] = g
	for seq := range int64(10) {
		w := &Task{slot: l, seq: seq, status: staged, content: &content{topic: "https://a", due: now, outletKey: g.outletKey, settings: schemas.DefaultSettings(), record: &kgo.Record{}, call: &callback.Request{}}}
		fl.staging.add(w)
		fl.outlets.waits(g, append(g.waiting, w))
	}
	w := g.waiting[0]
	w.call.Body = []byte("what staging counts")
	g.waiting[9].settings.MaxLateness = time.Second
	fl.mu.Lock()
	fl.Bodies.giveWay()
	fl.mu.Unlock()
	require.Empty(t, g.waiting)
	require.Equal(t, &callback.Request{}, w.call, "staging does not count its body any more")
	leaving, _, _ := fl.inbox.takeLeaving(0)
	require.Len(t, leaving, 10)
	for i := range 8 {
		require.Greater(t, leaving[i+1].Pos, leaving[i].Pos)
	}
	require.GreaterOrEqual(t, leaving[0].Pos, now+unsentPause.Milliseconds())
	require.LessOrEqual(t, leaving[9].Pos, now+1001)
}

// A callback that is put off when it was read, because its origin does not answer, keeps nothing of its value either: staging never counts it.
func TestAParkedCallbackKeepsNoValue(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one", StageTasks: 10})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	g := &Outlet{outletKey: outletKey{"https://a", -1}, origin: fl.outlets.origins.Keep("https://a"), since: time.Now()}
	g.origin.Bar().Close(target.Down, time.Now())
	fl.outlets.byKey[g.outletKey] = g
	w := &Task{slot: l, seq: 1, content: &content{topic: "https://a", due: fl.clock.Millis(), settings: schemas.DefaultSettings(), body: []byte("value"),
		record: &kgo.Record{Topic: "https://a"}, call: &callback.Request{Method: "PUT", Body: []byte("value")}}}
	require.Empty(t, (&Batch{machine: fl.machine}).parkUnsent([]*Task{w}))
	require.Nil(t, w.record)
	require.Nil(t, w.body)
	require.Empty(t, w.call.Body, "nobody counts it")
}

func TestParking(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one", StageTasks: 2})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	now := time.Now()
	g := &Outlet{outletKey: outletKey{"x", 0}, silence: silentSince(now)}
	fl.outlets.byKey[g.outletKey] = g
	parkable := func(seq int64, due int64) *Task {
		return &Task{slot: l, seq: seq, pos: 50, at: due, content: &content{topic: "x", due: due, settings: schemas.DefaultSettings()}}
	}
	for seq := range int64(fl.parkedMost() + 10) {
		fl.putOff(parkable(seq, 100_000-seq), g)
	}
	require.Len(t, l.parked, fl.parkedMost(), "a bound")
	require.Len(t, fl.inbox.transitions, fl.parkedMost()+10, "on what is remembered alone")

	unread := &Task{slot: l, seq: 3, pos: 60, lane: 7}
	require.True(t, fl.Bodies.parksAgain(unread))
	last := fl.inbox.transitions[len(fl.inbox.transitions)-1]
	require.Equal(t, task.StateLine, last.State, "as what it is")
	require.Greater(t, last.Pos, now.UnixMilli())
	require.False(t, fl.Bodies.parksAgain(&Task{slot: &ownedSlot{}, seq: 3}), "another line knows nothing of it")
	require.False(t, fl.Bodies.parksAgain(&Task{slot: l, seq: int64(fl.parkedMost())}), "it was too much to remember")

	g.silence = silentSince(now.Add(-time.Minute))
	require.False(t, fl.Bodies.parksAgain(unread), "the target is to be asked")
	require.True(t, fl.Bodies.parksAgain(&Task{slot: l, seq: 4, pos: 60}), "by one")

	l.parked[5].expires = 1
	require.False(t, fl.Bodies.parksAgain(&Task{slot: l, seq: 5}), "its time is over")

	fl.Due.respondsAgain(g)
	require.Empty(t, l.parked)
	require.Zero(t, fl.parked)
	var order []int64
	for _, e := range fl.inbox.recalls {
		require.True(t, e.Recall)
		order = append(order, e.Seq)
	}
	require.Len(t, order, fl.parkedMost()-2)
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
			fl := newFlight(t, Config{MemberID: "one"})
			l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
			fl.slots[0] = l
			g := &Outlet{outletKey: outletKey{"x", 0}, silence: silentSince(time.Now())}
			fl.outlets.byKey[g.outletKey] = g
			fl.Outcomes.sendLater(&Task{slot: l, seq: 7, pos: 50, at: 40, content: &content{topic: "x", due: 40, outletKey: g.outletKey, settings: schemas.DefaultSettings()}}, c.err)
			require.Equal(t, c.state, fl.inbox.transitions[0].State)
			require.Greater(t, fl.inbox.transitions[0].Pos, time.Now().UnixMilli())
			fl.Due.respondsAgain(g)
			require.Len(t, fl.inbox.recalls, 1)
			require.Equal(t, int64(40), fl.inbox.recalls[0].Pos)
		})
	}
}

// Tasks were put off while it was not known which partitions their topic has. The one that is to ask goes to its partition, so nobody
// would ask for the others: they are called back, to be judged by theirs.
func TestParkedTasksAreRejudged(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	ask := func(seq int64) *Task {
		record := &kgo.Record{Topic: "x", Key: []byte("k")}
		return &Task{slot: l, seq: seq, pos: 50, at: 40, content: &content{topic: "x", due: 40, record: record, settings: schemas.DefaultSettings()}}
	}
	g := &Outlet{outletKey: outletKey{"x", -1}, silence: silentSince(time.Now())}
	fl.outlets.byKey[g.outletKey] = g
	reads := func(asking *Task) {
		g.silence = silentSince(time.Now().Add(-time.Minute))
		require.False(t, fl.Bodies.parksAgain(asking))
	}
	for seq := range int64(4) {
		fl.putOff(ask(seq), g)
	}
	same := ask(0)
	reads(same)
	require.True(t, fl.admits(same, nowMillis()))
	require.Empty(t, fl.inbox.recalls, "it goes where it was to ask")

	fl.outlets.where.ForTopic("x").Partition(ask(9).record, 1) // the producer learns of the partition
	other := ask(1)
	reads(other)
	require.True(t, fl.admits(other, nowMillis()))
	require.Equal(t, outletKey{"x", 0}, other.outletKey)
	require.Len(t, fl.inbox.recalls, 2)
	require.Empty(t, l.parked)
}

// The memory of parked tasks goes with their slot, however that goes. An opening calls back what is left, once.
func TestParkedTasksGoWithTheirSlot(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	g, other := &Outlet{outletKey: outletKey{"x", 0}, silence: silentSince(time.Now())}, &Outlet{outletKey: outletKey{"x", 1}, silence: silentSince(time.Now())}
	slots := map[int]*ownedSlot{}
	for n := range 5 {
		slots[n] = &ownedSlot{number: n, epoch: 5, claimed: 100}
		fl.slots[n] = slots[n]
		for seq := range int64(3) {
			one := &Task{slot: slots[n], seq: int64(10*n) + seq, pos: 50, at: 40, content: &content{topic: "x", due: 40, settings: schemas.DefaultSettings()}}
			fl.putOff(one, []*Outlet{g, g, other}[seq])
			fl.putOff(one, []*Outlet{g, g, other}[seq]) // again: it is remembered once
		}
	}
	require.Equal(t, 15, fl.parked)
	fl.abandon(slots[0], "it is lost")
	fl.Owning.Released([]int{1}, 5, nil)
	(&Splitting{machine: fl.machine, slot: slots[2]}).End(true)
	fl.gates.hold(newGate("x", 100), &Task{slot: slots[3], seq: 30, content: &content{topic: "x"}}, 0)
	require.Equal(t, 5, fl.parked)
	fl.recallParked(g)
	require.Equal(t, 2, fl.parked, "those of another partition")
	var back []int64
	for _, e := range fl.inbox.recalls {
		back = append(back, e.Seq)
	}
	require.ElementsMatch(t, []int64{31, 40, 41}, back)
	fl.recallParked(g, other)
	require.Len(t, fl.inbox.recalls, 5)
	require.Zero(t, fl.parked)
}
