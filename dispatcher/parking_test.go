package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
)

// The tasks of a target that does not answer are read once, and then put off again and again without their bodies and without a word
// in the send log. When it answers, it gets each.
func TestBacklogOfASilentTargetIsReadOnce(t *testing.T) {
	f := newFixture(t, 2, "silent", "lively")
	answer := f.refuse("silent", kerr.NotEnoughReplicas)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond, StageTasks: 8000})
	const n = 10_000
	f.schedule(ask("silent", "first", time.Now()))
	f.eventually("it is found unresponsive", func() bool { return counted(d.metrics.Unresponsive) == 1 })
	began := time.Now()
	for i := range 5 {
		f.schedule(askMany(n/5, "silent", fmt.Sprint("s", i, "-"), time.Now())...)
	}
	f.eventually("all are put off", func() bool { return d.inside(func(in flight.Figures) int { return in.Parked }) >= n-1 })
	const few = 20 // that went to ask, and what each took along
	require.LessOrEqual(t, counted(d.metrics.Bodies), n+few)
	read, off := counted(d.metrics.Bodies), counted(d.metrics.Postponed)
	f.eventually("and put off again", func() bool { return counted(d.metrics.Postponed) >= off+n-few })
	require.LessOrEqual(t, counted(d.metrics.Bodies), read+few)
	intents := 0
	require.NoError(t, d.sent.Replay(t.Context(), began.Add(-time.Minute), func(e sendlog.Entry) error {
		if e.Intent != nil {
			intents++
		}
		return nil
	}))
	require.LessOrEqual(t, intents, few)

	answer()
	silent := f.read("silent")
	f.eventually("each arrives", func() bool { return len(silent.copies()) == n+1 })
	f.eventually("all is settled", func() bool { return d.inside(func(in flight.Figures) int { return in.Claimed }) == 0 })
	require.Zero(t, d.inside(func(in flight.Figures) int { return in.Parked }))
	require.Equal(t, n+1, silent.count(), "once")
}

// What is put off without its body expires when it is time, and comes back by itself if nobody calls it.
func TestParkedTaskExpires(t *testing.T) {
	f := newFixture(t, 2, "silent")
	f.refuse("silent", kerr.NotEnoughReplicas)
	events := f.read(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond})
	f.schedule(ask("silent", "first", time.Now()))
	f.eventually("it is found unresponsive", func() bool { return counted(d.metrics.Unresponsive) == 1 })
	due := time.Now()
	f.schedule(askMany(20, "silent", "s", due, schemas.HeaderMaxLateness, "4s")...)
	f.eventually("they expire", func() bool { return len(events.events(t, schemas.StateDead)) >= 19 }) // one may have been sent to ask
	for id, told := range events.events(t, schemas.StateDead) {
		require.Equal(t, schemas.KindExpired, told[0].Kind, id)
		require.GreaterOrEqual(t, told[0].At, due.Add(4*time.Second).UnixMilli())
	}
}
