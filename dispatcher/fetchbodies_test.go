package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/recordtest"
)

// A claim has been read; before its tasks enter, the late answer to an earlier sending of one is settled, and nobody remembers that
// sending any more. The task is not sent again, and does not hold up its line.
func TestEndedBetweenReadAndEntryIsNotSent(t *testing.T) {
	for name, end := range map[string]line.Transition{
		"delivered":          {State: task.StateSucceeded, Attempt: 1},
		"waits for a report": {State: task.StateReport, Attempt: 1, Pos: nowMillis() + 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			_, d := f.owning(Config{})
			f.schedule(askMany(2, "orders", "o", time.Now(), schemas.HeaderEvents, "none")...)
			d.claimer.sweep(t.Context())
			round := d.flight.Claims.Begin(d.lookahead())
			ready := round.Claims
			require.Len(t, ready, 1)
			require.NoError(t, claimTo(t.Context(), f.store, []int{0}, 5, ready[0].To))
			entries, err := d.claimer.readClaimed(t.Context(), round, ready)
			require.NoError(t, err)
			require.Len(t, entries, 2)

			end.Seq, end.Epoch, end.Lane = entries[0].Seq, 5, entries[0].Lane
			_, err = intake.New(f.store).Line().Settle(t.Context(), nil, []line.Transition{end}, nowMillis)
			require.NoError(t, err)

			round.Claimed(ready, entries)
			round.End()
			batch, _ := d.flight.Bodies.Next()
			require.Len(t, batch.Seqs(), 2)
			d.fetcher.fetch(t.Context(), batch)
			require.Equal(t, 1, d.flight.Figures().Due)
			send := released(d)
			require.Len(t, send, 1)
			require.Equal(t, "o1", recordtest.Header(send[0].Record, schemas.HeaderID))

			d.sender.answered(send[0].Task, send[0].Record, nil)
			d.settler.note(t.Context())
			d.settler.settle(t.Context())
			require.Zero(t, counted(d.metrics.Mismatch))
			require.True(t, d.flight.Look(0).Drained)
			require.Zero(t, d.flight.Figures().Claimed)
		})
	}
}

// Another takes the slot while its owner is not trusted and reads bodies: the owner notes no intent under its old epoch.
func TestNoIntentOfWhatAnotherHasTaken(t *testing.T) {
	f := newFixture(t, 1, "orders")
	m, d := f.owning(Config{})
	f.schedule(askMany(2, "orders", "o", time.Now())...)
	d.claimer.sweep(t.Context())
	claimed, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	require.True(t, claimed)
	batch, _ := d.flight.Bodies.Next()
	require.Len(t, batch.Seqs(), 2)

	m.trust(false)
	require.False(t, d.trust.trusted())
	_, err = intake.New(f.store).Line().Acquire(t.Context(), f.slots, 6, "two")
	require.NoError(t, err)
	asked, done := d.trust.suspended.look(), make(chan struct{})
	go func() {
		defer close(done)
		d.fetcher.fetch(t.Context(), batch)
	}()
	f.eventually("it asks whether it is trusted", func() bool { return d.trust.suspended.look() > asked })
	m.trust(true)
	_, err = d.ownership.follow(t.Context())
	require.NoError(t, err)
	require.True(t, d.trust.trusted())
	<-done
	require.NoError(t, d.sent.Replay(t.Context(), time.Time{}, func(e sendlog.Entry) error {
		require.Nil(t, e.Intent)
		return nil
	}))
}

// Where a task came from cannot be read, and the dispatcher is stopped: that is not the task's fault, and it is no dead letter.
func TestAStopWhileSourcesAreUnknown(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, d := f.owning(Config{})
	f.schedule(ask("orders", "a", time.Now()))
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	batch, _ := d.flight.Bodies.Next()
	f.sql("ALTER TABLE sources RENAME TO away")
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	d.fetcher.fetch(ctx, batch)
	in := d.flight.Figures()
	require.Zero(t, in.Due+in.Leaving)
	require.Equal(t, 1, in.Claimed)

	f.sql("ALTER TABLE away RENAME TO sources")
	d.fetcher.fetch(t.Context(), batch)
	in = d.flight.Figures()
	require.Equal(t, 1, in.Due)
	require.Zero(t, in.Leaving)
}
