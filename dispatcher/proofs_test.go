package dispatcher

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
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
	require.NoError(t, f.store.Claim(t.Context(), f.slots, 4, now.UnixMilli()))
	entries, err := f.store.Entries(t.Context(), []store.Range{{Slot: 0, To: now.UnixMilli()}})
	require.NoError(t, err)
	require.Len(t, entries, 3)
	outcomes := []sendlog.Outcome{
		{Seq: uint64(entries[0].Seq), Attempt: 1, Acked: true, At: 7},
		{Seq: uint64(entries[1].Seq), Attempt: 1, Acked: true, At: 8},
		{Seq: uint64(entries[2].Seq), Attempt: 1, Error: "no answer"},
	}
	for i := range 1000 {
		outcomes = append(outcomes, sendlog.Outcome{Seq: uint64(1 + i), Attempt: 1, Acked: true})
	}
	require.NoError(t, sent.AppendOutcomes(t.Context(), outcomes))

	_, err = d.own(t.Context())
	require.NoError(t, err)
	require.Len(t, d.proofs, 2)
	batch, bytes, _ := d.nextFetch()
	require.Len(t, batch, 3)
	d.fetch(t.Context(), batch[:1], bytes)
	require.Len(t, d.proofs, 1, "used")
	require.Equal(t, 1, counted(d.metrics.proven))
	d.abandon(d.lines[0], "a test")
	require.Empty(t, d.proofs)
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

// What an earlier owner may have sent is not also told to have expired. What nobody can have sent is.
func TestTasksInDoubtDoNotExpire(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	past := time.Now().Add(-time.Minute)
	f.schedule(askMany(5, "orders", "doubt", past, schemas.HeaderMaxLateness, "1s")...)
	_, err := f.store.Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	require.NoError(t, f.store.Claim(t.Context(), f.slots, 4, nowMillis()))
	f.schedule(askMany(5, "orders", "late", past, schemas.HeaderMaxLateness, "1s")...)
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "two"})
	f.eventually("all is settled", func() bool { return f.settledUpTo(past) })
	dead := func() map[string]string {
		letters, err := f.store.DeadLetters(t.Context(), store.DeadFilter{})
		require.NoError(t, err)
		out := map[string]string{}
		for _, l := range letters {
			out[l.TaskID] = l.Kind
		}
		return out
	}
	f.eventually("those that nobody has sent expire", func() bool { return len(dead()) == 5 })
	f.eventually("the others arrive", func() bool { return orders.count() == 5 })
	for id := range orders.copies() {
		require.Contains(t, id, "doubt")
	}
	for id, kind := range dead() {
		require.Contains(t, id, "late")
		require.Equal(t, schemas.KindExpired, kind)
	}
}

// A task that may have been sent, and whose target does not answer, is put off as one that no caller can cancel any more, and that
// its next claim does not hold to its lateness either.
func TestWhatMayHaveBeenSentStaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		doubt bool
		state task.State
		put   task.State
		held  bool
	}{
		"never handed to anybody": {false, task.StateLine, task.StateLine, true},
		"in doubt":                {true, task.StateLine, task.StateRetry, false},
		"set aside, or retried":   {false, task.StateRetry, task.StateRetry, false},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schemas.DefaultSettings()
			settings.MaxLateness = time.Second
			d := &Dispatcher{clock: new(store.Store).NewClock(), targets: map[outlet]*target{{"x", -1}: {outage: newOutage(time.Now())}}, where: kafka.NewPlacement(), settleKick: newKick(), fetchKick: newKick()}
			d.metrics = newMetrics(prometheus.NewRegistry(), d)
			now := d.clock.Millis()
			late := func(due int64) *claimedTask {
				return &claimedTask{slot: &ownedSlot{}, doubt: c.doubt, content: &content{topic: "x", due: due, state: c.state, settings: settings, record: &kgo.Record{}}}
			}
			require.False(t, d.admit(late(now), now, false))
			require.Equal(t, c.put, d.transitions[0].State)
			require.False(t, d.admit(late(now-2000), now, false))
			if c.held {
				require.Equal(t, task.StateDead, d.transitions[1].State)
				require.Equal(t, schemas.KindExpired, d.transitions[1].Dead.Kind)
			} else {
				require.Equal(t, task.StateRetry, d.transitions[1].State)
			}
		})
	}
}
