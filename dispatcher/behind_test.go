package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/test/recordtest"
)

// commits has the scanners' group have an offset of the intake.
func (f *fixture) commits(offset int64) {
	f.Helper()
	client, err := kafka.New(f.kafka, zap.NewNop())
	require.NoError(f, err)
	defer client.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset("intake", 0, offset, -1)
	require.NoError(f, kadm.NewClient(client).CommitAllOffsets(f.Context(), "scanners", offsets))
}

// A database that lacks what scanners have committed: slots are taken, and nothing is claimed, made or sent before it has caught up.
func TestADatabaseBehindIsOnlyOwned(t *testing.T) {
	virtually(t, []string{"intake", "orders"}, func(f *fixture, run func(Config, *zap.Logger) *Dispatcher) {
		orders, start := f.read("orders"), time.Now()
		f.schedule(ask("orders", "a", start.Add(time.Second)))
		timer := ask("orders", "t", start, schemas.HeaderOp, "timer", schemas.HeaderEvery, "1s")
		timer.Headers = timer.Headers[:len(timer.Headers)-1] // a timer has no notyet-at
		f.schedule(timer)
		f.commits(f.source.Next + 2)
		d := run(Config{Group: "scanners", Read: []string{"intake", "reports"}}, zap.NewNop())
		time.Sleep(3 * time.Minute)
		require.ErrorContains(t, d.Ready(f.Context()), "behind: intake/0 at 2 of 4")
		slots, err := f.store.Slots(f.Context())
		require.NoError(t, err)
		for _, s := range slots {
			require.Equal(t, "one", s.Owner)
			require.Zero(t, s.Claimed)
		}
		require.Zero(t, orders.count())
		require.Zero(t, counted(d.metrics.runs))
		f.schedule(ask("orders", "b", start), ask("orders", "c", start.Add(time.Hour)))
		time.Sleep(4 * time.Second)
		require.Zero(t, orders.count(), "what waits is decided meanwhile")
		time.Sleep(5 * time.Second)
		copies := orders.copies()
		require.Equal(t, 1, copies["a"])
		require.Equal(t, 1, copies["b"])
		require.Greater(t, counted(d.metrics.runs), 0)
		require.NoError(t, d.Ready(f.Context()))

		// It is set back under the running dispatcher.
		f.commits(f.source.Next + 1)
		time.Sleep(2600 * time.Millisecond)
		sent := orders.count()
		f.schedule(ask("orders", "d", time.Now()))
		f.commits(f.source.Next + 1)
		time.Sleep(time.Minute)
		require.Equal(t, sent, orders.count())
		f.schedule(ask("orders", "e", time.Now()))
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, orders.copies()["d"])
		require.Equal(t, 1, orders.copies()["e"])
	})
}

// While Kafka says nothing of the group, or always what is stored, deliveries are in time. One that starts asks for 10 s at most.
func TestNoWordOfTheGroup(t *testing.T) {
	for name, err := range map[string]*kerr.Error{"all is well": nil, "no coordinator": kerr.CoordinatorNotAvailable, "no right": kerr.GroupAuthorizationFailed} {
		t.Run(name, func(t *testing.T) {
			virtually(t, []string{"intake", "orders"}, func(f *fixture, run func(Config, *zap.Logger) *Dispatcher) {
				orders, start := f.read("orders"), time.Now()
				if err != nil {
					f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: err, Count: -1})
				}
				for i := range 120 {
					f.schedule(ask("orders", fmt.Sprint(i), start.Add(20*time.Second+time.Duration(i)*500*time.Millisecond), schemas.HeaderEvents, "none"))
				}
				run(Config{Group: "scanners", Read: []string{"intake"}}, zap.NewNop())
				time.Sleep(15 * time.Second)
				for i := range 70 {
					f.commits(f.source.Next - int64(70-i)) // late
					time.Sleep(time.Second)
				}
				late := orders.lateness(t)
				require.Len(t, late, 120)
				require.Less(t, late[119], 100*time.Millisecond)
			})
		})
	}
}

// A database in a new life lacks requests: the slots are made sure, for which scanners wait, and nothing more.
func TestANewLifeThatIsBehind(t *testing.T) {
	f := newFixture(t, 2, "intake", "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", Group: "scanners", Read: []string{"intake"}})
	f.eventually("it owns its slots", func() bool { return d.owned() == 2 })
	d.told(f.schedule(ask("orders", "first", time.Now())).Added)
	f.eventually("it arrives", func() bool { return orders.count() == 1 })
	f.commits(f.source.Next)
	later := time.Now().Add(setUpTime)
	f.schedule(ask("orders", "later", later))
	f.setBack("UPDATE sources SET next_offset = next_offset - 2")
	f.eventually("it holds", func() bool { return d.trust.copies.Holds() })
	f.eventually("its slots are sure", func() bool { return !f.slot(0).Unsure && !f.slot(1).Unsure })
	require.ErrorContains(t, d.Ready(t.Context()), "behind: intake/0 at 0 of 1")
	require.Equal(t, 1, d.trust.copies.Behind())
	f.passes(later.Add(time.Second))
	require.Equal(t, 1, orders.count())
	f.sql("UPDATE sources SET next_offset = next_offset + 2")
	f.eventually("it goes on", func() bool { return orders.count() == 2 })
	f.eventually("and is ready", func() bool { return d.Ready(t.Context()) == nil })
}

// Amid a change of the number of slots, an owner takes its slot anew with what any owner can have claimed, but not where the database lacks
// requests: a task cancelled since would be in doubt, and sent.
func TestWhatOthersMayHaveClaimedOfADatabaseThatIsBehind(t *testing.T) {
	f := newFixture(t, 1, "intake", "orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", Group: "scanners", Read: []string{"intake"}})
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
	require.Positive(t, d.ownership.had([]int{0}).Slots[0].Reach)
	f.schedule(ask("orders", "later", time.Now().Add(time.Hour)))
	f.commits(f.source.Next)
	f.setBack("UPDATE sources SET next_offset = next_offset - 1")
	f.eventually("it holds", func() bool { _, behind := d.trust.copies.Verdict(); return behind })
	had := d.ownership.had([]int{0}).Slots[0]
	require.Zero(t, had.Pos)
	require.Zero(t, had.Reach)
}

// The database is set back under a dispatcher at work, and lacks claims and a cancel. The cancelled task was due before that: it must not
// count as claimed, or it would be in doubt, and sent.
func TestACancelThatADatabaseSetBackLacks(t *testing.T) {
	for name, life := range map[string]bool{"in the same life": false, "in a new one": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "intake", "orders")
			orders := f.read("orders")
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", Group: "scanners", Read: []string{"intake"}})
			f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
			due := time.Now().Add(setUpTime)
			d.told(f.schedule(ask("orders", "gone", due), ask("orders", "comes", due)).Added)
			before, next := f.slot(0), f.source.Next
			f.sql("CREATE TABLE backup AS SELECT * FROM tasks")
			require.Contains(t, f.answers(f.schedule(cancelRecord("orders", "gone"))), schemas.StateCancelled)
			f.eventually("the other one arrives", func() bool { return orders.count() == 1 })
			f.eventually("it is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed && s.Done > due.UnixMilli() })
			f.commits(f.source.Next)
			restore := []string{"DELETE FROM tasks", "INSERT INTO tasks SELECT * FROM backup", fmt.Sprintf("UPDATE sources SET next_offset = %d", next),
				fmt.Sprintf("UPDATE slots SET claimed = %d, done = %d", before.Claimed, before.Done)}
			if life {
				f.setBack(restore...)
			} else {
				f.sql("BEGIN IMMEDIATE; " + strings.Join(restore, "; ") + "; COMMIT")
			}
			f.eventually("it holds", func() bool { return d.trust.copies.Holds() })
			f.eventually("it has its slot anew", func() bool { return d.owned() == 1 && !f.slot(0).Unsure })
			f.source.Next = next
			told := f.answers(f.schedule(cancelRecord("orders", "gone")))
			f.eventually("the cancel is read again", func() bool { told = append(told, f.resolved()...); return len(told) == 1 })
			require.Equal(t, []schemas.State{schemas.StateCancelled}, told)
			f.eventually("the other one comes again", func() bool { return orders.copies()["comes"] == 2 })
			f.eventually("all is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed && s.Done > due.UnixMilli() })
			require.Equal(t, map[string]int{"comes": 2}, orders.copies())

			f.eventually("the hold is over", func() bool { return !d.trust.copies.Holds() })
			if life {
				return
			}
			f.sql("BEGIN IMMEDIATE; " + strings.Join(restore, "; ") + "; COMMIT")
			f.eventually("it holds again", func() bool { return d.trust.copies.Holds() })
			f.eventually("it has its slot anew", func() bool { return d.owned() == 1 })
			f.source.Next = next
			told = f.answers(f.schedule(cancelRecord("orders", "gone")))
			f.eventually("the cancel is read again", func() bool { told = append(told, f.resolved()...); return len(told) == 1 })
			require.Equal(t, []schemas.State{schemas.StateCancelled}, told)
		})
	}
}

// The database lacks a cancel, and no claim. The scanner reads the cancel again first, so the database is not behind any more; the cancel waits
// for the slot, and is decided before the slot is claimed any further.
func TestACancelThatWaitsForASlotIsDecidedBeforeTheClaim(t *testing.T) {
	f := newFixture(t, 1, "intake", "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", Group: "scanners", Read: []string{"intake"}})
	f.eventually("it owns its slot", func() bool { return d.owned() == 1 && !d.trust.copies.Holds() })
	due := time.Now().Add(setUpTime)
	d.told(f.schedule(ask("orders", "gone", due)).Added)
	next := f.source.Next
	f.sql("CREATE TABLE backup AS SELECT * FROM tasks")
	require.Contains(t, f.answers(f.schedule(cancelRecord("orders", "gone"))), schemas.StateCancelled)
	f.commits(f.source.Next)
	f.passes(due.Add(-3 * time.Second))
	require.Less(t, f.slot(0).Claimed, due.UnixMilli())
	f.setBack("DELETE FROM tasks", "INSERT INTO tasks SELECT * FROM backup", fmt.Sprintf("UPDATE sources SET next_offset = %d", next))
	f.source.Next = next
	told := f.answers(f.schedule(cancelRecord("orders", "gone"))) // it waits, unless the machine stood still
	f.passes(due.Add(time.Second))
	f.eventually("it is decided", func() bool {
		told = append(told, f.resolved()...)
		return len(told) > 0
	})
	require.Equal(t, []schemas.State{schemas.StateCancelled}, told)
	f.eventually("it goes on", func() bool { return !d.trust.copies.Holds() && f.slot(0).Claimed > due.UnixMilli() })
	require.Empty(t, orders.copies())
}

// The producer has a task of which the database forgets even the request, or has delivered it since. The slot is taken before the request is
// read again. The task's cancel is read again right behind the request, or later, and comes too late.
func TestACancelOfWhatAProducerHasAndTheDatabaseLacks(t *testing.T) {
	for name, delivered := range map[string]bool{"it has the task": false, "it has delivered the task": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "intake", "orders")
			orders := f.read("orders")
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", Group: "scanners", Read: []string{"intake"}})
			f.eventually("it owns its slot", func() bool { return d.owned() == 1 })
			d.told(f.schedule(ask("orders", "first", time.Now())).Added)
			f.eventually("the producer knows the topic", func() bool { return orders.count() == 1 })
			f.eventually("all is settled", func() bool { s := f.slot(0); return s.Done == s.Claimed })
			before, next := f.slot(0), f.source.Next
			f.sql("CREATE TABLE backup AS SELECT * FROM tasks")
			answer := f.mute("orders")
			request := ask("orders", "a", time.Now())
			d.told(f.schedule(request).Added)
			f.eventually("it is with the producer", func() bool { return d.inside(func(in flight.Figures) int { return in.SentTasks }) == 1 })
			f.commits(f.source.Next)
			loads := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.CoordinatorLoadInProgress, Count: -1}) // no slot is taken before a look
			f.setBack("DELETE FROM tasks", "INSERT INTO tasks SELECT * FROM backup", fmt.Sprintf("UPDATE sources SET next_offset = %d", next),
				fmt.Sprintf("UPDATE slots SET claimed = %d, done = %d", before.Claimed, before.Done))
			f.eventually("it has seen that", func() bool { return d.owned() == 0 })
			if delivered {
				answer()
				f.eventually("it has arrived", func() bool { return orders.copies()["a"] > 0 })
				f.eventually("the answer has come", func() bool { return d.inside(func(in flight.Figures) int { return in.SentTasks }) == 0 })
			}
			loads.Remove()
			f.eventually("the slot is taken", func() bool { return d.trust.copies.Behind() == 1 && d.owned() == 1 })
			f.source.Next = next
			told := f.answers(f.again(request, cancelRecord("orders", "a")))
			undecided, err := intake.New(f.store).Undecided(t.Context(), 10)
			require.NoError(t, err)
			require.Zero(t, undecided)
			f.eventually("the cancel is decided", func() bool { told = append(told, f.resolved()...); return len(told) == 1 })
			require.Equal(t, []schemas.State{schemas.StateTooLate}, told)
			answer()
			f.eventually("it arrives", func() bool { return orders.copies()["a"] > 0 })
		})
	}
}

// The same, while the slot goes to another dispatcher: its claims come back with it only once a look has told that no request is lacking.
func TestASlotIsNotGivenAwayBeforeALook(t *testing.T) {
	for name, lacking := range map[string]int64{"requests are lacking": 1, "none is": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "intake", "orders")
			m, d := f.owning(Config{Group: "scanners", Read: []string{"intake"}})
			go d.trust.copies.Run(t.Context())
			f.eventually("it looks", func() bool { return !d.trust.copies.Holds() })
			before, due := f.slot(0), time.Now().Add(200*time.Millisecond)
			f.schedule(ask("orders", "a", due))
			d.claimer.sweep(t.Context())
			_, err := d.claimer.claim(t.Context())
			require.NoError(t, err)
			want := d.flight.Look(0).Claimed
			require.GreaterOrEqual(t, want, due.UnixMilli())
			require.False(t, f.assign(m, d, 6), "it holds a task")
			f.commits(f.source.Next + lacking)
			loads := f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
			f.setBack(fmt.Sprintf("UPDATE slots SET claimed = %d", before.Claimed))
			d.claimer.sweep(t.Context())
			require.Equal(t, 1, counted(d.metrics.Abandoned))
			require.False(t, f.assign(m, d, 6), "a look comes first")
			loads.Remove()
			f.eventually("it is given away", func() bool { return f.assign(m, d, 6) })
			if lacking > 0 {
				want = before.Claimed
			}
			require.Equal(t, want, f.slot(0).Claimed)
			require.Empty(t, f.slot(0).Owner)
		})
	}
}

// Another server takes over with all that was committed: its first look is clear, and deliveries go on.
func TestALosslessFailoverHoldsNobody(t *testing.T) {
	f := newFixture(t, 2, "intake", "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", Group: "scanners", Read: []string{"intake"}})
	f.eventually("it owns its slots", func() bool { return d.owned() == 2 && !d.trust.copies.Holds() })
	var tasks []*kgo.Record
	for i := range 40 {
		tasks = append(tasks, ask("orders", fmt.Sprint(i), time.Now().Add(time.Duration(i)*100*time.Millisecond)))
	}
	d.told(f.schedule(tasks...).Added)
	f.commits(f.source.Next)
	f.eventually("some arrive", func() bool { return orders.count() >= 10 })
	before := *d.trust.copies.Life()
	f.setBack()
	f.eventually("all arrive", func() bool {
		_, behind := d.trust.copies.Verdict()
		require.False(t, behind)
		return len(orders.copies()) == 40
	})
	f.eventually("the new life was looked at", func() bool { return *d.trust.copies.Life() != before })
	require.Equal(t, 40, orders.count())
	require.False(t, f.slot(0).Unsure || f.slot(1).Unsure)
}

// Between two looks the database is set back, and is in a new life. What it has forgotten is not claimed before the next look.
func TestAClaimIsOfTheLifeOfTheLastLook(t *testing.T) {
	f := newFixture(t, 1, "intake", "orders")
	f.schedule(ask("orders", "x", time.Now()))
	f.commits(f.source.Next)
	_, d := f.owning(Config{Group: "scanners", Read: []string{"intake"}})
	looking, stop := context.WithCancel(t.Context())
	var looked sync.WaitGroup
	looked.Go(func() { d.trust.copies.Run(looking) })
	f.eventually("it has looked", func() bool { return !d.trust.copies.Holds() })
	stop()
	looked.Wait()
	f.setBack("UPDATE sources SET next_offset = next_offset - 1")
	before := f.slot(0).Claimed
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.ErrorIs(t, err, line.ErrLife)
	require.Equal(t, before, f.slot(0).Claimed)
	require.True(t, d.trust.copies.Holds(), "it asks")
}

// While the database is behind, nothing is forgotten: requests that are read again are decided beside what has ended.
func TestNothingIsForgottenWhileTheDatabaseIsBehind(t *testing.T) {
	virtually(t, []string{"intake", "orders"}, func(f *fixture, run func(Config, *zap.Logger) *Dispatcher) {
		orders := f.read("orders")
		d := run(Config{Group: "scanners", Read: []string{"intake"}, Retention: 10 * time.Minute}, zap.NewNop())
		time.Sleep(15 * time.Second)
		f.schedule(ask("orders", "x", time.Now(), schemas.HeaderVersion, "5"))
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, orders.copies()["x"])
		f.commits(f.source.Next + 1)
		time.Sleep(30 * time.Minute)
		require.True(t, d.trust.copies.Holds())
		require.Equal(t, []schemas.State{schemas.StateStale}, f.answers(f.schedule(ask("orders", "x", time.Now(), schemas.HeaderVersion, "4"))))
		time.Sleep(30 * time.Minute)
		require.Equal(t, 1, orders.copies()["x"])
		require.Positive(t, counted(d.metrics.retired), "later it is")
	})
}

// A task was claimed when the backup was made, then given back, and then cancelled. It is not sent, also where its target is paused; others in
// doubt are, and what a send log proves is no longer cancelled.
func TestACancelOfATaskThatABackupHasAsClaimed(t *testing.T) {
	virtually(t, []string{"intake", "orders"}, func(f *fixture, run func(Config, *zap.Logger) *Dispatcher) {
		orders, due := f.read("orders"), time.Now().Add(time.Second)
		f.schedule(ask("orders", "gone", due), ask("orders", "comes", due), ask("orders", "replaced", due), ask("orders", "stale", due, schemas.HeaderVersion, "5"))
		f.sql(fmt.Sprintf("UPDATE slots SET claimed = %d, epoch = 3, owner = 'another'", due.UnixMilli()))
		f.commits(f.source.Next + 4)
		d := run(Config{Group: "scanners", Read: []string{"intake"}}, zap.NewNop())
		time.Sleep(15 * time.Second)
		require.True(t, d.trust.copies.Holds())

		old := cancelRecord("orders", "stale")
		old.Headers = append(old.Headers, recordtest.Headers(schemas.HeaderVersion, "4")...)
		told := f.answers(f.again(cancelRecord("orders", "gone"), ask("orders", "replaced", due.Add(time.Hour), schemas.HeaderEvents, "all"), cancelRecord("orders", "replaced"), old))
		require.Equal(t, []schemas.State{schemas.StateStale}, told, "the others wait")
		time.Sleep(8 * time.Second)
		require.False(t, d.trust.copies.Holds(), "they cannot be decided yet, and hold nobody")
		require.Equal(t, map[string]int{"comes": 1, "stale": 1}, orders.copies())
		require.ElementsMatch(t, []schemas.State{schemas.StateCancelled, schemas.StateScheduled, schemas.StateCancelled}, f.resolved())
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{"comes": 1, "stale": 1}, orders.copies())
		for n := range f.slots {
			s := f.slot(n)
			require.Equal(t, s.Claimed, s.Done, "slot %d", n)
		}
	})
}
