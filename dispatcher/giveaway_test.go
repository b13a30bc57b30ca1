package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
)

// owning is a dispatcher that does not run and has taken all slots under epoch 5, and the election to change its mind.
func (f *fixture) owning(cfg Config) (*members, *Dispatcher) {
	f.Helper()
	cfg.MemberID = "one"
	m := f.elect(5)
	d := f.stepped(m, cfg)
	settled, err := d.ownership.follow(f.Context())
	require.NoError(f, err)
	require.True(f, settled)
	return m, d
}

// assign changes the assignment and lets the owner loop look at it once.
func (f *fixture) assign(m *members, d *Dispatcher, epoch int64, slots ...int) (settled bool) {
	f.Helper()
	m.change(func() { m.current.Epoch, m.current.Slots = epoch, slots })
	settled, err := d.ownership.follow(f.Context())
	require.NoError(f, err)
	return settled
}

func (f *fixture) slot(n int) store.Slot {
	f.Helper()
	slots, err := f.store.Slots(f.Context())
	require.NoError(f, err)
	return slots[n]
}

// A claim is decided, the slot is given away before the claim is made: nothing is claimed for two owners.
func TestSlotWithAClaimUnderWayStays(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	due := time.Now().Add(200 * time.Millisecond)
	f.schedule(ask("orders", "a", due))
	d.claimer.sweep(t.Context())
	ready, _ := d.claimer.beginClaim()
	require.Len(t, ready, 1)

	require.False(t, f.assign(m, d, 6), "it is not given away")
	require.Equal(t, "one", f.slot(0).Owner)
	require.NoError(t, d.claimer.claimTogether(t.Context(), ready, claimGroup{5, ready[0].to}))
	d.flight.endClaim(ready)
	require.False(t, f.assign(m, d, 6), "nor with what was claimed")
	require.Equal(t, "one", f.slot(0).Owner)
	require.Equal(t, 1, d.flight.entries)

	d.flight.slots[0].tasks[0].status = settled
	d.settler.settle(t.Context())
	require.True(t, f.assign(m, d, 6))
	require.Equal(t, store.Slot{Epoch: 5, Claimed: ready[0].to, Done: ready[0].to}, f.slot(0))
	ready, _ = d.claimer.beginClaim()
	require.Empty(t, ready)
}

// The reply to a claim is lost, and then the slot is to be given away: what was claimed is not left to the next owner.
func TestClaimWithoutAReplyIsTakenIn(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	due := time.Now().Add(200 * time.Millisecond)
	f.schedule(ask("orders", "a", due))
	require.NoError(t, claimTo(t.Context(), f.store, []int{0}, 5, due.UnixMilli()+7))
	require.True(t, d.flight.slots[0].drained(), "as far as is known here")

	require.False(t, f.assign(m, d, 6))
	require.Equal(t, "one", f.slot(0).Owner)
	require.Equal(t, due.UnixMilli()+7, d.flight.slots[0].claimed)
	require.Len(t, d.flight.slots[0].open(), 1)
	require.Equal(t, 1, d.flight.entries)
}

// The same, while the slot stays: the next claim, which does not reach as far, is refused. That is not a fence, and does not go on
// for as long as the first claim reached.
func TestClaimShortOfOneWithoutAReply(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, d := f.owning(Config{})
	now := nowMillis()
	f.schedule(ask("orders", "a", time.UnixMilli(now+2000)))
	require.NoError(t, claimTo(t.Context(), f.store, []int{0}, 5, now+3000))
	d.claimer.noteWakes([]index.SlotPos{{Slot: 0, Pos: now}})
	_, err := d.claimer.claim(t.Context())
	require.ErrorIs(t, err, store.ErrFenced)
	d.ownership.fenced(t.Context())
	require.False(t, d.trust.suspended.active())
	require.Equal(t, now+3000, d.flight.slots[0].claimed)
	require.Len(t, d.flight.slots[0].open(), 1)
	d.claimer.noteWakes([]index.SlotPos{{Slot: 0, Pos: now}})
	claimed, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	require.True(t, claimed)
	require.Greater(t, d.flight.slots[0].claimed, now+3000)
	require.Len(t, d.flight.slots[0].open(), 1, "each once")
}

// What does not drain in time is abandoned here before it is in the database, and an assignment that comes back begins anew.
func TestSlotThatDoesNotDrainIsAbandoned(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{DrainTimeout: time.Hour})
	due := time.Now().Add(200 * time.Millisecond)
	f.schedule(ask("orders", "a", due))
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	old := d.flight.slots[0]
	require.False(t, f.assign(m, d, 6))
	old.leaving = time.Now().Add(-2 * time.Hour)
	ready, _ := d.claimer.beginClaim()
	require.Empty(t, ready, "it is leaving")

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.ownership.follow(gone) // the database does not take it
	require.Error(t, err)
	require.True(t, old.abandoned)
	require.Empty(t, d.flight.slots)
	require.Zero(t, d.flight.entries)
	require.Equal(t, "one", f.slot(0).Owner)
	require.Equal(t, 1, d.ownership.strays.count())

	require.True(t, f.assign(m, d, 7, 0), "back again")
	require.NotSame(t, old, d.flight.slots[0])
	require.Equal(t, int64(7), f.slot(0).Epoch)
	require.True(t, d.flight.slots[0].open()[0].doubt)
	require.Zero(t, d.ownership.strays.count())

	require.False(t, f.assign(m, d, 8))
	d.flight.slots[0].leaving = time.Now().Add(-2 * time.Hour)
	require.True(t, f.assign(m, d, 8))
	require.Empty(t, f.slot(0).Owner)
	require.ErrorIs(t, claimTo(t.Context(), f.store, []int{0}, 7, due.UnixMilli()+5000), store.ErrFenced)
}

// A task that is not answered holds done back while the slot is to be given away. What was delivered behind it is not in doubt
// for the next owner; what is not delivered is.
func TestDeliveredBehindAnUnansweredOneIsNotLeftInDoubt(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{DrainTimeout: time.Hour})
	due := time.Now().Add(50 * time.Millisecond)
	for i, id := range []string{"before", "silent", "after", "beyond"} {
		f.schedule(ask("orders", id, due.Add(time.Duration(i)*time.Millisecond)))
	}
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	l := d.flight.slots[0]
	require.Len(t, l.open(), 4)
	for i, is := range []status{settled, sending, settled, settled} {
		l.open()[i].status, l.open()[i].content = is, &content{topic: "orders"}
	}
	require.False(t, f.assign(m, d, 6))
	d.settler.settle(t.Context())
	require.Len(t, l.open(), 3, "what stands before it is closed as ever")

	l.leaving = time.Now().Add(-40 * time.Minute)
	require.False(t, f.assign(m, d, 6))
	d.settler.settle(t.Context())
	l.leaving = time.Now().Add(-2 * time.Hour)
	require.True(t, f.assign(m, d, 6))

	two := f.stepped(f.elect(7), Config{MemberID: "two"})
	_, err = two.ownership.follow(t.Context())
	require.NoError(t, err)
	require.Len(t, two.flight.slots[0].open(), 1)
	require.Equal(t, l.open()[0].seq, two.flight.slots[0].open()[0].seq, "the silent one")
	require.True(t, two.flight.slots[0].open()[0].doubt)
}

// A slot was taken in the database, beginning on it failed, and then it is assigned elsewhere: its owner need not wait for us.
func TestSlotTakenAndNotBegunIsGivenBack(t *testing.T) {
	f := newFixture(t, 2, "orders")
	m := f.elect(5)
	d := f.stepped(m, Config{MemberID: "one"})
	_, err := f.store.Acquire(t.Context(), f.slots, 5, "one")
	require.NoError(t, err)
	d.ownership.strays.note(f.slots, 5)
	require.True(t, f.assign(m, d, 6, 1))
	require.Empty(t, f.slot(0).Owner)
	require.Equal(t, store.Slot{Slot: 1, Epoch: 6, Owner: "one"}, f.slot(1))
	require.Equal(t, 1, d.flight.ownedSlots())
	require.Zero(t, d.ownership.strays.count())
}

// The reply to a release is lost, and the assignment comes back: the line is not used as it was, for the slot may be another's.
func TestReleaseWithoutAReply(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	old := d.flight.slots[0]
	m.change(func() { m.current.Epoch, m.current.Slots = 6, nil })
	require.Len(t, d.ownership.leavers(m.Current()), 1)
	_, err := f.store.Release(t.Context(), []int{0}, 5)
	require.NoError(t, err)
	require.True(t, f.assign(m, d, 7, 0))
	require.NotSame(t, old, d.flight.slots[0])
	require.Equal(t, int64(7), f.slot(0).Epoch)
	require.Zero(t, counted(d.metrics.abandoned))
}

// A look at the slots that began before a slot was taken here ends later: the line stays.
func TestLookOfThePastAbandonsNothing(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, err := f.store.Acquire(t.Context(), f.slots, 4, "another")
	require.NoError(t, err)
	past, err := f.store.Slots(t.Context())
	require.NoError(t, err)
	_, d := f.owning(Config{})
	require.NoError(t, d.ownership.compare(t.Context(), past, nil))
	require.Len(t, d.flight.slots, 1)
	_, err = f.store.Acquire(t.Context(), f.slots, 6, "another")
	require.NoError(t, err)
	require.NoError(t, d.ownership.verify(t.Context()))
	require.Empty(t, d.flight.slots)
}

// Lines are given away and fenced at once, whichever comes first.
func TestGiveAwayBesideAFence(t *testing.T) {
	f := newFixture(t, 4, "orders")
	m, d := f.owning(Config{})
	m.change(func() { m.current.Epoch, m.current.Slots = 6, nil })
	drained := d.ownership.leavers(m.Current())
	require.Len(t, drained[5], 4)
	_, err := f.store.Acquire(t.Context(), []int{1, 2}, 6, "two")
	require.NoError(t, err)
	d.ownership.fenced(t.Context()) // of another loop
	require.Len(t, d.flight.slots, 2)
	require.NoError(t, d.ownership.release(t.Context(), drained[5], 5))
	require.Empty(t, d.flight.slots)
	require.Equal(t, "two", f.slot(1).Owner)
	require.Empty(t, f.slot(0).Owner)
}

// A task that was set aside has been answered, and its slot is to be given away: not before its end is stored, or the next owner would
// send it again.
func TestSlotWaitsForLateEnds(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	f.schedule(ask("orders", "a", time.Now()))
	d.claimer.sweep(t.Context())
	claimed, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	require.True(t, claimed)
	batch, bytes, _ := d.fetcher.nextFetch()
	d.fetcher.fetch(t.Context(), batch, bytes)
	late := d.flight.slots[0].tasks[0]
	late.status, d.flight.stuck[late.seq] = sending, late
	d.flight.setAside(late, late)
	d.settler.settle(t.Context())
	require.True(t, d.flight.slots[0].drained())

	d.flight.inbox.outcomes = []outcome{{task: late, at: nowMillis()}}
	d.settler.note(t.Context())
	require.False(t, f.assign(m, d, 6))
	require.Equal(t, "one", f.slot(0).Owner)
	d.settler.settle(t.Context())
	require.True(t, f.assign(m, d, 6))
	require.Empty(t, f.slot(0).Owner)
	v, err := f.store.Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	require.Equal(t, "succeeded", v.State)
	require.Empty(t, d.flight.stuck)
}

// What falls due in the last moments of a slot that is to be given away is left to its next owner: sent now, it could not be settled
// before the slot goes, and would be sent twice.
func TestNothingIsSentInTheLastMoments(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{DrainTimeout: time.Hour})
	f.schedule(ask("orders", "a", time.Now()))
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	batch, bytes, _ := d.fetcher.nextFetch()
	d.fetcher.fetch(t.Context(), batch, bytes)
	require.False(t, f.assign(m, d, 6))
	d.flight.slots[0].leaving = time.Now().Add(time.Second/2 - time.Hour)
	require.Empty(t, d.sender.takeDue())
	d.settler.settle(t.Context())
	require.True(t, f.assign(m, d, 6), "so it drains")
	v, err := f.store.Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	require.Equal(t, "pending", v.State)
}
