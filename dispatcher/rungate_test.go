package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// TestWhichRunsAreMissed: late ones, but not what may have been sent, and not what was fired when it was late. The database is asked about
// them.
func TestWhichRunsAreMissed(t *testing.T) {
	for name, c := range map[string]struct {
		late    time.Duration
		change  func(t *claimedTask)
		dropped bool
	}{
		"in time":                 {late: time.Minute},
		"late":                    {late: time.Minute + time.Millisecond, dropped: true},
		"late, in doubt":          {late: time.Hour, change: func(t *claimedTask) { t.doubt = true }},
		"late, second attempt":    {late: time.Hour, change: func(t *claimedTask) { t.attempt = 1 }},
		"late, a replay":          {late: time.Hour, change: func(t *claimedTask) { t.replay = 1 }},
		"late, set aside":         {late: time.Hour, change: func(t *claimedTask) { t.state = task.StateRetry }},
		"late, fired":             {late: time.Hour, change: func(t *claimedTask) { t.due = t.settings.Run.DropFrom + 1 }},
		"late, started":           {late: time.Hour, change: func(t *claimedTask) { t.started = true }},
		"late, but never dropped": {late: time.Hour, change: func(t *claimedTask) { t.settings.Run.DropFrom = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			fl := newInFlight(alone(t, Config{}))
			g := newRunGate(fl)
			now := g.clock.Millis()
			run := &claimedTask{slot: &ownedSlot{}, content: &content{settings: schemas.DefaultSettings()}}
			run.settings.Run = schemas.Run{Timer: "t", DropFrom: now - c.late.Milliseconds()}
			if c.change != nil {
				c.change(run)
			}
			require.Equal(t, !c.dropped, g.admit(run, now))
			if !c.dropped {
				require.Empty(t, g.take())
				return
			}
			require.True(t, g.starts(g.take())[0].Missed)
			g.drop(run, store.RunMissed)
			require.Equal(t, task.StateDead, fl.inbox.transitions[0].State)
			require.Nil(t, fl.inbox.transitions[0].Dead)
			require.Equal(t, 1, counted(fl.metrics.droppedRuns.WithLabelValues(dropMissed)))
		})
	}
}

// TestAMissedRunIsNoDeadLetter: where it is too late for its notyet-max-lateness too.
func TestAMissedRunIsNoDeadLetter(t *testing.T) {
	fl := newInFlight(alone(t, Config{}))
	s := newSender(newParking(fl, newOutlets(fl)), nil, nil, newCalls(nil), nil, kafka.Config{})
	run := &claimedTask{slot: &ownedSlot{}, content: &content{settings: schemas.DefaultSettings()}}
	run.settings.MaxLateness, run.settings.Run = time.Second, schemas.Run{Timer: "t", DropFrom: 1}
	require.False(t, s.admit(run, s.clock.Millis(), false))
	s.runs.drop(run, store.RunMissed)
	require.Nil(t, fl.inbox.transitions[0].Dead)
	require.Equal(t, schemas.KindMissed, fl.inbox.transitions[0].events[0].Kind)
}

// TestRunsThatMustBeAloneWait: in the order in which they are due, a bounded number at a time; the slots that were lost meanwhile are left out.
func TestRunsThatMustBeAloneWait(t *testing.T) {
	fl := newInFlight(alone(t, Config{}))
	g := newRunGate(fl)
	now := g.clock.Millis()
	var all []*claimedTask
	for i := range overlapMost + 3 {
		run := &claimedTask{seq: int64(i), slot: &ownedSlot{abandoned: i == 1}, content: &content{settings: schemas.DefaultSettings()}}
		run.settings.Run = schemas.Run{Timer: "t", Alone: true}
		require.False(t, g.admit(run, now))
		all = append(all, run)
	}
	first := g.take()
	require.Equal(t, all[:overlapMost], first)
	require.Len(t, g.starts(first), overlapMost-1)
	require.Len(t, g.take(), 3)
	require.Empty(t, g.take())
	all[0].started = true
	require.True(t, g.admit(all[0], now))
}

// TestNoRunWhileOneIsUnfinished: on a real store and broker. The consumer reports on the first run late; those meanwhile are dropped.
func TestNoRunWhileOneIsUnfinished(t *testing.T) {
	f := newFixture(t, 4, "orders")
	events, orders := f.read(results), f.read("orders")
	set := ask("orders", "t", time.Now(), schemas.HeaderOp, "timer", schemas.HeaderEvery, "1s", schemas.HeaderOverlap, "skip", schemas.HeaderAck, "report")
	set.Headers = set.Headers[:len(set.Headers)-1] // a timer has no notyet-at
	f.schedule(set)
	d := f.start(f.elect(1), f.TempDir(), Config{})
	f.eventually("the first run", func() bool { return orders.count() == 1 })
	f.eventually("runs are dropped", func() bool { return len(events.events(t, schemas.StateDead)) >= 3 })
	require.Equal(t, 1, orders.count())
	id := header(orders.all()[0], schemas.HeaderID)
	f.report(schemas.Report{Topic: "orders", ID: id, Attempt: 1, Status: schemas.StatusOK})
	f.eventually("the next run", func() bool { return orders.count() == 2 })
	require.NotEqual(t, id, header(orders.all()[1], schemas.HeaderID))
	for _, list := range events.events(t, schemas.StateDead) {
		require.Equal(t, schemas.KindMissed, list[0].Kind)
		require.Contains(t, list[0].Reason, "notyet-overlap")
	}
	require.GreaterOrEqual(t, counted(d.metrics.droppedRuns.WithLabelValues(dropOverlap)), 3)
	require.Zero(t, counted(d.metrics.droppedRuns.WithLabelValues(dropMissed)))
}

// report stores a consumer's report as a scanner does.
func (f *fixture) report(r schemas.Report) {
	f.Helper()
	f.change(task.Change{Seq: task.Seq(f.source.ID, f.source.Next), Report: &r})
}

// TestATimerFiresBehindALongBacklog: longer than its period and the tolerance together, for as long as the test takes.
func TestATimerFiresBehindALongBacklog(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	f.policy("orders", store.Policy{Rate: 4})
	d := f.start(f.elect(1), f.TempDir(), Config{MisfireAfter: time.Second})
	f.eventually("owned", func() bool { return d.owned() == 1 })
	now := time.Now()
	set := ask("orders", "t", now, schemas.HeaderOp, "timer", schemas.HeaderEvery, "1s")
	set.Headers = set.Headers[:len(set.Headers)-1] // a timer has no notyet-at
	backlog := []*kgo.Record{set}
	for i := range 120 { // 5 s of it, and then as many as the limit lets through
		backlog = append(backlog, ask("orders", fmt.Sprint(i), now.Add(time.Duration(i-20)*250*time.Millisecond)))
	}
	f.schedule(backlog...)
	runs := func() (n int) {
		for _, r := range orders.all() {
			if header(r, schemas.HeaderTimer) != "" {
				n++
			}
		}
		return n
	}
	f.eventually("runs are dropped", func() bool { return counted(d.metrics.droppedRuns.WithLabelValues(dropMissed)) >= 3 })
	before := runs()
	f.eventually("a run comes", func() bool { return runs() > before })
	require.Less(t, orders.count(), 110, "while there is a backlog")
}
