package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// suspend starts a dispatcher that has lost trust in the election with 20 tasks staged, and answers when those are due.
func (f *fixture) suspend() (*members, *running, time.Time) {
	f.Helper()
	m := f.elect(5)
	d := f.start(m, f.TempDir(), Config{MemberID: "one", LookAhead: 10 * time.Second})
	f.eventually("it owns its slots", func() bool { return d.owned() == 4 })
	due := time.Now().Add(setUpTime)
	f.schedule(askMany(20, "orders", "t", due)...)
	d.kicks.Sweep.Now()
	f.eventually("the tasks are staged", func() bool { return d.stagedTasks() == 20 })
	m.trust(false)
	f.eventually("it has noticed", func() bool { return d.trust.suspended.active() })
	require.False(f, time.Now().After(due), "too slow to tell")
	return m, d, due
}

func TestWhoIsNotTrustedSendsNothing(t *testing.T) {
	f := newFixture(t, 4, "orders")
	orders := f.read("orders")
	m, d, due := f.suspend()
	f.passes(due.Add(300 * time.Millisecond))
	require.Zero(t, orders.count())
	require.Error(t, d.Ready(t.Context()))
	require.Equal(t, 20, d.stagedTasks())

	m.trust(true)
	f.eventually("all is settled", func() bool { return f.settledUpTo(due) })
	f.eventually("each task arrives", func() bool { return len(orders.copies()) == 20 })
	require.Equal(t, 20, orders.count())
	require.Zero(t, counted(d.metrics.Abandoned))
	require.NoError(t, d.Ready(t.Context()))
}

func TestSuspensionLastsUntilALaterLook(t *testing.T) {
	var s suspension
	require.False(t, s.active())
	require.True(t, s.lose())
	require.False(t, s.lose(), "known already")
	look := s.look()
	require.False(t, s.lose(), "again, while somebody looks")
	s.end(look)
	require.True(t, s.active(), "that look may have been too early")
	second := s.look()
	s.end(second)
	require.False(t, s.active())
	s.end(look) // a slow one
	require.False(t, s.active())
	require.True(t, s.lose())
	require.True(t, s.active())
}
