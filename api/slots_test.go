package api

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

func TestWhatASlotThatIsBehindWaitsFor(t *testing.T) {
	split := func(moved, held int64) store.Change {
		return store.Change{Base: 2, Target: 3, Spread: 3, Moved: moved, MovedHeld: held}
	}
	last := task.Held(0) - 1 // place in time
	for name, c := range map[string]struct {
		slot store.Slot
		want SlotBehind
	}{
		"nobody has it":        {store.Slot{Done: 7, Change: split(9, last)}, SlotBehind{Why: "owner"}},
		"it is not split":      {store.Slot{Owner: "one", Done: 7, Change: store.Change{Base: 2, Target: 3, Spread: 2}}, SlotBehind{Owner: "one", Why: "in-flight", UpTo: 7}},
		"its tasks move":       {store.Slot{Owner: "one", Done: 7, Change: split(9, last)}, SlotBehind{Owner: "one", Why: "tasks", UpTo: 9}},
		"held ones are left":   {store.Slot{Owner: "one", Done: 7, Change: split(last, last)}, SlotBehind{Owner: "one", Why: "tasks"}},
		"some are unanswered":  {store.Slot{Owner: "one", Done: 7, Change: split(last, math.MaxInt64)}, SlotBehind{Owner: "one", Why: "answers"}},
		"later ones, not held": {store.Slot{Owner: "one", Done: 7, Change: split(9, math.MaxInt64)}, SlotBehind{Owner: "one", Why: "tasks", UpTo: 9}},
	} {
		c.slot.Slot, c.want.Slot = 1, 1
		require.Equal(t, c.want, newSlotBehind(c.slot), name)
	}
}
