package intake

import (
	"math"
	"testing"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/stretchr/testify/require"
)

func TestNextEpoch(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		other, last := s.another(), int64(0)
		for i := range 10 {
			from := s.Store
			if i%2 == 1 {
				from = other
			}
			epoch, err := New(from).Line().NextEpoch(s.ctx)
			require.NoError(t, err)
			require.Greater(t, epoch, last)
			last = epoch
		}
	})
}

// A database that was set back has forgotten numbers, and the owners have taken their slots anew under the latest.
func TestNextEpochOfADatabaseThatWasSetBack(t *testing.T) {
	for name, forget := range map[string]string{"some": "UPDATE meta SET value = 1 WHERE name = 'epoch'", "all": "DELETE FROM meta WHERE name = 'epoch'"} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				_, err := s.NextEpoch(s.ctx)
				require.NoError(t, err)
				_, err = s.Acquire(s.ctx, []int{2}, 7, "me")
				require.NoError(t, err)
				_, err = s.db.ExecContext(s.ctx, forget)
				require.NoError(t, err)
				for _, want := range []int64{8, 9} {
					epoch, err := s.NextEpoch(s.ctx)
					require.NoError(t, err)
					require.Equal(t, want, epoch)
				}
			})
		})
	}
}

func TestAcquire(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		acquire := func(epoch int64, owner string, slots ...int) []store.Slot {
			t.Helper()
			out, err := s.Acquire(s.ctx, slots, epoch, owner)
			require.NoError(t, err)
			return out
		}
		require.Equal(t, still(store.Slot{Slot: 1}, store.Slot{Slot: 3}), acquire(5, "me", 3, 1), "as they were before, in order")
		require.NoError(t, claimTo(s.ctx, s.Store, []int{1, 3}, 5, 70))
		mine := still(store.Slot{Slot: 1, Epoch: 5, Owner: "me", Claimed: 70}, store.Slot{Slot: 3, Epoch: 5, Owner: "me", Claimed: 70})
		require.Equal(t, mine, acquire(5, "me", 1, 3), "again, after a lost reply")
		mine[0].Doubt, mine[1].Doubt = 70, 70

		require.Empty(t, acquire(5, "you", 1, 3), "another of the same epoch is left alone")
		require.Empty(t, acquire(4, "me", 1, 3), "an older term of my own, too")
		require.Equal(t, still(store.Slot{Slot: 2}), acquire(4, "you", 1, 2, 3, 99), "only what is to be had")
		require.Empty(t, acquire(9, "you"))

		require.Equal(t, mine[1:], acquire(6, "you", 3), "a higher epoch takes over what is in doubt")
		all, err := s.Slots(s.ctx)
		require.NoError(t, err)
		require.Equal(t, still(store.Slot{Slot: 0}, mine[0], store.Slot{Slot: 2, Epoch: 4, Owner: "you"}, store.Slot{Slot: 3, Epoch: 6, Owner: "you", Claimed: 70, Doubt: 70}), all)
	})
}

func TestAcquiringNeedsAName(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		_, err := s.Acquire(s.ctx, []int{0}, 1, "")
		require.ErrorContains(t, err, "must have a name")
	})
}

func TestRelease(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.own()
		s.deliver(50)
		taken, err := s.Acquire(s.ctx, []int{0}, s.epoch+1, "you")
		require.NoError(t, err)
		require.Len(t, taken, 1)
		release := func(epoch int64, slots ...int) []int {
			t.Helper()
			kept, err := s.Release(s.ctx, slots, epoch)
			require.NoError(t, err)
			return kept
		}
		slot := func(n int) store.Slot {
			t.Helper()
			all, err := s.Slots(s.ctx)
			require.NoError(t, err)
			return all[n]
		}
		for range 2 { // repeated after a lost reply
			require.Empty(t, release(s.epoch, 0, 1))
			require.Equal(t, "you", slot(0).Owner, "not mine any more")
			require.Equal(t, still(store.Slot{Slot: 1, Epoch: s.epoch, Claimed: 50, Done: 50})[0], slot(1))
			require.Equal(t, "me", slot(2).Owner)
		}
		require.Empty(t, release(s.epoch))
		require.Empty(t, release(s.epoch+1, 2), "nor yet")
		require.Equal(t, "me", slot(2).Owner)

		require.NoError(t, claimTo(s.ctx, s.Store, []int{2}, s.epoch, 60))
		require.Equal(t, []int{2}, release(s.epoch, 2, 3), "what is claimed is to be settled first")
		require.Equal(t, "me", slot(2).Owner)
		require.Empty(t, slot(3).Owner)
		require.NoError(t, s.Abandon(s.ctx, []int{2}, s.epoch+1), "under another epoch")
		require.Equal(t, "me", slot(2).Owner)
		for range 2 {
			require.NoError(t, s.Abandon(s.ctx, []int{0, 2}, s.epoch, line.Known{Slots: []line.Had{{Slot: 0, Pos: 900}, {Slot: 2, Pos: 40}}}))
			require.Equal(t, still(store.Slot{Slot: 2, Epoch: s.epoch, Claimed: 60, Done: 50})[0], slot(2))
			require.Equal(t, "you", slot(0).Owner)
			require.Less(t, slot(0).Claimed, int64(900))
		}
		require.NoError(t, s.Abandon(s.ctx, []int{2}, s.epoch, line.Known{Slots: []line.Had{{Slot: 2, Pos: 70}}}), "the database had forgotten some of it")
		require.EqualValues(t, 70, slot(2).Claimed)
	})
}

// Whoever has given a slot back has no part in it: what it had on its way fails, though no other owner has come yet.
func TestWhatIsGivenBackIsFenced(t *testing.T) {
	for name, giveBack := range map[string]func(s *fixture, slot int) error{
		"released":  func(s *fixture, slot int) error { _, err := s.Release(s.ctx, []int{slot}, s.epoch); return err },
		"abandoned": func(s *fixture, slot int) error { return s.Abandon(s.ctx, []int{slot}, s.epoch) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", key("k"), in(100*ms)))
				slot := s.row("a").Slot
				s.deliver(t0)
				require.NoError(t, giveBack(s, slot))
				before := s.dump()
				require.ErrorIs(t, claimTo(s.ctx, s.Store, []int{slot}, s.epoch, t0+1000), handle.ErrFenced)
				require.ErrorIs(t, claimTo(s.ctx, s.Store, s.allSlots(), s.epoch, t0+1000), handle.ErrFenced)
				settled, err := s.Settle(s.ctx, []line.Done{{Slot: slot, Epoch: s.epoch, From: t0, To: t0}}, nil, store.At(s.now))
				require.NoError(t, err)
				require.Equal(t, []int{slot}, settled.Fenced)
				again, err := s.Acquire(s.ctx, []int{slot}, s.epoch, "me")
				require.NoError(t, err)
				require.Empty(t, again, "an epoch that is over does not come back")
				require.Equal(t, before, s.dump())

				taken, err := s.Acquire(s.ctx, []int{slot}, s.epoch+1, "you")
				require.NoError(t, err)
				require.Equal(t, still(store.Slot{Slot: slot, Epoch: s.epoch, Claimed: t0, Done: t0}), taken)
				require.NoError(t, claimTo(s.ctx, s.Store, []int{slot}, s.epoch+1, t0+1000))
			})
		})
	}
}

// still are rows of slots whose number does not change.
func still(rows ...store.Slot) []store.Slot {
	for i := range rows {
		rows[i].Change = unchanging(testSlots)
	}
	return rows
}

func unchanging(n int) store.Change {
	return store.Change{Base: n, Target: n, Spread: n, Moved: math.MaxInt64, MovedHeld: math.MaxInt64}
}
