package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/recordtest"
)

// policy says something about a target, as an operator does.
func (f *fixture) policy(topic string, p admin.Policy) {
	f.Helper()
	_, err := admin.New(f.store).SetPolicy(f.Context(), topic, nowMillis(), func(admin.Policy) admin.Policy { return p })
	require.NoError(f, err)
}

// hears waits until a policy is in force at a dispatcher.
func (r *running) hears(topic string, want func(flight.GateLook) bool) {
	r.f.Helper()
	r.f.eventually("it is in force", func() bool { return want(r.flight.LookAtGate(topic)) })
}

func isPaused(g flight.GateLook) bool { return g.Paused }

func (f *fixture) heldTasks(topic string) int {
	f.Helper()
	n, err := admin.New(f.store).CountHeld(context.Background(), topic, 1<<20)
	require.NoError(f, err)
	return n
}

func (l *log) ids() (out []string) {
	for _, r := range l.all() {
		out = append(out, recordtest.Header(r, schemas.HeaderID))
	}
	return out
}

// A paused target gets nothing, whatever becomes due, is fired or comes to be retried. Others go on, the lines go on, and what is held can
// be cancelled. When it is resumed, it gets each once, in order of due time.
func TestPausedTargetGetsNothing(t *testing.T) {
	f := newFixture(t, 2, "orders", "others")
	f.policy("orders", admin.Policy{Paused: true})
	orders, others, events := f.read("orders"), f.read("others"), f.read(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", StageTasks: 400})
	due, n := time.Now(), 400
	for i := range n { // the last that is stored is the first that is due
		f.schedule(ask("orders", fmt.Sprint("o", i), due.Add(-time.Duration(i)*time.Millisecond)))
	}
	f.schedule(askMany(20, "others", "x", due.Add(time.Second))...)
	f.eventually("the others arrive", func() bool { return others.count() == 20 })
	f.eventually("its tasks are held", func() bool { return f.heldTasks("orders") == n })
	f.eventually("nothing holds up the lines", func() bool { return f.settledUpTo(due.Add(time.Second)) })
	f.eventually("they cost nothing", func() bool {
		return d.inside(func(in flight.Figures) int {
			return in.Claimed + in.StagedTasks + d.flight.LookAtGate("orders").Unread
		}) == 0
	})
	read := counted(d.metrics.Bodies)
	require.LessOrEqual(t, read, 20+n/4, "most were held without their bodies")

	cancel := func(op schemas.Op, id string) {
		r := schemas.NewRequest(op, "orders", id)
		b := intake.Batch{Advance: []intake.Advance{{Source: f.source.ID, From: f.source.Next, To: f.source.Next + 1}}}
		b.Changes = []task.Change{{Seq: task.Seq(f.source.ID, f.source.Next), Request: &r}}
		done, err := intake.New(f.store).Apply(t.Context(), b, nowMillis)
		require.NoError(t, err)
		f.source.Next++
		want := map[schemas.Op]schemas.State{schemas.OpCancel: schemas.StateCancelled, schemas.OpFire: schemas.StateFired}[op]
		require.Equal(t, want, done.Events[0].Events[0].State)
	}
	for i := range 10 {
		cancel(schemas.OpCancel, fmt.Sprint("o", i))
	}
	cancel(schemas.OpFire, "o10")
	f.eventually("what was fired is held again", func() bool { return f.heldTasks("orders") == n-10 })
	require.Zero(t, orders.count())

	f.policy("orders", admin.Policy{})
	f.eventually("the rest arrives", func() bool { return len(orders.copies()) == n-10 })
	f.eventually("all is settled", func() bool { return d.inside(func(in flight.Figures) int { return in.Claimed }) == 0 })
	require.Equal(t, n-10, orders.count(), "once")
	var want []string
	for i := n - 1; i > 10; i-- {
		want = append(want, fmt.Sprint("o", i))
	}
	require.Equal(t, append(want, "o10"), orders.ids(), "in order of due time; what was fired is due later")
	require.Zero(t, f.heldTasks("orders"))
	require.Empty(t, events.events(t, schemas.StateDead))
	require.Equal(t, 10, d.inside(func(in flight.Figures) int { return 10 * in.Gates }))
	f.eventually("the gate is none", func() bool { return d.flight.LookAtGate("orders").Free })
}

// A pause ends by itself, within a second, and nobody has to lift it.
func TestAPauseEndsByItself(t *testing.T) {
	f := newFixture(t, 1, "orders")
	ends := time.Now().Add(3 * time.Second)
	f.policy("orders", admin.Policy{Paused: true, Until: ends.UnixMilli()})
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.schedule(askMany(10, "orders", "o", time.Now())...)
	f.eventually("they arrive", func() bool { return orders.count() == 10 })
	for _, r := range orders.all() {
		require.False(t, r.Timestamp.Before(ends), "not before its end")
	}
	d.hears("orders", func(g flight.GateLook) bool { return g.Open })
}

// A pause takes back what is claimed, staged or waits for room, and what is to be sent once more.
func TestPauseTakesBackWhatIsNotReleased(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", LookAhead: time.Minute, StageTasks: 100})
	due := time.Now().Add(20 * time.Second)
	f.schedule(askMany(60, "orders", "o", due)...)
	f.eventually("they are staged", func() bool { return d.stagedTasks() == 60 })
	f.policy("orders", admin.Policy{Paused: true})
	d.hears("orders", isPaused)
	require.True(t, time.Now().Before(due), "in time")
	f.eventually("all are held", func() bool { return f.heldTasks("orders") == 60 })
	f.eventually("nothing is claimed", func() bool { return d.inside(func(in flight.Figures) int { return in.Claimed }) == 0 })
	require.Zero(t, orders.count())
	require.Zero(t, d.stagedTasks())
	f.fire("orders", "o", 60)
	f.policy("orders", admin.Policy{})
	f.eventually("they arrive", func() bool { return orders.count() == 60 })
}

// Retries of a paused target are held, and the waits for reports go on: those whose attempts are used up while it is paused are dead.
func TestPausedRetriesAndReports(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders, events := f.read("orders"), f.read(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	report := []string{schemas.HeaderAck, "report", schemas.HeaderAckTimeout, "20s", schemas.HeaderBackoff, "fixed:1ms", schemas.HeaderEvents, "all"}
	f.schedule(ask("orders", "again", time.Now(), append(report, schemas.HeaderMaxAttempts, "2")...))
	f.schedule(ask("orders", "once", time.Now(), append(report, schemas.HeaderMaxAttempts, "1")...))
	f.eventually("both are delivered", func() bool { return orders.count() == 2 })
	f.policy("orders", admin.Policy{Paused: true})
	d.hears("orders", isPaused)
	f.eventually("one is dead", func() bool { return len(events.events(t, schemas.StateDead)["once"]) == 1 })
	f.eventually("the other's retry is held", func() bool { return f.heldTasks("orders") == 1 })
	require.Equal(t, 2, orders.count())
	f.policy("orders", admin.Policy{})
	f.eventually("it comes", func() bool { return orders.copies()["again"] == 2 })
	require.Equal(t, "2", recordtest.Header(orders.all()[2], schemas.HeaderAttempt))
}

// What becomes too late while its target is paused is judged when it is released.
func TestPausedTaskExpiresOnceReleased(t *testing.T) {
	f := newFixture(t, 1, "orders")
	f.policy("orders", admin.Policy{Paused: true})
	orders, events := f.read("orders"), f.read(results)
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	due := time.Now()
	f.schedule(ask("orders", "late", due, schemas.HeaderMaxLateness, "6s"), ask("orders", "any", due))
	f.eventually("they are held", func() bool { return f.heldTasks("orders") == 2 })
	f.passes(due.Add(6100 * time.Millisecond))
	require.Empty(t, events.events(t, schemas.StateDead))
	f.policy("orders", admin.Policy{})
	f.eventually("it is dead", func() bool { return len(events.events(t, schemas.StateDead)["late"]) == 1 })
	f.eventually("the other arrives", func() bool { return orders.copies()["any"] == 1 })
	require.Zero(t, orders.copies()["late"])
	require.Equal(t, schemas.KindExpired, events.events(t, schemas.StateDead)["late"][0].Kind)
}

// A dispatcher that begins sends nothing before it has read the policies, and one whose database is away keeps to those it knows.
func TestPoliciesWithoutTheDatabase(t *testing.T) {
	f := newFixture(t, 1, "orders")
	f.policy("orders", admin.Policy{Paused: true})
	f.sql("ALTER TABLE targets RENAME TO away")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.schedule(ask("orders", "a", time.Now()))
	f.passes(time.Now().Add(time.Second))
	require.Zero(t, d.owned(), "it has not begun")
	f.sql("ALTER TABLE away RENAME TO targets")
	f.eventually("it begins, and holds the task", func() bool { return f.heldTasks("orders") == 1 })

	f.sql("ALTER TABLE targets RENAME TO away")
	f.schedule(ask("orders", "b", time.Now()))
	f.eventually("the pause stays in force", func() bool { return f.heldTasks("orders") == 2 })
	require.Zero(t, orders.count())
	f.sql("ALTER TABLE away RENAME TO targets")
	f.policy("orders", admin.Policy{})
	f.eventually("both arrive", func() bool { return orders.count() == 2 })
}

// limitHolds checks that no more records came than a rate allows: between any two of them, by the broker's time.
func limitHolds(t *testing.T, l *log, perSecond, burst float64) {
	t.Helper()
	// Partitions are read one after the other.
	all := slices.SortedFunc(slices.Values(l.all()), func(a, b *kgo.Record) int { return a.Timestamp.Compare(b.Timestamp) })
	slack := 250.0 // ms by which a stalled broker may have gathered records
	for i := range all {
		for j := i + 1; j < len(all); j++ {
			took := float64(all[j].Timestamp.Sub(all[i].Timestamp).Milliseconds()) + slack
			require.LessOrEqual(t, float64(j-i), burst+perSecond*took/1000+1, "records %d to %d", i, j)
		}
	}
}

// A limited target gets no more than it may, in order of due time, from two dispatchers together; what waits can be cancelled.
func TestLimitedTarget(t *testing.T) {
	f := newFixture(t, 8, "orders", "others")
	const perSecond = 40
	f.policy("orders", admin.Policy{Rate: 1}) // until it has been seen that most are held
	orders, others := f.read("orders"), f.read("others")
	one, two := f.elect(5), f.elect(5)
	one.current.Slots, two.current.Slots = f.slots[:4], f.slots[4:]
	one.alive, two.alive = map[string]bool{"one": true, "two": true}, map[string]bool{"one": true, "two": true}
	for name, m := range map[string]*members{"one": one, "two": two} {
		f.start(m, t.TempDir(), Config{MemberID: name})
	}
	due := time.Now().Add(3 * time.Second) // every line has been looked at by then
	const n = 160
	var all []*kgo.Record
	for i := range n {
		all = append(all, ask("orders", fmt.Sprint(i), due.Add(-time.Duration(i)*time.Millisecond)))
	}
	f.schedule(all...)
	f.schedule(askMany(50, "others", "x", due)...)
	f.eventually("the others arrive", func() bool { return others.count() == 50 })
	f.eventually("most are held", func() bool { return f.heldTasks("orders") >= n/2 })
	f.policy("orders", admin.Policy{Rate: perSecond})
	f.eventually("all arrive", func() bool { return len(orders.copies()) == n })
	require.Equal(t, n, orders.count(), "once")
	limitHolds(t, orders, perSecond, 4)
	for _, half := range [][]int{f.slots[:4], f.slots[4:]} { // each keeps the order of its own
		var mine []int
		for _, id := range orders.ids() {
			row, err := look.New(f.store).Get(t.Context(), "orders", id)
			require.NoError(t, err)
			if slices.Contains(half, row.Slot) {
				i, err := strconv.Atoi(id)
				require.NoError(t, err)
				mine = append(mine, -i)
			}
		}
		require.NotEmpty(t, mine)
		require.LessOrEqual(t, disorder(mine), len(mine)/10, "%v", mine)
	}
}

// disorder is how many of the values come behind a greater one.
func disorder(values []int) (n int) {
	most := values[0]
	for _, v := range values {
		if v < most {
			n++
		}
		most = max(most, v)
	}
	return n
}

// No more records of a target are with Kafka than may be.
func TestMaxInFlight(t *testing.T) {
	f := newFixture(t, 2, "orders")
	f.policy("orders", admin.Policy{MaxInFlight: 3})
	answer := f.mute("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	d.hears("orders", func(g flight.GateLook) bool { return g.Room == 3 })
	f.schedule(askMany(200, "orders", "o", time.Now())...)
	inFlight := func() int {
		return d.flight.LookAtGate("orders").Sending
	}
	f.eventually("and no more are with the producer", func() bool { return d.flight.Figures().SentTasks == 3 })
	f.eventually("as many as may be", func() bool { return inFlight() == 3 })
	f.eventually("the others can be cancelled", func() bool { return f.heldTasks("orders") >= 150 })
	require.LessOrEqual(t, inFlight(), 3)
	answer()
	orders := f.read("orders")
	f.eventually("all arrive", func() bool { return len(orders.copies()) == 200 })
	require.Equal(t, 200, orders.count())
}

// Whoever takes over knows of the pause, sends nothing that may have been sent before, and holds what is in doubt.
func TestPauseOutlivesItsDispatcher(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders := f.read("orders")
	m := f.elect(5)
	first := f.start(m, t.TempDir(), Config{MemberID: "one", LookAhead: time.Minute})
	f.schedule(askMany(40, "orders", "o", time.Now().Add(20*time.Second))...)
	f.eventually("they are claimed", func() bool { return first.stagedTasks() == 40 })
	f.policy("orders", admin.Policy{Paused: true})
	first.crash(m)
	second := f.start(f.elect(6), t.TempDir(), Config{MemberID: "two"})
	f.eventually("what is in doubt is held", func() bool { return f.heldTasks("orders") == 40 })
	require.NoError(t, second.end())
	require.Zero(t, orders.count())
	third := f.start(f.elect(7), t.TempDir(), Config{MemberID: "three"})
	third.hears("orders", isPaused)
	f.fire("orders", "o", 40)
	f.policy("orders", admin.Policy{Rate: 1000})
	f.eventually("they arrive", func() bool { return len(orders.copies()) == 40 })
	require.Equal(t, 40, orders.count())
}

// Tasks that were held between two attempts go on at once when their target is resumed, however far ahead their slot is claimed.
func TestHeldRetriesGoOnAtOnce(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	f.policy("orders", admin.Policy{Paused: true})
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", LookAhead: time.Minute})
	f.schedule(askMany(5, "orders", "o", time.Now())...)
	f.eventually("they are held", func() bool { return f.heldTasks("orders") == 5 })
	f.sql(fmt.Sprintf("UPDATE tasks SET attempt = 1, state = %d", task.StateRetry))
	f.policy("orders", admin.Policy{})
	require.Eventually(f, func() bool { return orders.count() == 5 }, bound/2, tick, "before what was claimed is over")
	for _, r := range orders.all() {
		require.Equal(t, "2", recordtest.Header(r, schemas.HeaderAttempt))
	}
}

// While nothing is claimed, nothing is called back: it would be given up on its way, and more would be called back, until nothing is held.
func TestHeldTasksStayWhileNothingIsClaimed(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	f.policy("orders", admin.Policy{Paused: true})
	m := f.elect(5)
	d := f.start(m, t.TempDir(), Config{MemberID: "one"})
	f.schedule(askMany(50, "orders", "o", time.Now())...)
	f.eventually("they are held", func() bool { return f.heldTasks("orders") == 50 })
	m.trust(false)
	f.policy("orders", admin.Policy{})
	d.hears("orders", func(g flight.GateLook) bool { return g.Open })
	f.passes(time.Now().Add(time.Second))
	require.Equal(t, 50, f.heldTasks("orders"))
	m.trust(true)
	f.eventually("they arrive", func() bool { return len(orders.copies()) == 50 })
	require.Equal(t, 50, orders.count())
}

// Many paused targets whose tasks fall due cost the others little, also where the database is slow.
func TestManyPausedTargetsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const paused = 300
		f, d := newSlowFixture(t, "SELECT seq, slot, pos, due, state", 100*time.Millisecond)
		_, err := d.ownership.follow(t.Context())
		require.NoError(t, err)
		require.NoError(t, d.policies.start(t.Context()))
		policies := []admin.Policy{{Topic: "orders", Rate: 100}}
		for i := range paused {
			topic := fmt.Sprint("paused-", i)
			policies = append(policies, admin.Policy{Topic: topic, Paused: true})
			f.schedule(ask(topic, "a", time.Now()))
		}
		d.apply(t, policies)
		d.claimer.sweep(t.Context())
		_, err = d.claimer.claim(t.Context())
		require.NoError(t, err)
		_, _ = d.flight.Bodies.Next()
		began := time.Now()
		require.NoError(t, d.policies.round(t.Context()))
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, paused, d.flight.Figures().Leaving, "all are on their way to be held")
		require.True(t, d.flight.LookAtGate("orders").Looked, "and the other target had its turn")
	})
}

// The gates of one round are looked behind within the time for which tasks are called back ahead: otherwise their targets get less than
// their rates.
func TestManyLimitedTargetsKeepTheirRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := newSlowFixture(t, "FROM tasks WHERE lane = ? AND pos", 5*time.Millisecond)
		_, err := d.ownership.follow(t.Context())
		require.NoError(t, err)
		var policies []admin.Policy
		const together = 50
		for i := range together {
			policies = append(policies, admin.Policy{Topic: fmt.Sprint("limited-", i), Rate: 100})
		}
		d.apply(t, policies)
		began := time.Now()
		require.NoError(t, d.policies.round(t.Context()))
		require.Less(t, time.Since(began), 500*time.Millisecond)
		for _, p := range policies {
			require.True(t, d.flight.LookAtGate(p.Topic).Looked)
		}
	})
}

// apply puts policies in force, as if they had been read.
func (d *Dispatcher) apply(t *testing.T, policies []admin.Policy) {
	key, err := d.store.LaneKey(t.Context())
	require.NoError(t, err)
	d.flight.Policies.Apply(policies, key)
}
