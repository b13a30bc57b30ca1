package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/recordtest"
)

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
	id := recordtest.Header(orders.all()[0], schemas.HeaderID)
	f.report(schemas.Report{Topic: "orders", ID: id, Attempt: 1, Status: schemas.StatusOK})
	f.eventually("the next run", func() bool { return orders.count() == 2 })
	require.NotEqual(t, id, recordtest.Header(orders.all()[1], schemas.HeaderID))
	for _, list := range events.events(t, schemas.StateDead) {
		require.Equal(t, schemas.KindMissed, list[0].Kind)
		require.Contains(t, list[0].Reason, "notyet-overlap")
	}
	require.GreaterOrEqual(t, counted(d.metrics.DroppedRuns.WithLabelValues(flight.DropOverlap)), 3)
	require.Zero(t, counted(d.metrics.DroppedRuns.WithLabelValues(flight.DropMissed)))
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
	f.policy("orders", admin.Policy{Rate: 4})
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
			if recordtest.Header(r, schemas.HeaderTimer) != "" {
				n++
			}
		}
		return n
	}
	f.eventually("runs are dropped", func() bool { return counted(d.metrics.DroppedRuns.WithLabelValues(flight.DropMissed)) >= 3 })
	before := runs()
	f.eventually("a run comes", func() bool { return runs() > before })
	require.Less(t, orders.count(), 110, "while there is a backlog")
}
