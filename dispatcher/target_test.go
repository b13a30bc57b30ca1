package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
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
	f.eventually("done moves on", func() bool { return f.settledUpTo(due) })
	require.Equal(t, 20, d.inside(func() int { return len(d.stuck) }))

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
	f.eventually("nothing is left with the producer", func() bool { return d.inside(func() int { return len(d.stuck) }) == 0 })
	f.eventually("all is settled", func() bool { return d.inside(func() int { return d.entries }) == 0 })
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

// A task that was set aside unanswered, and is claimed again while it still is, must not be sent beside itself.
func TestStuckTaskIsNotSentAgainByItsOwner(t *testing.T) {
	t.Parallel()
	d := &Dispatcher{clock: new(store.Store).NewClock(), cfg: Config{}, stuck: map[int64]*claimedTask{}, targets: map[outlet]*target{}, fetching: newFetchQueue(), fetchKick: newKick(), settleKick: newKick()}
	l := &ownedSlot{number: 0, epoch: 5}
	original := &claimedTask{slot: l, seq: 9, status: left, content: &content{attempt: 2}}
	d.stuck[9] = original
	d.enter(map[int]*ownedSlot{0: l}, []store.Entry{{Slot: 0, Pos: 50, Seq: 9}, {Slot: 0, Pos: 51, Seq: 10}}, false)
	require.Equal(t, 1, d.fetching.size)
	require.Equal(t, int64(10), d.fetching.take(1, never)[0].seq)
	require.Len(t, d.transitions, 1)
	require.Equal(t, task.StateRetry, d.transitions[0].State)
	require.Equal(t, 2, d.transitions[0].Attempt)
	require.Greater(t, d.transitions[0].Pos, nowMillis()+8_000)

	original.answered = true // and when its end is on the way, it only has to get out of the way
	d.transitions = nil
	d.enter(map[int]*ownedSlot{0: l}, []store.Entry{{Slot: 0, Pos: 90, Seq: 9}}, false)
	require.Zero(t, d.fetching.size)
	require.Empty(t, d.transitions)
	require.Equal(t, leaving, l.tasks[len(l.tasks)-1].status)
}

// The late answer of a task that was set aside is about to end it when its slot is lost: that end is lost with it. Should the slot come
// back, the task is claimed and sent like any other; it held up its line for ever. One that is unanswered still is with the producer.
func TestAnsweredTasksOfALostSlotAreForgotten(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(d *Dispatcher, l *ownedSlot){
		"abandoned": func(d *Dispatcher, l *ownedSlot) { d.abandon(l, "a test") },
		"forgotten": func(d *Dispatcher, l *ownedSlot) { delete(d.lines, l.number); d.forgetAnswered(l) },
	} {
		t.Run(name, func(t *testing.T) {
			d := &Dispatcher{clock: new(store.Store).NewClock(), cfg: Config{}, log: zap.NewNop(), stuck: map[int64]*claimedTask{}, lines: map[int]*ownedSlot{}, targets: map[outlet]*target{}, fetching: newFetchQueue(), fetchKick: newKick(), settleKick: newKick(), ownKick: newKick()}
			d.metrics = newMetrics(prometheus.NewRegistry(), d)
			l := &ownedSlot{number: 0, epoch: 5}
			d.lines[0] = l
			for seq := range int64(3) {
				other := l
				if seq == 2 {
					other = &ownedSlot{number: 1}
				}
				d.stuck[seq] = &claimedTask{slot: other, seq: seq, status: left, answered: seq != 1, content: &content{attempt: 2}}
			}
			lose(d, l)
			require.Len(t, d.stuck, 2)
			require.Contains(t, d.stuck, int64(1), "unanswered")
			require.Contains(t, d.stuck, int64(2), "of another slot")

			again := &ownedSlot{number: 0, epoch: 6}
			d.enter(map[int]*ownedSlot{0: again}, []store.Entry{{Slot: 0, Pos: 50, Seq: 0}}, false)
			require.Equal(t, 1, d.fetching.size)
			require.Equal(t, entered, again.tasks[0].status)
		})
	}
}

// The results topic does not answer, and a slot is to be given away: what was delivered is told from the database before it goes.
func TestSilentResultsDoNotHoldUpAHandOver(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders, events := f.read("orders"), f.read(results)
	answer := f.mute(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 10 * time.Minute, DrainTimeout: 20 * time.Second})
	f.schedule(askMany(20, "orders", "o", time.Now(), schemas.HeaderEvents, "all")...)
	f.eventually("they are delivered", func() bool { return orders.count() == 20 })
	require.NoError(t, d.end())
	slots, err := f.store.Slots(t.Context())
	require.NoError(t, err)
	for _, s := range slots {
		require.Equal(t, s.Claimed, s.Done, "nothing is in doubt")
		require.Empty(t, s.Owner)
	}
	answer()
	f.start(f.elect(6), t.TempDir(), Config{MemberID: "two"})
	f.eventually("every end is told", func() bool { return len(events.events(t, schemas.StateSucceeded)) == 20 })
	require.Equal(t, 20, orders.count(), "each once")
}

// The results topic does not answer: what has been delivered is neither sent again nor holds up its line, and is told later.
func TestSilentResultsHoldUpNothing(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders, events := f.read("orders"), f.read(results)
	answer := f.mute(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond})
	due := time.Now()
	f.schedule(askMany(20, "orders", "o", due, schemas.HeaderEvents, "all")...)
	f.eventually("done moves on", func() bool { return orders.count() == 20 && f.settledUpTo(due) })
	require.Zero(t, d.inside(func() int { return len(d.stuck) + len(d.untold) + d.staging.tasks }))
	for i := range 20 {
		v, err := f.store.Get(t.Context(), "orders", fmt.Sprint("o", i))
		require.NoError(t, err)
		require.Equal(t, "delivered", v.State, "nothing is written for each")
	}
	require.Zero(t, events.count())

	answer()
	f.eventually("every end is told", func() bool {
		return len(events.events(t, schemas.StateDispatched)) == 20 && len(events.events(t, schemas.StateSucceeded)) == 20
	})
	require.Equal(t, 20, orders.count(), "each once")
}

func TestTooLateBecomesADeadLetter(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders, events := f.read("orders"), f.read(results)
	due := time.Now().Add(-10 * time.Second)
	f.schedule(
		ask("orders", "stale", due, schemas.HeaderMaxLateness, "5s"),
		ask("orders", "quiet", due, schemas.HeaderMaxLateness, "5s", schemas.HeaderEvents, "none"),
		ask("orders", "patient", due, schemas.HeaderMaxLateness, "1h", schemas.HeaderEvents, "all"),
		ask("orders", "eternal", due),
	)
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.eventually("the others are delivered", func() bool { return orders.count() == 2 })
	f.eventually("it is told", func() bool { return len(events.events(t, schemas.StateDead)) == 1 })
	require.Equal(t, map[string]int{"patient": 1, "eternal": 1}, orders.copies())
	dead, err := f.store.DeadLetters(t.Context(), store.DeadFilter{})
	require.NoError(t, err)
	require.Len(t, dead, 2)
	for _, d := range dead {
		require.Equal(t, schemas.KindExpired, d.Kind)
		require.Equal(t, due.UnixMilli(), d.Due)
		require.Contains(t, d.Reason, "notyet-max-lateness 5s")
		body, err := schemas.DecodeBody(d.Body)
		require.NoError(t, err)
		require.Equal(t, "body of "+d.TaskID, string(body.Value))
		v, err := f.store.Get(t.Context(), "orders", d.TaskID)
		require.NoError(t, err)
		require.Equal(t, "dead", v.State)
	}
	told := events.events(t, schemas.StateDead)["stale"]
	require.Len(t, told, 1)
	require.Equal(t, "orders", told[0].Topic)
	require.Equal(t, due.UnixMilli(), told[0].Due)
	require.NotEmpty(t, told[0].Reason)
	require.Equal(t, schemas.KindExpired, told[0].Kind)
}

func TestUnknownTargetBecomesADeadLetter(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders, events := f.read("orders"), f.read(results)
	due := time.Now()
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UndeliverableAfter: -1})
	f.schedule(ask("ordres", "mistyped", due), ask("orders", "right", due))
	f.eventually("the other is delivered", func() bool { return orders.count() == 1 })
	f.eventually("it is given up", func() bool { return f.settledUpTo(due) })
	dead, err := f.store.DeadLetters(t.Context(), store.DeadFilter{})
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, "mistyped", dead[0].TaskID)
	require.Equal(t, schemas.KindUndeliverable, dead[0].Kind)
	f.eventually("it is told", func() bool { return len(events.events(t, schemas.StateDead)) == 1 })
	require.Equal(t, schemas.KindUndeliverable, events.events(t, schemas.StateDead)["mistyped"][0].Kind)
	require.Equal(t, 1, counted(d.metrics.dead.WithLabelValues(schemas.KindUndeliverable)))
}

func TestDeliversWithoutTheIndex(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	first := time.Now().Add(50 * time.Millisecond)
	f.schedule(askMany(10, "orders", "before", first)...)
	f.eventually("they are delivered", func() bool { return f.settledUpTo(first) && orders.count() == 10 })
	f.redis.Close()
	second := time.Now().Add(time.Second)
	f.schedule(askMany(10, "orders", "after", second)...)
	f.eventually("they are delivered", func() bool { return f.settledUpTo(second) && orders.count() == 20 })
	require.Len(t, orders.copies(), 20)
	require.NotZero(t, counted(d.metrics.indexErrors))
	for _, r := range orders.all() {
		require.False(t, r.Timestamp.Before(first.Truncate(time.Millisecond)), "early")
	}
}

// With room for few, the most urgent are read and sent first, though the others came before them.
func TestUrgentTasksGoFirst(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	due := time.Now().Add(-time.Second)
	var requests []*kgo.Record
	for _, class := range []string{"low", "normal", "high"} {
		requests = append(requests, askMany(20, "orders", class+"-", due, schemas.HeaderPriority, class)...)
	}
	f.schedule(requests...)
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", StageTasks: 8})
	f.eventually("all arrive", func() bool { return orders.count() == 60 })
	for i, r := range orders.all() {
		class := []string{"high", "normal", "low"}[i/20]
		require.Equal(t, fmt.Sprintf("%s-%d", class, i%20), header(r, schemas.HeaderID), "and of each class in the order of their arrival")
	}
}

// cancel stores a cancel and requires that it is answered with cancelled.
func (f *fixture) cancel(topic, id string) {
	f.Helper()
	done := f.schedule(&kgo.Record{Topic: "intake", Timestamp: time.Now(), Headers: []kgo.RecordHeader{
		{Key: schemas.HeaderOp, Value: []byte("cancel")}, {Key: schemas.HeaderTopic, Value: []byte(topic)}, {Key: schemas.HeaderID, Value: []byte(id)}}})
	require.Len(f, done.Events, 1)
	require.Equal(f, schemas.StateCancelled, done.Events[0].Events[0].State)
}

// Deliveries keep going however long the results topic does not answer, and with more events than there is room for.
func TestSilentResultsNeverStopDeliveries(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders := f.read("orders")
	f.mute(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond, StageTasks: 40})
	for round := range 12 { // each is half of what the producer of deliveries held
		due := time.Now()
		f.schedule(askMany(40, "orders", fmt.Sprint(round, "-"), due)...)
		d.sweepKick.now()
		f.eventually("they are delivered", func() bool { return orders.count() == 40*(round+1) })
		f.eventually("done moves on", func() bool { return f.settledUpTo(due) })
	}
	require.Positive(t, counted(d.metrics.deferredEvents))
	require.Len(t, orders.copies(), 12*40)
}

// The producer gave a task back, and what follows is not decided yet, for the database is slow. Meanwhile its target is found
// unresponsive: the task is not set aside as one that is unanswered, nor let go of twice.
func TestAnsweredTaskIsNotSetAside(t *testing.T) {
	f := newFixture(t, 1)
	f.partitioned("x", 1)
	d := f.stepped(f.elect(5), Config{MemberID: "one", UnresponsiveAfter: time.Second})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	d.lines[0] = l
	g := &target{outlet: outlet{"x", -1}}
	d.targets[g.outlet] = g
	for seq := range int64(2) {
		sent := &claimedTask{slot: l, seq: seq, pos: 50, at: 50, status: sending,
			content: &content{topic: "x", due: 50, size: 10, outlet: g.outlet, settings: schemas.DefaultSettings(), record: &kgo.Record{Topic: "x", Key: []byte("k")}}}
		l.tasks = append(l.tasks, sent)
		d.beginSending(g, sent)
	}
	given, unanswered := l.tasks[0], l.tasks[1]
	d.where.ForTopic("x").Partition(unanswered.record, 1) // the producer learns of the partition
	d.answered(given, given.record, kerr.RequestTimedOut)
	g.since = time.Now().Add(-time.Minute)
	d.checkTargets()
	require.NotContains(t, d.stuck, given.seq)
	require.Contains(t, d.stuck, unanswered.seq)
	require.Equal(t, flight{1, 10}, d.flight)
	require.Equal(t, outlet{"x", 0}, unanswered.with.outlet)
	require.NotContains(t, d.targets, g.outlet, "it holds nothing any more")
	d.answered(unanswered, unanswered.record, nil)
	require.Equal(t, flight{}, d.flight)
}

// A target that is not in use is forgotten, though its last task never went to a producer: callers name as many as they like.
func TestIdleTargetsAreForgotten(t *testing.T) {
	f := newFixture(t, 1, "x")
	d := f.stepped(f.elect(5), Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	d.lines[0] = l
	for seq := range int64(10) {
		topic := fmt.Sprint("mistyped", seq)
		d.refusals.refused(topic, time.Now())
		held := &claimedTask{slot: l, seq: seq, content: &content{topic: topic, record: &kgo.Record{Topic: topic}, settings: schemas.DefaultSettings()}}
		require.False(t, d.admit(held, nowMillis(), false))
	}
	d.checkTargets()
	require.Empty(t, d.targets)
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
		g := &target{outlet: outlet{"x", 0}, sending: 1}
		d.targets[g.outlet] = g
		sent := &claimedTask{content: &content{topic: "x", outlet: g.outlet}}
		d.beginSending(g, sent)
		g.since = before
		d.answeredBy(sent, &kgo.Record{}, c.err, c.alone)
		require.Equal(t, c.there, g.since.After(before), name)
	}
}
