package dispatcher

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// TestPutBackKeepsTheOrder: bodies are read in the order of seq and released in the order of place, so a read that ends
// early must not let a later place go ahead of an earlier one.
func TestPutBackKeepsTheOrder(t *testing.T) {
	d := &Dispatcher{clock: new(store.Store).NewClock(), fetching: newFetchQueue(), staging: staging{maxTasks: 100, maxBytes: 1 << 20}}
	l := &ownedSlot{}
	read := map[int64]*claimedTask{}
	for seq, pos := range []int64{50, 10, 40, 20, 30} { // read: seq 0, 1, 2; not read: 3, 4
		read[int64(seq)] = &claimedTask{slot: l, seq: int64(seq), pos: pos}
	}
	rows := d.putBack(read, []task.Task{{Seq: 0}, {Seq: 1}, {Seq: 2}}, []int64{3, 4})
	require.Equal(t, []task.Task{{Seq: 1}}, rows, "only what comes before everything that was not read")
	require.Len(t, read, 1)
	var places []int64
	for len(d.unread) > 0 {
		batch, _, _ := d.nextFetch()
		require.Len(t, batch, 1, "a bite of half of what was read")
		places = append(places, batch[0].pos)
	}
	require.Equal(t, []int64{20, 30, 40, 50}, places)
}
