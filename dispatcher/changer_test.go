package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/test/recordtest"
)

// share gives the slots that are to have owners to members in turn, as a leader does.
func (f *fixture) share(epoch *int64, members ...*members) {
	f.Helper()
	n, err := f.store.SlotCount(f.Context())
	require.NoError(f, err)
	*epoch++
	for i, m := range members {
		var mine []int
		for slot := i; slot < n; slot += len(members) {
			mine = append(mine, slot)
		}
		m.change(func() { m.current.Epoch, m.current.Slots = *epoch, mine })
	}
}

// TestTheNumberOfSlotsChangesUnderLoad: more slots, and then fewer than at first, while tasks with few keys fall due all the time, a target is
// paused and resumed, and a dispatcher dies on the way. Each task is delivered, not before it is due, and those of a key in the order of their
// due times.
func TestTheNumberOfSlotsChangesUnderLoad(t *testing.T) {
	const keys, each = 25, 60
	f := newFixture(t, 4, "orders", "stopped")
	orders, stopped := f.read("orders"), f.read("stopped")
	_, err := admin.New(f.store).SetPolicy(t.Context(), "stopped", nowMillis(), func(p admin.Policy) admin.Policy { p.Paused = true; return p })
	require.NoError(t, err)
	one, two := f.elect(1), f.elect(1)
	for _, m := range []*members{one, two} {
		m.alive["one"], m.alive["two"] = true, true
	}
	epoch := int64(1)
	f.share(&epoch, one, two)
	cfg := func(name string) Config { return Config{MemberID: name, DrainTimeout: 5 * time.Second} }
	first := f.start(one, t.TempDir(), cfg("one"))
	second := f.start(two, t.TempDir(), cfg("two"))
	f.eventually("all slots are owned", func() bool { return first.owned()+second.owned() == 4 })

	asked := map[string]int64{}
	load := func(round int) { // each due while the change goes on
		for i := range keys {
			for _, topic := range []string{"orders", "stopped"} {
				id := fmt.Sprintf("%s-%d-%d", topic, i, round)
				due := time.Now().Add(time.Second + time.Duration((round*7919+i*104729)%3000)*time.Millisecond)
				r := ask(topic, id, due)
				r.Key = fmt.Appendf(nil, "k%d", i)
				asked[id] = due.UnixMilli()
				f.schedule(r)
			}
		}
	}
	change := func(n int) {
		_, err := admin.New(f.store).SetSlots(t.Context(), n)
		require.NoError(t, err)
		f.share(&epoch, one, two)
	}
	whole := func(n int) func() bool {
		return func() bool {
			g, err := admin.New(f.store).Growth(t.Context())
			require.NoError(t, err)
			return g.Settled() && g.Base == n
		}
	}
	round := 0
	until := func(done func() bool) {
		f.eventually("the slots change under load", func() bool {
			load(round)
			round++
			return done()
		})
	}
	load(round)
	round++
	change(7)
	until(whole(7))
	f.share(&epoch, one, two)
	_, err = admin.New(f.store).SetPolicy(t.Context(), "stopped", nowMillis(), func(p admin.Policy) admin.Policy { p.Paused = false; return p })
	require.NoError(t, err)
	change(3)
	until(func() bool {
		g, err := admin.New(f.store).Growth(t.Context())
		require.NoError(t, err)
		return g.Split > 0
	})
	second.crash(two)
	one.change(func() { delete(one.alive, "two") })
	f.share(&epoch, one)
	until(whole(3))
	f.share(&epoch, one)
	require.Positive(t, counted(first.metrics.movedTasks))
	f.eventually("nothing is to move", func() bool { return gauged(t, first.metrics.toMove) == 0 })
	f.eventually("the slots that were given up have no owner", func() bool { return first.owned() == 3 })

	f.eventually("all is delivered", func() bool { return len(orders.copies())+len(stopped.copies()) == len(asked) })
	rows, err := f.store.Slots(t.Context())
	require.NoError(t, err)
	for _, s := range rows {
		require.Equal(t, s.Slot >= 3, s.GivenUp())
	}
	for _, l := range []*log{orders, stopped} {
		latest, seen := map[string]int64{}, map[string]bool{}
		for _, r := range l.all() {
			id := recordtest.Header(r, schemas.HeaderID)
			require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), asked[id], "early: %s", id)
			if seen[id] {
				continue
			}
			seen[id] = true
			require.GreaterOrEqual(t, asked[id], latest[string(r.Key)], "%s overtook another of its key", id)
			latest[string(r.Key)] = asked[id]
		}
	}
}

// TestASplitThatTheDatabaseForgets: the owner of a new slot has claimed tasks that the database, set back, has in the slot that they had left.
// The owner of that one has claimed none of them. It takes its slot anew, with what any owner can have claimed: none of them is cancelled any more.
func TestASplitThatTheDatabaseForgets(t *testing.T) {
	for name, forgotten := range map[string]string{
		"the split":         "UPDATE slots SET base = 1, target = 2, spread = 1",
		"all of the change": "DELETE FROM slots WHERE slot = 1; UPDATE slots SET base = 1, target = 1, spread = 1",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			_, d := f.owning(Config{})
			due := time.Now().Add(2 * time.Second)
			var asked, cancels []*kgo.Record
			for n := 0; len(asked) < 10; n++ {
				if id := fmt.Sprint("t", n); slots.Of("orders", []byte(id), id, 2) == 1 {
					asked, cancels = append(asked, ask("orders", id, due)), append(cancels, cancelRecord("orders", id))
				}
			}
			f.schedule(asked...)
			before := f.slot(0)
			_, err := admin.New(f.store).SetSlots(t.Context(), 2)
			require.NoError(t, err)
			_, err = intake.New(f.store).Line().Acquire(t.Context(), []int{1}, 1, "two")
			require.NoError(t, err)
			_, worked, err := d.changer.round(t.Context())
			require.NoError(t, err)
			require.True(t, worked)
			require.True(t, f.slot(0).Split())
			require.NoError(t, intake.New(f.store).Line().Claim(t.Context(), f.slot(1).Turn, []int{1}, []int64{0}, 1, due.UnixMilli()))

			f.setBack(forgotten, "UPDATE tasks SET slot = 0", "UPDATE slots SET claimed = 0 WHERE slot = 1", fmt.Sprintf("UPDATE slots SET turn = %d, moved = %d, moved_held = %d", before.Turn, before.Moved, before.MovedHeld))
			told := f.answers(f.schedule(cancels...))
			d.claimer.sweep(t.Context())
			told = append(told, f.resolved()...)
			_, err = d.ownership.follow(t.Context())
			require.NoError(t, err)
			require.NotContains(t, append(told, f.resolved()...), schemas.StateCancelled)
			require.Len(t, d.flight.Staying(), 1)
			require.False(t, f.slot(0).Unsure)
			require.GreaterOrEqual(t, f.slot(0).Claimed, due.UnixMilli())
		})
	}
}

// TestASlotTakenDuringAChange may be claimed at once, however long the changer is busy with others.
func TestASlotTakenDuringAChange(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, err := admin.New(f.store).SetSlots(t.Context(), 2)
	require.NoError(t, err)
	_, d := f.owning(Config{})
	require.NotNil(t, d.flight.Changing.Begin(0))
}

// TestATurnToSomethingUnknown: another word is required, and the slots have turned, so this program claims nothing more.
func TestATurnToSomethingUnknown(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, d := f.owning(Config{})
	f.schedule(ask("orders", "t", time.Now()))
	d.claimer.sweep(t.Context())
	f.sql("INSERT INTO meta (name, value) VALUES (x'72657175697265642e746561', 1)") // required.tea
	f.sql("UPDATE slots SET turn = turn + 1")
	for range 2 {
		_, err := d.claimer.claim(t.Context())
		require.ErrorIs(t, err, line.ErrTurned)
		require.ErrorIs(t, d.ownership.lookAtSlots(t.Context()), store.ErrRequired)
	}
	next := f.stepped(f.elect(6), Config{MemberID: "one"})
	_, err := next.ownership.follow(t.Context())
	require.ErrorIs(t, err, store.ErrRequired, "slots that are taken have turned, too")
	require.Empty(t, next.flight.Staying())
	f.sql("UPDATE meta SET value = 0 WHERE name = x'72657175697265642e746561'")
	_, err = next.ownership.follow(t.Context())
	require.NoError(t, err)
	next.claimer.sweep(t.Context())
	claimed, err := next.claimer.claim(t.Context())
	require.NoError(t, err)
	require.True(t, claimed)
}

// TestASlotThatDoesNotDrain is claimed for most of the time.
func TestASlotThatDoesNotDrain(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, d := f.owning(Config{})
	f.schedule(ask("orders", "t", time.Now()))
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	_, err = admin.New(f.store).SetSlots(t.Context(), 2)
	require.NoError(t, err)
	_, err = intake.New(f.store).Line().Acquire(t.Context(), []int{1}, 1, "two")
	require.NoError(t, err)
	began := time.Now()
	_, _, err = d.changer.round(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, d.changer.busy[0].times)
	require.EqualValues(t, 1, counted(d.metrics.undrained))
	require.EqualValues(t, 1, gauged(t, d.metrics.toMove))
	g, err := admin.New(f.store).Growth(t.Context())
	require.NoError(t, err)
	require.Len(t, g.Behind, 1)
	require.GreaterOrEqual(t, d.changer.busy[0].until.Sub(began), (1+busyTimes)*drainWithin)
}
