package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/recordtest"
	"github.com/notyet/notyet/timer"
)

// pages is a store whose timers are made in so many pages, each of which may fail first.
type pages struct {
	left    int
	err     error
	failing int
	calls   int
	upTo    int64
	never   bool // the call does not return before its context ends
	retired int
}

func (p *pages) MakeRuns(ctx context.Context, owned []store.SlotEpoch, upTo, _ int64, _ time.Duration, _ map[[16]byte]bool) (intake.Made, error) {
	p.calls++
	p.upTo = upTo
	if p.never {
		<-ctx.Done()
		return intake.Made{}, ctx.Err()
	}
	if p.failing > 0 {
		p.failing--
		return intake.Made{}, p.err
	}
	if p.left == 0 || len(owned) == 0 {
		return intake.Made{}, nil
	}
	p.left--
	return intake.Made{Runs: 3, Timers: 1, Added: make([]store.Place, 3)}, nil
}

func (p *pages) RetireTimers(context.Context, int64) (int, error) {
	p.retired++
	return 0, nil
}

func runnerOf(p *pages) (*runMaker, *int, *int) {
	made, fenced := new(int), new(int)
	return &runMaker{
		store: p, now: func() int64 { return time.Now().UnixMilli() }, owned: func() []store.SlotEpoch { return []store.SlotEpoch{{Slot: 0, Epoch: 1}} },
		stored: func(_ context.Context, m intake.Made) { *made += len(m.Added) }, fenced: func(context.Context) { *fenced++ }, kick: make(flight.Kick, 1),
		cfg: Config{MisfireAfter: time.Minute, Retention: time.Hour}, log: zap.NewNop(),
	}, made, fenced
}

func TestRunsAreMadePageByPage(t *testing.T) {
	for name, c := range map[string]struct {
		pages  pages
		fenced int
	}{
		"at once":                       {pages: pages{left: 4}},
		"after the database failed":     {pages: pages{left: 4, failing: 3, err: errors.New("away")}},
		"after another took a slot":     {pages: pages{left: 4, failing: 2, err: store.ErrFenced}, fenced: 2},
		"nothing, but timers to forget": {pages: pages{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, made, fenced := runnerOf(&c.pages)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				want := 3 * c.pages.left
				r.run(ctx)
				require.Equal(t, want, *made)
				require.Equal(t, c.fenced, *fenced)
				require.Equal(t, 1, c.pages.retired, "once a minute")
				require.Less(t, c.pages.calls, 30, "it rests between two looks")
			})
		})
	}
}

// TestASetTimerDoesNotWaitForTheNextLook: its scanner has kicked.
func TestASetTimerDoesNotWaitForTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pages{left: 1}
		r, made, _ := runnerOf(p)
		ctx, cancel := context.WithTimeout(t.Context(), runEvery/2)
		defer cancel()
		r.kick.Now()
		r.run(ctx)
		require.Equal(t, 3, *made)
	})
}

// TestMakingRunsThatNeverAnswersIsGivenUp: the loop ends with its context, and tries again before that.
func TestMakingRunsThatNeverAnswersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pages{never: true}
		r, _, _ := runnerOf(p)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		r.run(ctx)
		require.GreaterOrEqual(t, p.calls, 2)
	})
}

// TestTimersRun: on a real store and broker; the runs of every second, with the headers of their timer.
func TestTimersRun(t *testing.T) {
	f := newFixture(t, 4, "orders")
	events, orders := f.read(results), f.read("orders")
	set := &kgo.Record{Topic: "intake", Value: []byte("v"), Timestamp: time.Now(), Headers: []kgo.RecordHeader{
		{Key: schemas.HeaderOp, Value: []byte("timer")}, {Key: schemas.HeaderTopic, Value: []byte("orders")}, {Key: schemas.HeaderID, Value: []byte("t")},
		{Key: schemas.HeaderEvery, Value: []byte("1s")}, {Key: "a", Value: []byte("1")}, {Key: schemas.HeaderTag, Value: []byte("vip,shop:7")},
	}}
	f.schedule(set)
	f.start(f.elect(1), f.TempDir(), Config{})
	f.eventually("five runs", func() bool { return orders.count() >= 5 })
	for _, r := range orders.all() {
		require.Equal(t, "t", recordtest.Header(r, schemas.HeaderTimer))
		require.Equal(t, "1", recordtest.Header(r, "a"))
		require.Equal(t, "vip,shop:7", recordtest.Header(r, schemas.HeaderTag))
		require.Equal(t, timer.RunID("t", dueOf(t, r)), recordtest.Header(r, schemas.HeaderID))
		require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), dueOf(t, r)-1)
	}
	for id, n := range orders.copies() {
		require.Equal(t, 1, n, id)
	}
	f.eventually("their events", func() bool { return len(events.events(t, schemas.StateSucceeded)) >= 5 })
}

func dueOf(t *testing.T, r *kgo.Record) int64 {
	due, err := strconv.ParseInt(recordtest.Header(r, schemas.HeaderDue), 10, 64)
	require.NoError(t, err)
	return due
}

// TestMissedRunsAreDroppedAtTheirRelease: those that were made before an outage.
func TestMissedRunsAreDroppedAtTheirRelease(t *testing.T) {
	f := newFixture(t, 1, "orders")
	events, orders := f.read(results), f.read("orders")
	accepted := time.Now().Add(-10 * time.Minute)
	set := &kgo.Record{Topic: "intake", Value: []byte("v"), Timestamp: accepted, Headers: []kgo.RecordHeader{
		{Key: schemas.HeaderOp, Value: []byte("timer")}, {Key: schemas.HeaderTopic, Value: []byte("orders")}, {Key: schemas.HeaderID, Value: []byte("t")},
		{Key: schemas.HeaderEvery, Value: []byte("2m")}, {Key: schemas.HeaderMisfire, Value: []byte("once")},
	}}
	f.schedule(set)
	epoch, err := intake.New(f.store).Line().NextEpoch(t.Context())
	require.NoError(t, err)
	_, err = intake.New(f.store).Line().Acquire(t.Context(), f.slots, epoch, "before")
	require.NoError(t, err)
	// An owner of ten minutes ago made the runs of the first five minutes, and went.
	made, err := intake.New(f.store).MakeRuns(t.Context(), []store.SlotEpoch{{Slot: 0, Epoch: epoch}}, accepted.Add(5*time.Minute).UnixMilli(), accepted.UnixMilli(), time.Minute, map[[16]byte]bool{})
	require.NoError(t, err)
	require.Equal(t, 3, made.Runs)
	d := f.start(f.elect(epoch+1), f.TempDir(), Config{})
	f.eventually("0 to 6 min are dropped", func() bool { return len(events.events(t, schemas.StateDead)) == 4 })
	f.eventually("the run of 8 min stands in for them, and that of 10 min is on time", func() bool { return orders.count() == 2 })
	for id, list := range events.events(t, schemas.StateDead) {
		require.Equal(t, schemas.KindMissed, list[0].Kind, id)
		require.Zero(t, orders.copies()[id])
	}
	count, _, err := letters.New(f.store).Count(t.Context(), letters.Filter{}, 0)
	require.NoError(t, err)
	require.Zero(t, count, "a dropped run has no dead letter")
	require.Equal(t, 4, counted(d.metrics.DroppedRuns.WithLabelValues(flight.DropMissed)))
	require.Zero(t, counted(d.metrics.DroppedRuns.WithLabelValues(flight.DropOverlap)))
}

func TestPagesBeginBehindTheLastSlot(t *testing.T) {
	owned := []store.SlotEpoch{{Slot: 1}, {Slot: 4}, {Slot: 6}}
	for last, want := range map[int][]int{0: {1, 4, 6}, 1: {4, 6, 1}, 3: {4, 6, 1}, 5: {6, 1, 4}, 6: {1, 4, 6}, 9: {1, 4, 6}} {
		var got []int
		for _, h := range behind(owned, last) {
			got = append(got, h.Slot)
		}
		require.Equal(t, want, got, last)
	}
	require.Empty(t, behind(nil, 3))
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
	const long = 480      // as many as the limit lets through in two minutes
	for i := range long { // 5 s of it, and then as many as the limit lets through
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
	require.Less(t, orders.count(), long, "while there is a backlog")
}
