package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
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
		d.inside(func() int {
			require.LessOrEqual(t, d.flight.staging.tasks, cfg.StageTasks, "with bodies")
			require.LessOrEqual(t, len(d.flight.stuck), cfg.StageTasks, "with the producer")
			return 0
		})
		require.LessOrEqual(t, d.client.BufferedProduceRecords(), int64(2*cfg.StageTasks))
	}
	require.Zero(t, stopped.count())
	answer()
	f.eventually("all arrive", func() bool { return len(stopped.copies()) == rounds*each })
	require.Equal(t, rounds*each, stopped.count(), "each once")
}

// Whatever is added and removed in whatever order: each task that is in counts once.
func TestStagingCountsEachTaskOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, in := staging{maxTasks: 10, maxBytes: 1000}, map[int]bool{}
		tasks := make([]*claimedTask, 5)
		for i := range tasks {
			tasks[i] = &claimedTask{content: &content{size: 10 + i}}
		}
		draw := func(t *rapid.T) int { return rapid.IntRange(0, len(tasks)-1).Draw(t, "task") }
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { i := draw(t); s.add(tasks[i]); in[i] = true },
			"remove": func(t *rapid.T) { i := draw(t); require.Equal(t, in[i], s.remove(tasks[i])); delete(in, i) },
			"": func(t *rapid.T) {
				bytes := 0
				for i := range in {
					bytes += tasks[i].size
				}
				require.Equal(t, len(in), s.tasks)
				require.Equal(t, bytes, s.bytes)
			},
		})
	})
	s := staging{}
	require.False(t, s.remove(&claimedTask{}), "its body was never read")
}

// A line is abandoned with tasks that wait for their target, which is then found unresponsive: they are forgotten once, and it is
// their next owner who decides about them.
func TestTasksOfAnAbandonedLineAreForgottenOnce(t *testing.T) {
	fl := newInFlight(alone(t, Config{MemberID: "one"}))
	outs := newOutlets(fl)
	s := newSender(newParking(fl, outs), nil, nil, newCalls(nil), nil, kafka.Config{})
	l := &ownedSlot{number: 0, epoch: 1, claimed: 10}
	fl.slots[0] = l
	g := &outlet{sending: 1, since: time.Now().Add(-time.Minute)}
	for i := range 5 {
		t := &claimedTask{slot: l, seq: int64(i), pos: 5, status: staged, content: &content{topic: "x", size: 1000, settings: schemas.DefaultSettings(), record: &kgo.Record{}}}
		l.tasks = append(l.tasks, t)
		g.waiting = append(g.waiting, t)
		fl.entries++
		fl.staging.add(t)
	}
	outs.byKey[outletKey{"x", -1}] = g
	fl.abandon(l, "a test")
	require.Zero(t, fl.staging.tasks)
	s.checkOutlets()
	require.Zero(t, fl.staging.tasks+fl.staging.bytes)
	require.Zero(t, fl.entries)
	require.Empty(t, fl.inbox.transitions)
}
