package dispatcher

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// retention is a store whose tasks end at a steady rate, in a time that the test moves, and the owners that forget them.
type retention struct {
	*testing.T
	store  *store.Store
	source intake.Source
	now    int64
	rows   int // stored and not forgotten

	mu      sync.Mutex // guards rows and what follows while a round goes on
	calls   int        // statements of owners, about
	retired map[string]int
}

func newRetention(t *testing.T, slots int) *retention {
	r := &retention{T: t, now: 1_700_000_000_000, retired: map[string]int{}}
	var err error
	r.store, err = store.Open(t.Context(), store.Config{DSN: "sqlite::memory:"}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.store.Close() })
	require.NoError(t, r.store.Migrate(t.Context(), slots))
	r.source, err = intake.New(r.store).Source(t.Context(), "intake", [16]byte{7}, 0, 0)
	require.NoError(t, err)
	all := make([]int, slots)
	for i := range all {
		all[i] = i
	}
	_, err = intake.New(r.store).Line().Acquire(t.Context(), all, 1, "me")
	require.NoError(t, err)
	return r
}

// owner is one dispatcher's retirer. It never rests.
func (r *retention) owner(name string, slotCount int, slots ...int) *taskRetirer {
	return &taskRetirer{store: countedStore{r, name}, slotCount: slotCount, slots: func() []int { return slots }, retired: prometheus.NewCounter(prometheus.CounterOpts{}),
		log: zap.NewNop(), pause: func(context.Context, time.Duration) {}, every: time.Hour}
}

// countedStore counts what an owner asks of the database.
type countedStore struct {
	r    *retention
	name string
}

func (c countedStore) Retire(ctx context.Context, piece line.Range) (int, line.Range, error) {
	n, rest, err := intake.New(c.r.store).Line().Retire(ctx, piece)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.calls++
	c.r.rows -= n
	c.r.retired[c.name] += n
	return n, rest, err
}

func (c countedStore) NextEnded(ctx context.Context, after int64) (int64, bool, error) {
	c.r.mu.Lock()
	c.r.calls++
	c.r.mu.Unlock()
	return intake.New(c.r.store).Line().NextEnded(ctx, after)
}

// second lets n tasks be scheduled and end within a second: half are cancelled, a quarter reported, a quarter delivered.
func (r *retention) second(n int) {
	r.Helper()
	ctx := r.Context()
	r.now += 1000
	var b intake.Batch
	add := func(op schemas.Op, id string) {
		request := schemas.NewRequest(op, "orders", id)
		request.Accepted = r.now
		if op == schemas.OpSchedule {
			request.Key, request.Due = []byte(id), r.now
		}
		b.Changes = append(b.Changes, task.Change{Seq: task.Seq(r.source.ID, r.source.Next+int64(len(b.Changes))), Request: &request})
	}
	for i := range n {
		id := strconv.FormatInt(r.now, 10) + "-" + strconv.Itoa(i)
		add(schemas.OpSchedule, id)
		if i%2 == 0 {
			add(schemas.OpCancel, id)
		}
	}
	b.Advance = []intake.Advance{{Source: r.source.ID, From: r.source.Next, To: r.source.Next + int64(len(b.Changes))}}
	_, err := intake.New(r.store).Apply(ctx, b, store.At(r.now))
	require.NoError(r, err)
	r.source.Next = b.Advance[0].To
	r.rows += n
	r.settle(n / 4)
}

// settle ends what is due: so many by their report, the others by their delivery.
func (r *retention) settle(reported int) {
	r.Helper()
	slots, err := r.store.Slots(r.Context())
	require.NoError(r, err)
	var done []line.Done
	var exits []line.Transition
	for _, s := range slots {
		require.NoError(r, claimTo(r.Context(), r.store, []int{s.Slot}, 1, r.now))
		entries, err := intake.New(r.store).Line().Entries(r.Context(), []line.Range{{Slot: s.Slot, From: s.Done, To: r.now}})
		require.NoError(r, err)
		var tally line.Tally
		for _, e := range entries {
			if reported > 0 {
				reported--
				exits = append(exits, line.Transition{Seq: e.Seq, Slot: s.Slot, Epoch: 1, State: task.StateSucceeded, Attempt: 1, Lane: e.Lane})
				continue
			}
			tally.Add(e.Seq)
		}
		done = append(done, line.Done{Slot: s.Slot, Epoch: 1, From: s.Done, To: r.now, Tally: tally})
	}
	settled, err := intake.New(r.store).Line().Settle(r.Context(), done, exits, store.At(r.now))
	require.NoError(r, err)
	require.Empty(r, settled.Mismatch)
}

// However tasks end, and whoever owns the slots, the rows stay below twice what the retention holds.
func TestRetentionKeepsUpWithTheRate(t *testing.T) {
	const slots, rate, keep = 4, 100, time.Minute
	r := newRetention(t, slots)
	owners := []*taskRetirer{r.owner("a", slots, 0, 2), r.owner("b", slots, 1, 3)}
	most, next := 0, int64(0)
	for range 4 * 60 {
		r.second(rate)
		most = max(most, r.rows)
		if r.now < next {
			continue
		}
		next = r.now + retireEvery(keep).Milliseconds()
		for _, o := range owners {
			require.NoError(t, o.round(t.Context(), r.now-keep.Milliseconds()))
		}
	}
	require.Less(t, most, 2*rate*int(keep.Seconds()), "rows")
	require.InDelta(t, r.retired["a"], r.retired["b"], float64(r.retired["a"]+r.retired["b"])/4, "the owners share the work: %v", r.retired)
	gone, ok, err := intake.New(r.store).Line().NextEnded(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Greater(t, gone, r.now-keep.Milliseconds()-retireEvery(keep).Milliseconds()-1000)
}

// After an outage a round forgets all that has piled up, in full bites: what it costs grows with the rows, not with anything else.
func TestRetiringWhatHasPiledUp(t *testing.T) {
	r := newRetention(t, 4)
	for range 4 {
		r.second(4000)
	}
	o := r.owner("a", 4, 0, 1, 2, 3)
	var rests atomic.Int64
	o.pause = func(context.Context, time.Duration) { rests.Add(1) }
	require.NoError(t, o.round(t.Context(), r.now))
	require.Zero(t, r.rows)
	require.Equal(t, 16_000, r.retired["a"])
	bites := int(rests.Load())
	require.LessOrEqual(t, bites, 16_000/line.RetireBite+4+4, "a rest after each bite; one that is not full for each slot and window")
	require.LessOrEqual(t, r.calls, bites+4+4+1)
}

// A round that is not over when the next is due rests no more: with rests a full database would never let it catch up.
func TestRetiringLate(t *testing.T) {
	r := newRetention(t, 2)
	r.second(4000)
	o := r.owner("a", 2, 0, 1)
	o.every = 0
	o.pause = func(context.Context, time.Duration) { t.Error("rested") }
	require.NoError(t, o.round(t.Context(), r.now))
	require.Zero(t, r.rows)
}

// A stop is heeded between two bites, and an error leaves the rest to the next round.
func TestRetiringStops(t *testing.T) {
	r := newRetention(t, 1)
	r.second(4000)
	o := r.owner("a", 1, 0)
	ctx, stop := context.WithCancel(t.Context())
	o.pause = func(context.Context, time.Duration) { stop() }
	require.ErrorIs(t, o.round(ctx, r.now), context.Canceled)
	require.LessOrEqual(t, r.retired["a"], 2*line.RetireBite, "one bite in the line and one out of it")
	o.pause = func(context.Context, time.Duration) {}
	require.NoError(t, o.round(t.Context(), r.now))
	// A bite that was stopped may have been forgotten all the same, so they are counted, not summed up.
	left, err := intake.New(r.store).Line().Count(t.Context(), []line.Range{{To: r.now}, {Slot: task.OutOfLine, To: r.now}})
	require.NoError(t, err)
	require.Empty(t, left)
}

// A program of an older version places tasks in slots that were given up. However many it places, and whatever keeps them from being moved
// home, the others are forgotten in time; and the index learns of those that were moved.
func TestRetiringBesideAnOlderProgram(t *testing.T) {
	given := func(t *testing.T) (*fixture, *Dispatcher, func(id string)) {
		f := newFixture(t, 4, "orders")
		f.schedule(ask("orders", "ended", time.Now().Add(-2*time.Hour)))
		f.sql("UPDATE slots SET base = 2, spread = 2, target = 2; UPDATE slots SET done = 1, claimed = 1; UPDATE tasks SET slot = 3, pos = 1")
		d := f.stepped(f.elect(1), Config{Retention: time.Hour})
		d.flight.Owning.Took([]store.Slot{{Slot: 0}}, 1, nil, nil)
		return f, d, func(id string) {
			f.schedule(ask("orders", id, time.Now().Add(time.Minute)))
			f.sql("UPDATE tasks SET slot = 3 WHERE pos > 1")
		}
	}
	rows := func(t *testing.T, f *fixture) map[int]int {
		count := map[int]int{}
		for slot := range 4 {
			left, err := intake.New(f.store).Line().Count(t.Context(), []line.Range{{Slot: slot, To: 1 << 60}})
			require.NoError(t, err)
			for _, n := range left {
				count[slot] += n
			}
		}
		return count
	}
	t.Run("they go home", func(t *testing.T) {
		f, d, place := given(t)
		place("a")
		place("b")
		require.NoError(t, d.retirer.round(t.Context()))
		left := rows(t, f)
		require.Zero(t, left[3])
		require.Equal(t, 2, left[0]+left[1])
		known := 0
		for slot := range 2 {
			entries, err := d.indexer.index.Range(t.Context(), slot, 0, 1<<60)
			require.NoError(t, err)
			known += len(entries)
		}
		require.Equal(t, 2, known)
	})
	t.Run("it never rests", func(t *testing.T) {
		f, d, place := given(t)
		d.retirer.tasks.every = 100 * time.Millisecond
		placed := 0
		d.retirer.tasks.pause = func(context.Context, time.Duration) {
			place(fmt.Sprint(placed))
			placed++
			require.Less(t, placed, 1000)
		}
		place("first")
		require.NoError(t, d.retirer.round(t.Context()))
		ended, err := intake.New(f.store).Line().Count(t.Context(), []line.Range{{Slot: 3, To: 1}})
		require.NoError(t, err)
		require.Empty(t, ended)
	})
	t.Run("they cannot be moved", func(t *testing.T) {
		f, d, place := given(t)
		place("a")
		f.sql("CREATE TRIGGER no BEFORE UPDATE OF slot ON tasks BEGIN SELECT RAISE(ABORT, 'no'); END")
		require.Error(t, d.retirer.round(t.Context()))
		require.Equal(t, map[int]int{3: 1}, rows(t, f), "the one that ended")
	})
}

func TestRetireEvery(t *testing.T) {
	for keep, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: 6 * time.Second, 7 * 24 * time.Hour: time.Minute} {
		require.Equal(t, want, retireEvery(keep), fmt.Sprint(keep))
	}
}

// Dead letters belong to no slot: the owner of slot 0 forgets the old ones, all of them, and measures what is left; others show nothing.
func TestRetiringDeadLetters(t *testing.T) {
	for _, c := range []struct {
		name      string
		slots     []int
		retention time.Duration
		left, say int
	}{
		{"the owner of slot 0", []int{0, 1}, time.Hour, 2, 2},
		{"another", []int{1}, time.Hour, 452, 0},
		{"nobody", nil, time.Hour, 452, 0},
		{"without a retention", []int{0}, 0, 452, 452},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, 2, "orders")
			dead := func(n int, at time.Time) {
				b := intake.Batch{Advance: []intake.Advance{{Source: f.source.ID, From: f.source.Next, To: f.source.Next + int64(n)}}}
				for i := range int64(n) {
					seq := task.Seq(f.source.ID, f.source.Next+i)
					b.Changes = append(b.Changes, task.Change{Seq: seq, Rejected: &task.DeadLetter{Seq: seq, Kind: schemas.KindRejected, Topic: "orders", TaskID: fmt.Sprint(seq)}})
				}
				_, err := intake.New(f.store).Apply(t.Context(), b, store.At(at.UnixMilli()))
				require.NoError(t, err)
				f.source.Next += int64(n)
			}
			dead(450, time.Now().Add(-2*time.Hour)) // some bites
			dead(2, time.Now())
			d := f.stepped(f.elect(1), Config{DeadRetention: c.retention})
			d.metrics.letters.Set(7) // of an earlier owner's time
			d.metrics.letterBytes.Set(7)
			for _, slot := range c.slots {
				d.flight.Owning.Took([]store.Slot{{Slot: slot}}, 1, nil, nil)
			}
			require.NoError(t, d.retirer.letters(t.Context()))
			count, _, err := letters.New(f.store).Measure(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, c.left, count)
			require.Equal(t, c.say, gauged(t, d.metrics.letters))
			require.Equal(t, c.say > 0, gauged(t, d.metrics.letterBytes) > 0)
		})
	}
}

// The audit log belongs to no slot either.
func TestRetiringTheAuditLog(t *testing.T) {
	for _, c := range []struct {
		name      string
		slots     []int
		retention time.Duration
		left      int
	}{
		{"the owner of slot 0", []int{0, 1}, time.Millisecond, 0},
		{"younger than that", []int{0}, time.Hour, 2000},
		{"another", []int{1}, time.Millisecond, 2000},
		{"nobody", nil, time.Millisecond, 2000},
		{"without a retention", []int{0}, 0, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, 2, "orders")
			require.NoError(t, admin.New(f.store).Audit(t.Context(), make([]admin.AuditEntry, 2000))) // some bites
			d := f.stepped(f.elect(1), Config{AuditRetention: c.retention})
			for _, slot := range c.slots {
				d.flight.Owning.Took([]store.Slot{{Slot: slot}}, 1, nil, nil)
			}
			count := func() int {
				page, err := look.New(d.store).ListAudit(t.Context(), look.AuditFilter{Limit: 5000})
				require.NoError(t, err)
				return len(page.Entries)
			}
			require.NoError(t, d.retirer.audit(t.Context()))
			require.Eventually(t, func() bool { // they may not be a millisecond old yet
				require.NoError(t, d.retirer.audit(t.Context()))
				return count() == c.left
			}, time.Minute, time.Millisecond)
		})
	}
}

// The tags of a task go with it, in the round of the owner of slot 0.
func TestRetiringTags(t *testing.T) {
	for _, c := range []struct {
		slot, left int
	}{{0, 0}, {1, 2}} {
		t.Run(fmt.Sprint("the owner of slot ", c.slot), func(t *testing.T) {
			f := newFixture(t, 2, "orders")
			for _, op := range []schemas.Op{schemas.OpSchedule, schemas.OpCancel} {
				request := schemas.NewRequest(op, "orders", "a")
				request.Due, request.Settings.Tag = time.Now().Add(time.Hour).UnixMilli(), "vip,shop:7"
				_, err := intake.New(f.store).Apply(t.Context(), intake.Batch{
					Advance: []intake.Advance{{Source: f.source.ID, From: f.source.Next, To: f.source.Next + 1}},
					Changes: []task.Change{{Seq: task.Seq(f.source.ID, f.source.Next), Request: &request}},
				}, store.At(time.Now().Add(-2*time.Hour).UnixMilli()))
				require.NoError(t, err)
				f.source.Next++
			}
			page, err := look.New(f.store).List(t.Context(), look.ListFilter{Tag: "vip", State: "cancelled"})
			require.NoError(t, err)
			require.Len(t, page.Tasks, 1)
			d := f.stepped(f.elect(1), Config{})
			d.flight.Owning.Took([]store.Slot{{Slot: c.slot}}, 1, nil, nil)
			_, _, err = intake.New(f.store).Line().Retire(t.Context(), line.Range{Slot: task.OutOfLine, To: time.Now().UnixMilli()})
			require.NoError(t, err)
			require.NoError(t, d.retirer.round(t.Context()))
			left, _, err := intake.New(f.store).Line().SweepTags(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, c.left, left)
		})
	}
}

func gauged(t *testing.T, g prometheus.Gauge) int {
	reg := prometheus.NewRegistry()
	reg.MustRegister(g)
	families, err := reg.Gather()
	require.NoError(t, err)
	return int(families[0].GetMetric()[0].GetGauge().GetValue())
}
