package intake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

func TestClaimIsFenced(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.own()
		require.NoError(t, claimTo(s.ctx, s.Store, []int{0, 1}, s.epoch, 100))
		require.NoError(t, claimTo(s.ctx, s.Store, []int{0, 1}, s.epoch, 100), "again, after a lost reply")
		require.NoError(t, claimTo(s.ctx, s.Store, []int{1}, s.epoch, 200))
		_, err := s.Acquire(s.ctx, []int{3}, s.epoch+1, "you")
		require.NoError(t, err)
		before := s.dump()

		for name, c := range map[string]struct {
			slots []int
			epoch int64
			pos   int64
		}{
			"one slot has another owner":     {[]int{2, 3}, s.epoch, 300},
			"an older epoch":                 {[]int{0}, s.epoch - 1, 300},
			"a newer epoch than any":         {[]int{0}, s.epoch + 9, 300},
			"the new owner's, for all":       {[]int{2, 3}, s.epoch + 1, 300},
			"one slot is beyond":             {[]int{0, 1}, s.epoch, 150},
			"one slot does not exist":        {[]int{0, 77}, s.epoch, 300},
			"a late repetition, gone beyond": {[]int{1}, s.epoch, 100},
		} {
			require.ErrorIs(t, claimTo(s.ctx, s.Store, c.slots, c.epoch, c.pos), handle.ErrFenced, name)
			require.Equal(t, before, s.dump(), name)
		}
		require.NoError(t, claimTo(s.ctx, s.Store, []int{3}, s.epoch+1, 300))

		before = s.dump()
		require.ErrorIs(t, s.Claim(s.ctx, 0, []int{0, 1}, []int64{101, 200}, s.epoch, 400), handle.ErrFenced, "its owner has one claimed further: the database was set back")
		require.Equal(t, before, s.dump())
		require.NoError(t, s.Claim(s.ctx, 0, []int{0, 1}, []int64{100, 150}, s.epoch, 400), "a claim whose reply was lost is no reason")
	})
}

// An epoch that was seized answers for the whole past: neither claims nor outcomes of the old owner have an effect.
func TestTheOldOwnerIsFenced(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", key("k")), s.schedule("b", key("k"), in(2000*ms)))
		s.claim(t0 + 1000)
		old := s.epoch
		slot := s.row("a").Slot
		s.own()
		before := s.dump()

		require.ErrorIs(t, claimTo(s.ctx, s.Store, s.allSlots(), old, t0+2000), handle.ErrFenced)
		require.ErrorIs(t, claimTo(s.ctx, s.Store, s.allSlots(), old, t0+1000), handle.ErrFenced, "not even what it has already")
		exit := s.transition("a", task.StateDead, 0, 1)
		exit.Epoch, exit.Dead = old, task.NewDeadLetter(s.row("a"), schemas.KindDead, "r", t0)
		for _, c := range []struct {
			done  []line.Done
			exits []line.Transition
		}{{[]line.Done{{Slot: slot, Epoch: old, From: 0, To: t0 + 1000}}, nil}, {nil, []line.Transition{exit}}} {
			settled, err := s.Settle(s.ctx, c.done, c.exits, store.At(s.now))
			require.NoError(t, err)
			require.Equal(t, []int{slot}, settled.Fenced)
			require.Empty(t, settled.Moved)
		}
		require.Equal(t, before, s.dump())
		require.Equal(t, "claimed", s.state("a"), "in doubt: the new owner sends it again")
		s.settle(t0 + 1000)
		require.Equal(t, "delivered", s.state("a"))
	})
}

func TestNext(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		next := func(slots ...int) map[int]int64 {
			t.Helper()
			_, out, err := s.Next(s.ctx, slots)
			require.NoError(t, err)
			m := map[int]int64{}
			for _, p := range out {
				m[p.Slot] = p.Pos
			}
			require.Len(t, m, len(out))
			return m
		}
		require.Empty(t, next(0, 1, 2, 3))
		s.do(s.schedule("a", key("k"), in(3000*ms)), s.schedule("b", key("k"), in(1000*ms)), s.schedule("gone", key("k"), in(500*ms)))
		s.do(s.cancel("gone"))
		slot := s.row("a").Slot
		require.Equal(t, map[int]int64{slot: t0 + 1000}, next(0, 1, 2, 3))
		require.Empty(t, next((slot+1)%testSlots))
		require.Empty(t, next())

		s.claim(t0 + 1000)
		require.Equal(t, map[int]int64{slot: t0 + 3000}, next(slot), "beyond claimed")
		s.settle(t0+1000, s.transition("b", task.StateReport, t0+2000, 1))
		require.Equal(t, map[int]int64{slot: t0 + 2000}, next(slot), "a report's time-out falls due as well")
		s.claim(t0 + 3000)
		require.Empty(t, next(slot))
	})
}

// A slot that is not held is fenced, whatever its turn: who looks at the slots because of a turn would look again and again.
func TestAClaimAtAnotherTurn(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.own()
		_, err := s.Acquire(s.ctx, []int{3}, s.epoch+1, "you")
		require.NoError(t, err)
		claim := func(turn int64, slots ...int) error {
			return s.Claim(s.ctx, turn, slots, make([]int64, len(slots)), s.epoch, 300)
		}
		require.ErrorIs(t, claim(7, 0, 1), line.ErrTurned)
		require.ErrorIs(t, claim(7, 3), handle.ErrFenced)
		require.ErrorIs(t, claim(7, 0, 3), handle.ErrFenced)
		require.ErrorIs(t, claim(7, 0, 77), handle.ErrFenced)
		require.NoError(t, claim(0, 0, 1))
	})
}
