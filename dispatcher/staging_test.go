package dispatcher

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

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
	cfg, err := Config{MemberID: "one"}.withDefaults()
	require.NoError(t, err)
	d := &Dispatcher{cfg: cfg, clock: new(store.Store).NewClock(), log: zap.NewNop(), lines: map[int]*ownedSlot{}, targets: map[outlet]*target{}, stuck: map[int64]*claimedTask{}, untold: map[*claimedTask]told{}, fetching: newFetchQueue(),
		claimKick: newKick(), fetchKick: newKick(), releaseKick: newKick(), settleKick: newKick(), ownKick: newKick()}
	d.metrics = newMetrics(prometheus.NewRegistry(), d)
	l := &ownedSlot{number: 0, epoch: 1, claimed: 10}
	d.lines[0] = l
	g := &target{sending: 1, since: time.Now().Add(-time.Minute)}
	for i := range 5 {
		t := &claimedTask{slot: l, seq: int64(i), pos: 5, status: staged, content: &content{topic: "x", size: 1000, settings: schemas.DefaultSettings(), record: &kgo.Record{}}}
		l.tasks = append(l.tasks, t)
		g.waiting = append(g.waiting, t)
		d.entries++
		d.staging.add(t)
	}
	d.targets[outlet{"x", -1}] = g
	d.abandon(l, "a test")
	require.Zero(t, d.staging.tasks)
	d.checkTargets()
	require.Equal(t, staging{}, d.staging)
	require.Zero(t, d.entries)
	require.Empty(t, d.transitions)
}
