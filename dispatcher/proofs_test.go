package dispatcher

import (
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
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
	_, err := intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, now.UnixMilli()))
	entries, err := intake.New(f.store).Line().Entries(t.Context(), []line.Range{{Slot: 0, To: now.UnixMilli()}})
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
	var intents []sendlog.Intent
	for _, o := range outcomes {
		intents = append(intents, sendlog.Intent{Seq: o.Seq, Attempt: 1})
	}
	rows, _, err := intake.New(f.store).Line().Tasks(t.Context(), []int64{entries[0].Seq, entries[1].Seq, entries[2].Seq}, 1<<20)
	require.NoError(t, err)
	for i, row := range rows {
		intents = append(intents, sendlog.Intent{Seq: row.Seq, Attempt: 1, Topic: row.Topic, ID: row.ID, BodyHash: xxhash.Sum64(row.Body)})
		require.Equal(t, entries[i].Seq, row.Seq)
	}
	require.NoError(t, sent.AppendIntents(t.Context(), intents))
	require.NoError(t, sent.AppendOutcomes(t.Context(), outcomes))

	_, err = d.ownership.follow(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, d.flight.Figures().Proofs)
	batch, _ := d.flight.NextBodies()
	require.Len(t, batch.Seqs(), 3)
	d.fetcher.fetch(t.Context(), batch)
	require.Zero(t, d.flight.Figures().Proofs, "used")
	require.Equal(t, 2, counted(d.metrics.Proven))
}

// The send log goes by the database's clock, as places do, whatever this machine's shows. It may have been set back.
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
			_, err = intake.New(st).Line().Acquire(t.Context(), f.slots, 4, "one")
			require.NoError(t, err)
			require.NoError(t, claimTo(t.Context(), st, f.slots, 4, claimed))
			f.schedule(ask("orders", "a", clock(), schemas.HeaderEvents, "none"))
			require.NoError(t, claimTo(t.Context(), st, f.slots, 4, claimed+1000))
			d, sent := f.make(f.elect(5), t.TempDir(), Config{MemberID: "two"})
			defer func() { d.client.Close(); d.results.Close(0); _ = sent.Close() }()
			require.NoError(t, d.clock.Start(t.Context()))
			f.noteSent(sent, "a", task.Seq(f.source.ID, 0))

			_, err = d.ownership.follow(t.Context())
			require.NoError(t, err)
			require.Len(t, d.flight.Look(0).Seqs, 1)
			require.Equal(t, 1, d.flight.Figures().Proofs)
		})
	}
}

// After a set-back of the database another record has the number of one that was sent: it is sent, too.
func TestProofOfAnotherTaskWithTheSameNumber(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	dir, due := t.TempDir(), time.Now().Add(-time.Second)
	f.schedule(ask("orders", "b", due))
	sent, err := sendlog.Open(dir, sendlog.Config{}, zap.NewNop())
	require.NoError(t, err)
	f.noteSent(sent, "a", task.Seq(f.source.ID, 0))
	require.NoError(t, sent.Close())
	_, err = intake.New(f.store).Line().Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, nowMillis()))

	f.start(f.elect(5), dir, Config{MemberID: "one"})
	f.eventually("all is settled", func() bool { return f.settledUpTo(due) })
	require.Equal(t, map[string]int{"b": 1}, orders.copies())
}

// noteSent writes to a send log that a task as ask makes it was sent to orders under a number.
func (f *fixture) noteSent(sent *sendlog.Log, id string, seq int64) {
	f.Helper()
	r, err := schemas.Decode(ask("orders", id, time.Now(), schemas.HeaderEvents, "none"), schemas.Limits{})
	require.NoError(f, err)
	body := schemas.EncodeBody(nil, r.Key, r.Value, r.Headers, r.Settings)
	require.NoError(f, sent.AppendIntents(f.Context(), []sendlog.Intent{{Seq: seq, Attempt: 1, Topic: "orders", ID: id, BodyHash: xxhash.Sum64(body)}}))
	require.NoError(f, sent.AppendOutcomes(f.Context(), []sendlog.Outcome{{Seq: seq, Attempt: 1, Acked: true, At: nowMillis()}}))
}
