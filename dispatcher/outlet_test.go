package dispatcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
)

func TestSilentTargetDelaysOnlyItself(t *testing.T) {
	f := newFixture(t, 4, "silent", "lively")
	silent, lively, events := f.read("silent"), f.read("lively"), f.read(results)
	answer := f.mute("silent")
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond})
	due := time.Now()
	f.schedule(append(askMany(20, "silent", "s", due, schemas.HeaderEvents, "all"), askMany(20, "lively", "l", due, schemas.HeaderEvents, "none")...)...)
	f.eventually("the other is not held up", func() bool { return lively.count() == 20 })
	// On a machine that stalls, the other may be silent for a moment as well.
	f.eventually("it is found sick, alone", func() bool { return slices.Equal(d.Unresponsive(), []string{"silent"}) })
	f.eventually("done moves on", func() bool { return f.settledUpTo(due) })
	f.eventually("what it was sent is set aside, until the producer gives it up", func() bool {
		return d.inside(func(in flight.Figures) int { return in.Stuck }) == 20 || d.producer().BufferedProduceRecords() < 20
	})

	again := time.Now() // what is due while it is sick is not sent at all, and can be cancelled
	f.schedule(append(append(askMany(5, "silent", "put-off", again, schemas.HeaderEvents, "all"), askMany(20, "lively", "again", again, schemas.HeaderEvents, "none")...),
		ask("silent", "cancelled", again, schemas.HeaderPriority, "low"))...) // the first of them may be sent to ask, the last not
	f.eventually("the other is not held up", func() bool { return lively.count() == 40 })
	f.eventually("they are put off", func() bool { return counted(d.metrics.Postponed) >= 5 })
	f.eventually("done moves on", func() bool { return f.settledUpTo(again) })
	f.eventually("it can be cancelled", func() bool {
		v, err := look.New(f.store).Get(t.Context(), "silent", "cancelled")
		return err == nil && v.State == "pending"
	})
	f.cancel("silent", "cancelled")
	require.Zero(t, silent.count())

	answer()
	f.eventually("what it has is acknowledged, the rest sent", func() bool { return len(silent.copies()) == 25 })
	f.eventually("every end is told", func() bool {
		return len(events.events(t, schemas.StateDispatched)) == 25 && len(events.events(t, schemas.StateSucceeded)) == 25
	})
	f.eventually("nothing is left with the producer", func() bool { return d.inside(func(in flight.Figures) int { return in.Stuck }) == 0 })
	f.eventually("all is settled", func() bool { return d.inside(func(in flight.Figures) int { return in.Claimed }) == 0 })
	require.Equal(t, 25, silent.count(), "each once")
	require.NotContains(t, silent.copies(), "cancelled")
	for id, told := range events.events(t, schemas.StateSucceeded) {
		require.Len(t, told, 1, id)
		require.Equal(t, 1, told[0].Attempt)
	}
	for i := range 20 {
		v, err := look.New(f.store).Get(t.Context(), "silent", fmt.Sprint("s", i))
		require.NoError(t, err)
		require.Contains(t, []string{"succeeded", "delivered"}, v.State)
		require.Equal(t, 1, v.Attempt)
	}
	require.Len(t, lively.copies(), 40)
	require.Equal(t, 40, lively.count())
}
