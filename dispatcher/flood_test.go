package dispatcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
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
	epoch := int64(1)
	place := func() int {
		epoch++
		d := f.stepped(f.elect(epoch), Config{MemberID: "one", LookAhead: time.Second})
		f.eventually("it knows what it owns", func() bool { _, err := d.ownership.follow(t.Context()); return err == nil })
		d.claimer.sweep(t.Context())
		_, err := d.claimer.claim(t.Context())
		require.NoError(t, err)
		var order []int64
		for batch, _ := d.flight.Bodies.Next(); batch != nil; batch, _ = d.flight.Bodies.Next() {
			order = append(order, batch.Seqs()...)
		}
		require.Len(t, order, n+1)
		return 1 + slices.Index(order, slices.Max(order)) // it was stored last
	}
	const turn = 128 // of a target's tasks of the normal class
	require.LessOrEqual(t, place(), turn+1, "behind one turn of the flood")

	// Rows of a program of a version before keys have their turns too, apart from newer rows.
	f.sql(fmt.Sprintf("UPDATE tasks SET lane = %d WHERE topic = CAST('a.5e0w0' AS BLOB)", task.Unkeyed("a.5e0w0", task.ClassNormal)))
	require.LessOrEqual(t, place(), turn+1)
	f.sql(fmt.Sprintf("UPDATE tasks SET lane = %d", task.Unkeyed("billing", task.ClassNormal)))
	require.Equal(t, n+1, place(), "with that hash it waits for all of the flood")

	f.start(f.elect(epoch+1), f.TempDir(), Config{})
	delivered, flood := f.read("billing"), f.read("a.5e0w0")
	f.eventually("rows of the lanes of before are delivered", func() bool { return delivered.count() == 1 && flood.count() == n })
}
