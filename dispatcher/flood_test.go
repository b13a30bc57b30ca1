package dispatcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// A flood delays only its own target, even if somebody has chosen the target's name for the hash of another name. These two have one
// lane in a hash without a key.
func TestAFloodOfAChosenNameDelaysNobodyElse(t *testing.T) {
	const n = 1000
	require.Equal(t, task.Unkeyed("billing", 0), task.Unkeyed("a.5e0w0", 0))
	f := newFixture(t, 1, "billing", "a.5e0w0")
	due := time.Now().Add(-time.Second)
	f.schedule(append(askMany(n, "a.5e0w0", "f", due, schemas.HeaderEvents, "none"), ask("billing", "b", due.Add(time.Millisecond)))...)

	// place is which number the task of billing gets in the queue for bodies.
	place := func() int {
		entries, err := f.store.Entries(t.Context(), []store.Range{{Slot: 0, From: 0, To: nowMillis() + 60_000}})
		require.NoError(t, err)
		require.Len(t, entries, n+1)
		q := newFetchQueue()
		for _, e := range entries {
			q.push(&claimedTask{seq: e.Seq, at: e.Pos, lane: e.Lane})
		}
		last := slices.MaxFunc(entries, func(a, b store.Entry) int { return int(a.Pos - b.Pos) })
		return 1 + slices.IndexFunc(q.take(n+1, never), func(t *claimedTask) bool { return t.seq == last.Seq })
	}
	turn := weights[task.ClassNormal]
	require.LessOrEqual(t, place(), turn+1, "behind one turn of the flood")

	// Rows of a program of a version before keys have their turns too, apart from newer rows.
	f.sql(fmt.Sprintf("UPDATE tasks SET lane = %d WHERE topic = CAST('a.5e0w0' AS BLOB)", task.Unkeyed("a.5e0w0", task.ClassNormal)))
	require.LessOrEqual(t, place(), turn+1)
	f.sql(fmt.Sprintf("UPDATE tasks SET lane = %d", task.Unkeyed("billing", task.ClassNormal)))
	require.Equal(t, n+1, place(), "with that hash it waits for all of the flood")

	f.start(f.elect(1), f.TempDir(), Config{})
	delivered, flood := f.read("billing"), f.read("a.5e0w0")
	f.eventually("rows of the lanes of before are delivered", func() bool { return delivered.count() == 1 && flood.count() == n })
}
