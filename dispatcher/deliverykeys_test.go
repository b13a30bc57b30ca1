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
	d := f.stepped(f.elect(5), Config{MemberID: "one"})
	p := f.schedule(ask("orders", "a", time.Now())).Added[0]
	l := &ownedSlot{number: 0, epoch: 5, claimed: p.Pos}
	d.flight.slots[0] = l
	claimed := &claimedTask{slot: l, seq: p.Seq, pos: p.Pos, at: p.Pos}
	f.sql("ALTER TABLE sources RENAME TO away")
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	d.fetcher.fetch(ctx, []*claimedTask{claimed}, 1<<20)
	require.Equal(t, entered, claimed.status)

	f.sql("ALTER TABLE away RENAME TO sources")
	d.fetcher.fetch(t.Context(), []*claimedTask{claimed}, 1<<20)
	require.Equal(t, staged, claimed.status)
}
