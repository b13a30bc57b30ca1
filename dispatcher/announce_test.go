package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
)

// The results topic does not answer, and a slot is to be given away: what was delivered is told from the database before it goes.
func TestSilentResultsDoNotHoldUpAHandOver(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders, events := f.read("orders"), f.read(results)
	answer := f.mute(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 10 * time.Minute, DrainTimeout: 20 * time.Second})
	f.schedule(askMany(20, "orders", "o", time.Now(), schemas.HeaderEvents, "all")...)
	f.eventually("they are delivered", func() bool { return orders.count() == 20 })
	require.NoError(t, d.end())
	slots, err := f.store.Slots(t.Context())
	require.NoError(t, err)
	for _, s := range slots {
		require.Equal(t, s.Claimed, s.Done, "nothing is in doubt")
		require.Empty(t, s.Owner)
	}
	answer()
	f.start(f.elect(6), t.TempDir(), Config{MemberID: "two"})
	f.eventually("every end is told", func() bool { return len(events.events(t, schemas.StateSucceeded)) == 20 })
	require.Equal(t, 20, orders.count(), "each once")
}

// The results topic does not answer: what has been delivered is neither sent again nor holds up its line, and is told later.
func TestSilentResultsHoldUpNothing(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders, events := f.read("orders"), f.read(results)
	answer := f.mute(results)
	// Long enough for a machine that stalls to acknowledge the deliveries.
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 5 * time.Second})
	due := time.Now()
	f.schedule(askMany(20, "orders", "o", due, schemas.HeaderEvents, "all")...)
	f.eventually("done moves on", func() bool { return orders.count() == 20 && f.settledUpTo(due) })
	require.Zero(t, d.inside(func(in flight.Figures) int { return in.Stuck + in.Unannounced + in.StagedTasks }))
	for i := range 20 {
		v, err := look.New(f.store).Get(t.Context(), "orders", fmt.Sprint("o", i))
		require.NoError(t, err)
		require.Equal(t, "delivered", v.State, "nothing is written for each")
	}
	require.Zero(t, events.count())

	answer()
	f.eventually("every end is told", func() bool {
		return len(events.events(t, schemas.StateDispatched)) == 20 && len(events.events(t, schemas.StateSucceeded)) == 20
	})
	require.Equal(t, 20, orders.count(), "each once")
}

// Deliveries keep going however long the results topic does not answer, and with more events than there is room for.
func TestSilentResultsNeverStopDeliveries(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders := f.read("orders")
	f.mute(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond, StageTasks: 40})
	for round := range 12 { // each is half of what the producer of deliveries held
		due := time.Now()
		f.schedule(askMany(40, "orders", fmt.Sprint(round, "-"), due)...)
		d.kicks.Sweep.Now()
		f.eventually("they are delivered", func() bool { return orders.count() == 40*(round+1) })
		f.eventually("done moves on", func() bool { return f.settledUpTo(due) })
	}
	require.Positive(t, counted(d.metrics.deferredEvents))
	require.Len(t, orders.copies(), 12*40)
}
