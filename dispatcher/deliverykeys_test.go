package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Where a task came from cannot be read, and the dispatcher is stopped: that is not the task's fault, and it is no dead letter.
func TestAStopWhileSourcesAreUnknown(t *testing.T) {
	f := newFixture(t, 1, "orders")
	_, d := f.owning(Config{})
	f.schedule(ask("orders", "a", time.Now()))
	d.claimer.sweep(t.Context())
	_, err := d.claimer.claim(t.Context())
	require.NoError(t, err)
	batch, _ := d.flight.NextBodies()
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
