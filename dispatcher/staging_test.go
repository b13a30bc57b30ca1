package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/dispatcher/flight"
)

// TestStoppedTargetsHoldBoundedMemory: while tasks keep coming and one target takes nothing, what is in memory stays within its
// bounds, and the other target goes on. When the first takes again, it gets all.
func TestStoppedTargetsHoldBoundedMemory(t *testing.T) {
	f := newFixture(t, 4, "stopped", "lively")
	stopped, lively := f.read("stopped"), f.read("lively")
	answer := f.mute("stopped")
	cfg := Config{MemberID: "one", UnresponsiveAfter: 300 * time.Millisecond, StageTasks: 40}
	d := f.start(f.elect(5), t.TempDir(), cfg)
	const rounds, each = 20, 50
	for round := range rounds {
		due := time.Now()
		f.schedule(append(askMany(each, "stopped", string(rune('a'+round)), due), askMany(1, "lively", string(rune('a'+round)), due)...)...)
		f.eventually("the other is not held up", func() bool { return lively.count() == round+1 })
		d.inside(func(in flight.Figures) int {
			require.LessOrEqual(t, in.StagedTasks, cfg.StageTasks, "with bodies")
			require.LessOrEqual(t, in.Stuck, cfg.StageTasks, "with the producer")
			return 0
		})
		require.LessOrEqual(t, d.producer().BufferedProduceRecords(), int64(2*cfg.StageTasks))
	}
	require.Zero(t, stopped.count())
	answer()
	f.eventually("all arrive", func() bool { return len(stopped.copies()) == rounds*each })
	require.Equal(t, rounds*each, stopped.count(), "each once")
}
