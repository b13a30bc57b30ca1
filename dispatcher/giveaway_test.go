package dispatcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
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
	f.schedule(ask("orders", "a", due, schemas.HeaderEvents, "none"))
	d.claimer.sweep(t.Context())
	round := d.flight.Claims.Begin(d.lookahead())
	ready := round.Claims
	require.Len(t, ready, 1)

	require.False(t, f.assign(m, d, 6), "it is not given away")
	require.Equal(t, "one", f.slot(0).Owner)
	require.NoError(t, d.claimer.claimTogether(t.Context(), round, ready, claimGroup{5, ready[0].To, ready[0].Turn}))
	round.End()
	require.False(t, f.assign(m, d, 6), "nor with what was claimed")
	require.Equal(t, "one", f.slot(0).Owner)
	require.Equal(t, 1, d.flight.Figures().Claimed)

	f.passes(due.Add(time.Millisecond))
	f.delivers(d)
	d.settler.settle(t.Context())
	require.True(t, f.assign(m, d, 6))
	require.Equal(t, store.Slot{Epoch: 5, Claimed: ready[0].To, Done: ready[0].To, Change: f.slot(0).Change}, f.slot(0))
	require.Empty(t, d.flight.Claims.Begin(d.lookahead()).Claims)
}

// The reply to a claim is lost, and then the slot is to be given away: what was claimed is not left to the next owner.
func TestClaimWithoutAReplyIsTakenIn(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	due := time.Now().Add(200 * time.Millisecond)
	f.schedule(ask("orders", "a", due))
	require.NoError(t, claimTo(t.Context(), f.store, []int{0}, 5, due.UnixMilli()+7))
	require.True(t, d.flight.Look(0).Drained, "as far as is known here")

	require.False(t, f.assign(m, d, 6))
	require.Equal(t, "one", f.slot(0).Owner)
	require.Equal(t, due.UnixMilli()+7, d.flight.Look(0).Claimed)
	require.Len(t, d.flight.Look(0).Seqs, 1)
	require.Equal(t, 1, d.flight.Figures().Claimed)
}

// The same, while the slot stays: the next claim, which does not reach as far, is refused. That is not a fence, and does not go on
// for as long as the first claim reached.
func TestClaimShortOfOneWithoutAReply(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, d := f.owning(Config{})
	now := nowMillis()
	const far = 3_600_000
	f.schedule(ask("orders", "a", time.UnixMilli(now+2000)))
	require.NoError(t, claimTo(t.Context(), f.store, []int{0}, 5, now+far))
	d.flight.Claims.Woken([]index.SlotPos{{Slot: 0, Pos: now}})
	_, err := d.claimer.claim(t.Context())
	require.ErrorIs(t, err, store.ErrFenced)
	d.ownership.fenced(t.Context())
	require.False(t, d.trust.suspended.active())
	require.Equal(t, now+far, d.flight.Look(0).Claimed)
	require.Len(t, d.flight.Look(0).Seqs, 1)
	d.flight.Claims.Woken([]index.SlotPos{{Slot: 0, Pos: now}})
	claimed, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	require.True(t, claimed)
	require.Greater(t, d.flight.Look(0).Claimed, now+far)
	require.Len(t, d.flight.Look(0).Seqs, 1, "each once")
}

// What does not drain in time is abandoned here before it is in the database, and an assignment that comes back begins anew.
func TestSlotThatDoesNotDrainIsAbandoned(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{DrainTimeout: time.Nanosecond}) // what does not drain at once is too late
	due := time.Now().Add(200 * time.Millisecond)
	f.schedule(ask("orders", "a", due))
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	require.Len(t, d.flight.Look(0).Seqs, 1)

	m.change(func() { m.current.Epoch, m.current.Slots = 6, nil })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.ownership.follow(gone) // the database does not take it
	require.Error(t, err)
	require.False(t, d.flight.Look(0).Owned)
	require.Equal(t, 1, counted(d.metrics.Abandoned))
	require.Zero(t, d.flight.Figures().Claimed)
	require.Equal(t, "one", f.slot(0).Owner)
	require.Len(t, d.flight.Owning.Strays(nil), 1)

	require.True(t, f.assign(m, d, 7, 0), "back again")
	require.Equal(t, int64(7), d.flight.Look(0).Epoch)
	require.Equal(t, int64(7), f.slot(0).Epoch)
	require.Equal(t, 1, d.flight.Look(0).InDoubt)
	require.Empty(t, d.flight.Owning.Strays(nil))

	require.True(t, f.assign(m, d, 8))
	require.Empty(t, f.slot(0).Owner)
	require.ErrorIs(t, claimTo(t.Context(), f.store, []int{0}, 7, due.UnixMilli()+5000), store.ErrFenced)
}

// A task that is not answered holds done back while the slot is to be given away. What was delivered behind it is not in doubt
// for the next owner; what is not delivered is.
func TestDeliveredBehindAnUnansweredOneIsNotLeftInDoubt(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{DrainTimeout: 2 * time.Second})
	due := time.Now().Add(50 * time.Millisecond)
	for i, id := range []string{"before", "silent", "after", "beyond"} {
		f.schedule(ask("orders", id, due.Add(time.Duration(i)*time.Millisecond), schemas.HeaderEvents, "none"))
	}
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	all := d.flight.Look(0).Seqs
	require.Len(t, all, 4)
	f.passes(due.Add(5 * time.Millisecond))
	f.delivers(d, "silent")
	d.settler.settle(t.Context())
	require.Equal(t, all[1:], d.flight.Look(0).Seqs, "what stands before it is closed as ever")
	f.eventually("the slot goes", func() bool {
		gone := f.assign(m, d, 6)
		d.settler.settle(t.Context())
		return gone
	})

	two := f.stepped(f.elect(7), Config{MemberID: "two"})
	_, err = two.ownership.follow(t.Context())
	require.NoError(t, err)
	require.Equal(t, all[1:2], two.flight.Look(0).Seqs, "the silent one")
	require.Equal(t, 1, two.flight.Look(0).InDoubt)
}

// A slot was taken in the database, beginning on it failed, and then it is assigned elsewhere: its owner need not wait for us.
func TestSlotTakenAndNotBegunIsGivenBack(t *testing.T) {
	f := newFixture(t, 2, "orders")
	m := f.elect(5)
	d := f.stepped(m, Config{MemberID: "one"})
	_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 5, "one")
	require.NoError(t, err)
	d.flight.Owning.Taking(f.slots, 5)
	require.True(t, f.assign(m, d, 6, 1))
	require.Empty(t, f.slot(0).Owner)
	require.Equal(t, store.Slot{Slot: 1, Epoch: 6, Owner: "one", Change: f.slot(1).Change}, f.slot(1))
	require.Equal(t, 1, d.flight.Figures().Slots)
	require.Empty(t, d.flight.Owning.Strays(nil))
}

// The reply to a release is lost, and the assignment comes back: the line is not used as it was, for the slot may be another's.
func TestReleaseWithoutAReply(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	m.change(func() { m.current.Epoch, m.current.Slots = 6, nil })
	require.Len(t, d.flight.Owning.Leavers(m.Current().Slots), 1)
	_, err := intake.New(f.store).Line().Release(t.Context(), []int{0}, 5)
	require.NoError(t, err)
	require.True(t, f.assign(m, d, 7, 0))
	require.Equal(t, int64(7), d.flight.Look(0).Epoch, "anew")
	require.Equal(t, int64(7), f.slot(0).Epoch)
	require.Zero(t, counted(d.metrics.Abandoned))
}

// A look at the slots that began before a slot was taken here ends later: the line stays.
func TestLookOfThePastAbandonsNothing(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "another")
	require.NoError(t, err)
	past, err := f.store.Slots(t.Context())
	require.NoError(t, err)
	_, d := f.owning(Config{})
	require.NoError(t, d.ownership.compare(t.Context(), past, nil))
	require.Equal(t, 1, d.flight.Figures().Slots)
	_, err = intake.New(f.store).Line().Acquire(t.Context(), f.slots, 6, "another")
	require.NoError(t, err)
	require.NoError(t, d.ownership.verify(t.Context()))
	require.Zero(t, d.flight.Figures().Slots)
}

// Lines are given away and fenced at once, whichever comes first.
func TestGiveAwayBesideAFence(t *testing.T) {
	f := newFixture(t, 4, "orders")
	m, d := f.owning(Config{})
	m.change(func() { m.current.Epoch, m.current.Slots = 6, nil })
	drained := d.flight.Owning.Leavers(m.Current().Slots)
	require.Len(t, drained[5], 4)
	_, err := intake.New(f.store).Line().Acquire(t.Context(), []int{1, 2}, 6, "two")
	require.NoError(t, err)
	d.ownership.fenced(t.Context()) // of another loop
	require.Equal(t, 2, d.flight.Figures().Slots)
	require.NoError(t, d.ownership.release(t.Context(), drained[5], 5))
	require.Zero(t, d.flight.Figures().Slots)
	require.Equal(t, "two", f.slot(1).Owner)
	require.Empty(t, f.slot(0).Owner)
}

// A task that was set aside has been answered, and its slot is to be given away: not before its end is stored, or the next owner would
// send it again.
func TestSlotWaitsForLateEnds(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{UnresponsiveAfter: time.Nanosecond})
	f.schedule(ask("orders", "a", time.Now()))
	d.claimer.sweep(t.Context())
	claimed, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	require.True(t, claimed)
	batch, _ := d.flight.Bodies.Next()
	d.fetcher.fetch(t.Context(), batch)
	late := released(d)
	require.Len(t, late, 1)
	require.Empty(t, d.flight.Outcomes.Check())
	require.Equal(t, 1, d.flight.Figures().Stuck)
	d.settler.settle(t.Context())
	require.True(t, d.flight.Look(0).Drained)

	d.sender.answered(late[0].Task, late[0].Record, nil)
	d.settler.note(t.Context())
	require.False(t, f.assign(m, d, 6))
	require.Equal(t, "one", f.slot(0).Owner)
	d.settler.settle(t.Context())
	require.True(t, f.assign(m, d, 6))
	require.Empty(t, f.slot(0).Owner)
	v, err := look.New(f.store).Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	require.Equal(t, "succeeded", v.State)
	require.Zero(t, d.flight.Figures().Stuck)
}

// A slot was given back and the reply is lost. A late answer of its task cannot be settled until that is clear, and nobody is busy meanwhile.
func TestALateAnswerOfASlotThatMayBeGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newSlowFixture(t, "no such query", 0)
		_, err := d.ownership.follow(t.Context())
		require.NoError(t, err)
		f.schedule(ask("orders", "a", time.Now(), schemas.HeaderEvents, "none"))
		d.claimer.sweep(t.Context())
		_, err = d.claimer.claim(t.Context())
		require.NoError(t, err)
		batch, _ := d.flight.Bodies.Next()
		d.fetcher.fetch(t.Context(), batch)
		sent := released(d)
		require.Len(t, sent, 1)
		time.Sleep(d.cfg.UnresponsiveAfter)
		d.flight.Outcomes.Check()
		d.settler.settle(t.Context())

		require.NotEmpty(t, d.flight.Owning.Leavers(nil))
		_, err = intake.New(f.store).Line().Release(t.Context(), []int{0}, 5)
		require.NoError(t, err)
		d.sender.answered(sent[0].Task, sent[0].Record, nil)
		d.settler.note(t.Context())
		bound, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d.settler.settle(bound)
		require.Positive(t, counted(d.metrics.fenced))
		require.LessOrEqual(t, counted(d.metrics.fenced), int(time.Second/flight.ClaimPause)+1)
		require.NotEmpty(t, d.flight.Owning.Released([]int{0}, 5, nil))
	})
}
