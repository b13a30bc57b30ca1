package dispatcher

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
)

// rounds counts how often the claim loop asks whether it is trusted: once a round.
type rounds struct {
	*members
	n atomic.Int64
}

func (r *rounds) Trusted() bool { r.n.Add(1); return true }

// A line is claimed far beyond the look-ahead: before a burst that look-ahead was longer, or the database's clock was set back.
// What comes now and is due now is claimed at once, and the loop neither spins nor claims ahead by as much again.
func TestUrgentTasksBehindWhatIsClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		beyond time.Duration
		woken  bool
		within time.Duration
	}{
		"after a burst":                        {3 * time.Second, true, 10 * time.Millisecond},
		"after a burst, the wake is lost":      {3 * time.Second, false, flight.SweepEvery + 10*time.Millisecond},
		"after the clock was set back":         {time.Hour, true, 10 * time.Millisecond},
		"the same, and nothing tells of tasks": {time.Hour, false, flight.SweepEvery + 10*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				st, err := store.Open(ctx, store.Config{DSN: "sqlite::memory:"}, zap.NewNop())
				require.NoError(t, err)
				defer st.Close()
				require.NoError(t, st.Migrate(ctx, 1))
				src, err := intake.New(st).Source(ctx, "intake", [16]byte{7}, 0, 0)
				require.NoError(t, err)
				f := &fixture{T: t, store: st, slots: []int{0}, source: src}
				ix, err := index.New(index.Config{Addrs: []string{"127.0.0.1:1"}}, zap.NewNop()) // away: it is a hint
				require.NoError(t, err)
				defer func() { ix.Close(); time.Sleep(2 * time.Second) }() // its dialling ends within a second
				m := &rounds{members: f.elect(5)}
				d, err := New(Deps{Kafka: kafka.Config{Brokers: []string{"127.0.0.1:1"}}, Store: st, Index: ix, Members: m, Metrics: prometheus.NewRegistry(), Log: zap.NewNop()},
					Config{MemberID: "one", Results: results, BurstLookAhead: time.Millisecond})
				require.NoError(t, err)
				defer d.closeClients(t.Context())
				defer d.results.Close(0)
				_, err = d.ownership.follow(ctx)
				require.NoError(t, err)
				beyond := nowMillis() + c.beyond.Milliseconds()
				require.NoError(t, claimTo(ctx, st, []int{0}, 5, beyond))
				slots, err := st.Slots(ctx)
				require.NoError(t, err)
				require.NoError(t, d.ownership.catchUp(ctx, slots))

				wakes := make(chan []index.SlotPos)
				ended := make(chan struct{})
				go func() { defer close(ended); d.claimer.claimRounds(ctx, wakes) }()
				time.Sleep(50 * time.Millisecond)
				const tasks = 20
				for i := range tasks {
					due := time.Now()
					f.schedule(ask("orders", string(rune('a'+i)), due, schemas.HeaderEvents, "none"))
					if c.woken {
						wakes <- []index.SlotPos{{Slot: 0, Pos: due.UnixMilli()}}
					}
					time.Sleep(c.within)
					require.Equal(t, i+1, d.flight.Figures().Claimed, "claimed within %v", c.within)
				}
				claimed := d.flight.Look(0).Claimed
				require.LessOrEqual(t, claimed, max(beyond, nowMillis()+d.cfg.LookAhead.Milliseconds())+5*(tasks+5), "a few places each")

				before := m.n.Load()
				time.Sleep(2 * time.Second)
				require.LessOrEqual(t, m.n.Load()-before, int64(20), "rounds in two seconds without work")
				cancel()
				<-ended
			})
		})
	}
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

// After an outage a slot is claimed a bite at a time, whatever tells of its next task: a wake that comes before the first look at the
// database, or an index that has lost what is overdue.
func TestABacklogIsClaimedInBites(t *testing.T) {
	const pages, page, bite = 7, 500, 1000
	for name, look := range map[string]bool{"a wake comes first": false, "the index knows of a later one": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			first := time.Now().Add(-time.Hour)
			for i := range pages {
				f.schedule(askMany(page, "orders", string(rune('a'+i)), first.Add(time.Duration(i)*time.Second), schemas.HeaderEvents, "none")...)
			}
			d := f.stepped(f.elect(5), Config{MemberID: "one", StageTasks: 33})
			_, err := d.ownership.follow(t.Context())
			require.NoError(t, err)
			require.NoError(t, d.indexer.index.Add(t.Context(), []index.Entry{{Slot: 0, Pos: nowMillis() + 100, Seq: 1}}))
			if look {
				d.claimer.sweep(t.Context())
			} else {
				d.flight.Claims.Woken([]index.SlotPos{{Slot: 0, Pos: nowMillis()}})
			}
			for n := range 2 {
				_, err = d.claimer.claim(t.Context())
				require.NoError(t, err)
				require.NotZero(t, d.flight.Figures().Claimed)
				require.LessOrEqual(t, d.flight.Figures().Claimed, bite, "bite %d", n+1)
				for d.flight.Figures().Claimed > 0 {
					f.delivers(d)
					d.settler.settle(t.Context())
				}
				d.flight.Claims.Woken([]index.SlotPos{{Slot: 0, Pos: nowMillis()}})
			}
		})
	}
}

// A task that the index has lost, and that nobody was woken for, is found by the sweep; with both at work it finds nothing.
func TestSweepFindsWhatTheIndexLost(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	d.warmed()
	d.told(f.schedule(askMany(10, "orders", "told", time.Now().Add(setUpTime), schemas.HeaderEvents, "none")...).Added)
	f.eventually("they are delivered", func() bool { return orders.count() == 10 })
	require.Zero(t, counted(d.metrics.Swept))

	lost := f.schedule(ask("orders", "lost", time.Now().Add(setUpTime))).Added[0]
	entry := []index.Entry{lost.Place}
	require.NoError(t, d.indexer.index.Add(t.Context(), entry))
	require.NoError(t, d.indexer.index.Remove(t.Context(), entry))
	f.eventually("it is delivered all the same", func() bool { return orders.copies()["lost"] == 1 })
	require.Zero(t, counted(d.metrics.Swept), "a sweep found it ahead of its time")

	f.schedule(ask("orders", "overdue", time.Now()))
	f.eventually("it is delivered all the same", func() bool { return orders.copies()["overdue"] == 1 })
	require.Positive(t, counted(d.metrics.Swept))
}
