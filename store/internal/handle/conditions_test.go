package handle

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A slot is held by an owner, and under this epoch: neither an earlier nor a later one.
func TestASlotIsHeldUnderItsEpoch(t *testing.T) {
	held := AllConditions().HeldUnder
	require.True(t, held(Slot{Epoch: 5, Owner: "a"}, 5))
	for _, s := range []Slot{{Epoch: 4, Owner: "a"}, {Epoch: 6, Owner: "a"}, {Epoch: 5}, {}} {
		require.False(t, held(s, 5), s)
	}
}

// A slot is idle where its owner has it claimed, with nothing of that left.
func TestASlotIsIdleWhereItsOwnerHasIt(t *testing.T) {
	idle := AllConditions().Idle
	require.True(t, idle(Slot{Claimed: 7, Done: 7}, 7))
	for _, s := range []Slot{{Claimed: 7, Done: 6}, {Claimed: 8, Done: 7}, {Claimed: 8, Done: 8}, {Claimed: 6, Done: 6}, {}} {
		require.False(t, idle(s, 7), s)
	}
}

// What a slot's row says of it, at each edge.
func TestWhatARowOfASlotSays(t *testing.T) {
	require.True(t, Slot{Doubt: 7}.SentOnce(8))
	require.False(t, Slot{Doubt: 7}.SentOnce(7), "a task up to there may have been sent before")
	require.False(t, Slot{Doubt: 7, Unsure: true}.SentOnce(8))

	still := Change{Base: 4, Target: 4, Spread: 4}
	for _, c := range []struct {
		Change
		changing, split bool
		count           int
	}{{still, false, false, 4}, {Change{Base: 4, Target: 6, Spread: 4}, true, false, 6}, {Change{Base: 4, Target: 6, Spread: 6}, true, true, 6}, {Change{Base: 6, Target: 4, Spread: 4}, true, true, 6}} {
		require.Equal(t, []any{c.changing, c.split, c.count}, []any{c.Changing(), c.Split(), c.Count()}, c.Change)
	}
	require.True(t, Slot{Unsure: true, Change: Change{Base: 4, Target: 6}}.MayHaveMoved())
	require.False(t, Slot{Change: Change{Base: 4, Target: 6}}.MayHaveMoved())
	require.False(t, Slot{Unsure: true, Change: still}.MayHaveMoved())
	for slot, givenUp := range map[int]bool{3: false, 4: true, 5: true} {
		require.Equal(t, givenUp, Slot{Slot: slot, Change: still}.GivenUp(), slot)
	}
	require.False(t, Slot{Slot: 5}.GivenUp(), "a row of the version before")

	const all, held = int64(math.MaxInt64), int64(1) << 50
	for _, c := range []struct {
		moved, movedHeld  int64
		whole, butAnswers bool
	}{{all, all, true, false}, {all, all - 1, false, false}, {all - 1, all, false, true}, {held - 1, all, false, true}, {held - 2, all, false, false}, {held - 1, all - 1, false, false}} {
		at := Change{Moved: c.moved, MovedHeld: c.movedHeld}
		require.Equal(t, []bool{c.whole, c.butAnswers}, []bool{at.Whole(), at.AllButAnswers()}, c)
	}
	at := Change{Moved: 100, MovedHeld: held + 100}
	for pos, there := range map[int64]bool{100: true, 101: false, held: true, held + 100: true, held + 101: false} {
		require.Equal(t, there, at.InPlace(pos), pos)
	}
	require.Equal(t, int64(8), NextTurn([]Slot{{Change: Change{Turn: 2}}, {Change: Change{Turn: 7}}, {Change: Change{Turn: 3}}}))
	require.Equal(t, int64(1), NextTurn(nil))
}

// A spread by which tasks were placed counts only while the locked rows say the same.
func TestASpreadIsThatOfTheLockedRows(t *testing.T) {
	rows := []Slot{{Slot: 0, Change: Change{Base: 2, Target: 3, Spread: 3}}, {Slot: 1, Change: Change{Base: 2, Target: 3, Spread: 2}}, {Slot: 2, Change: Change{Base: 2, Target: 3, Spread: 2}}}
	spread := SpreadOf(rows)
	require.Equal(t, []int{2, 3, 3, 3, 2, 2}, []int{spread.Base(), spread.Target(), spread.Rows(), spread.Count(0), spread.Count(1), spread.Count(2)})
	h := &Handle{}
	h.spread.Store(&spread)
	require.NoError(t, h.CheckSpread(spread, map[int]Slot{0: rows[0], 1: rows[1]}))
	require.NotNil(t, h.spread.Load())
	for _, other := range []Change{{Base: 3, Target: 3, Spread: 3}, {Base: 2, Target: 4, Spread: 3}, {Base: 2, Target: 3, Spread: 2}} {
		h.spread.Store(&spread)
		require.ErrorIs(t, h.CheckSpread(spread, map[int]Slot{0: {Change: other}}), ErrSpread)
		require.Nil(t, h.spread.Load(), "it is read again")
	}
	whole := SpreadOf([]Slot{{Change: Change{Base: 1, Target: 1, Spread: 1}}})
	require.True(t, whole.Whole())
}

func TestTasksOutOfLineLockNoSlot(t *testing.T) {
	set := SlotSet{}
	for _, slot := range []int{3, -1, 0, 3} {
		set.Add(slot)
	}
	require.Equal(t, []int{0, 3}, set.sorted())
}
