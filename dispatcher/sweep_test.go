package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/schemas"
)

// A task that the index has lost, and that nobody was woken for, is found by the sweep; with both at work it finds nothing.
func TestSweepFindsWhatTheIndexLost(t *testing.T) {
	f := newFixture(t, 2, "orders")
	orders := f.read("orders")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	d.warmed()
	d.told(f.schedule(askMany(10, "orders", "told", time.Now().Add(700*time.Millisecond), schemas.HeaderEvents, "none")...).Added)
	f.eventually("they are delivered", func() bool { return orders.count() == 10 })
	require.Zero(t, counted(d.metrics.Swept))

	lost := f.schedule(ask("orders", "lost", time.Now().Add(2*time.Second))).Added[0]
	entry := []index.Entry{lost.Place}
	require.NoError(t, d.indexer.index.Add(t.Context(), entry))
	require.NoError(t, d.indexer.index.Remove(t.Context(), entry))
	f.eventually("it is delivered all the same", func() bool { return orders.copies()["lost"] == 1 })
	require.Zero(t, counted(d.metrics.Swept), "a sweep found it ahead of its time")

	f.schedule(ask("orders", "overdue", time.Now()))
	f.eventually("it is delivered all the same", func() bool { return orders.copies()["overdue"] == 1 })
	require.Positive(t, counted(d.metrics.Swept))
}
