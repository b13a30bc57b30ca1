package index

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTimersChangedHidesNoTask(t *testing.T) {
	pending := wakes{}
	for _, payload := range []string{"3:500 4:-1", "3:-1 3:400", "4:700 x:1 -3:1 3: 4:-9223372036854775808 5:-2"} {
		mergeWake(pending, payload)
	}
	require.Equal(t, []SlotPos{{Slot: 3, Pos: TimersChanged}, {Slot: 3, Pos: 400}, {Slot: 4, Pos: TimersChanged}, {Slot: 4, Pos: 700}}, pending.list())
}
