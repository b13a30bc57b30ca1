package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
)

// A takeover keeps what the send log says of tasks in doubt, nothing of all others, and of these nothing once it is used.
func TestProofsAreOfTasksInDoubtOnly(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m := f.elect(5)
	d, sent := f.make(m, t.TempDir(), Config{MemberID: "two"})
	t.Cleanup(func() { d.client.Close(); d.results.Close(0); _ = sent.Close() })
	now := time.Now()
	f.schedule(askMany(3, "orders", "t", now.Add(-time.Second))...)
	_, err := f.store.Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	require.NoError(t, f.store.Claim(t.Context(), f.slots, 4, now.UnixMilli()))
	entries, err := f.store.Entries(t.Context(), []store.Range{{Slot: 0, To: now.UnixMilli()}})
	require.NoError(t, err)
	require.Len(t, entries, 3)
	outcomes := []sendlog.Outcome{
		{Seq: entries[0].Seq, Attempt: 1, Acked: true, At: 7},
		{Seq: entries[1].Seq, Attempt: 1, Acked: true, At: 8},
		{Seq: entries[2].Seq, Attempt: 1, Error: "no answer"},
	}
	for i := range 1000 {
		outcomes = append(outcomes, sendlog.Outcome{Seq: int64(1 + i), Attempt: 1, Acked: true})
	}
	require.NoError(t, sent.AppendOutcomes(t.Context(), outcomes))

	_, err = d.ownership.follow(t.Context())
	require.NoError(t, err)
	require.Len(t, d.flight.proofs, 2)
	batch, bytes, _ := d.fetcher.nextFetch()
	require.Len(t, batch, 3)
	d.fetcher.fetch(t.Context(), batch[:1], bytes)
	require.Len(t, d.flight.proofs, 1, "used")
	require.Equal(t, 1, counted(d.metrics.proven))
	d.flight.abandon(d.flight.slots[0], "a test")
	require.Empty(t, d.flight.proofs)
}

func TestProofIsOfOneAttempt(t *testing.T) {
	p := proofs{7: {{Seq: 7, Attempt: 1, At: 1}, {Seq: 7, Attempt: 2, At: 2}}, 8: {{Seq: 8, Attempt: 1}}}
	o, ok := p.take(7, 2)
	require.True(t, ok)
	require.Equal(t, int64(2), o.At)
	require.Len(t, p, 1)
	_, ok = p.take(8, 3)
	require.False(t, ok)
	require.Empty(t, p)
}
