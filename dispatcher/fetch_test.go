package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// A claim has been read; before its tasks enter, the late answer to an earlier sending of one is settled, and nobody remembers that
// sending any more. The task is not sent again, and does not hold up its line.
func TestEndedBetweenReadAndEntryIsNotSent(t *testing.T) {
	for name, end := range map[string]store.Transition{
		"delivered":          {State: task.StateSucceeded, Attempt: 1},
		"waits for a report": {State: task.StateReport, Attempt: 1, Pos: nowMillis() + 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			_, d := f.owning(Config{})
			f.schedule(askMany(2, "orders", "o", time.Now())...)
			d.sweep(t.Context())
			ready, _ := d.beginClaim()
			require.Len(t, ready, 1)
			require.NoError(t, f.store.Claim(t.Context(), []int{0}, 5, ready[0].to))
			entries, err := d.readClaimed(t.Context(), ready)
			require.NoError(t, err)
			require.Len(t, entries, 2)

			end.Seq, end.Epoch, end.Lane = entries[0].Seq, 5, entries[0].Lane
			_, err = f.store.Settle(t.Context(), nil, []store.Transition{end}, nil, nowMillis())
			require.NoError(t, err)

			d.takeIn(ready, entries)
			d.endClaim(ready)
			batch, bytes, _ := d.nextFetch()
			require.Len(t, batch, 2)
			d.fetch(t.Context(), batch, bytes)
			require.Len(t, d.due, 1)
			require.Equal(t, entries[1].Seq, d.due[0].seq)

			d.due[0].status = settled
			d.settle(t.Context())
			require.Zero(t, counted(d.metrics.mismatch))
			require.True(t, d.lines[0].drained())
			require.Zero(t, d.entries)
		})
	}
}
