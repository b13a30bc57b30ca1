package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
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
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, now.UnixMilli()))
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

// The send log goes by this machine's clock, and places by the database's: one of them may be wrong, and the latter may have been set back.
func TestProofsWhereClocksDisagree(t *testing.T) {
	for name, c := range map[string]struct{ ahead, setBack time.Duration }{
		"the database is ahead":    {ahead: 10 * time.Minute},
		"the database is behind":   {ahead: -10 * time.Minute},
		"its clock was set back":   {setBack: 30 * time.Minute},
		"the same, and it is fast": {ahead: 5 * time.Minute, setBack: 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			clock := func() time.Time { return time.Now().Add(c.ahead) }
			st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + f.path, Clock: clock}, zap.NewNop())
			require.NoError(t, err)
			defer st.Close()
			f.store = st
			claimed := clock().Add(c.setBack).UnixMilli()
			_, err = st.Acquire(t.Context(), f.slots, 4, "one")
			require.NoError(t, err)
			require.NoError(t, claimTo(t.Context(), st, f.slots, 4, claimed))
			f.schedule(ask("orders", "a", clock(), schemas.HeaderEvents, "none"))
			require.NoError(t, claimTo(t.Context(), st, f.slots, 4, claimed+1000))
			d, sent := f.make(f.elect(5), t.TempDir(), Config{MemberID: "two"})
			defer func() { d.client.Close(); d.results.Close(0); _ = sent.Close() }()
			require.NoError(t, d.clock.Start(t.Context()))
			require.NoError(t, sent.AppendOutcomes(t.Context(), []sendlog.Outcome{{Seq: task.Seq(f.source.ID, 0), Attempt: 1, Acked: true, At: nowMillis()}}))

			_, err = d.ownership.follow(t.Context())
			require.NoError(t, err)
			require.Len(t, d.flight.slots[0].open(), 1)
			require.Len(t, d.flight.proofs, 1)
		})
	}
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
