package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
)

// Whatever is added and removed in whatever order: each task that is in counts once.
func TestStagingCountsEachTaskOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, in := staging{maxTasks: 10, maxBytes: 1000}, map[int]bool{}
		tasks := make([]*Task, 5)
		for i := range tasks {
			tasks[i] = &Task{content: &content{size: 10 + i}}
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
	require.False(t, s.remove(&Task{}), "its body was never read")
}

// A line is abandoned with tasks that wait for their target, which is then found unresponsive: they are forgotten once, and it is
// their next owner who decides about them.
func TestTasksOfAnAbandonedLineAreForgottenOnce(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	outs := fl.outlets
	l := &ownedSlot{number: 0, epoch: 1, claimed: 10}
	fl.slots[0] = l
	g := &Outlet{sending: 1, since: time.Now().Add(-time.Minute)}
	for i := range 5 {
		t := &Task{slot: l, seq: int64(i), pos: 5, status: staged, content: &content{topic: "x", size: 1000, settings: schemas.DefaultSettings(), record: &kgo.Record{}}}
		l.tasks = append(l.tasks, t)
		g.waiting = append(g.waiting, t)
		fl.entries++
		fl.staging.add(t)
	}
	outs.byKey[outletKey{"x", -1}] = g
	fl.proofs[3] = map[sendlog.Proof]int64{{}: 7}
	fl.abandon(l, "a test")
	require.Empty(t, fl.proofs)
	require.Zero(t, fl.staging.tasks)
	fl.checkOutlets()
	require.Zero(t, fl.staging.tasks+fl.staging.bytes)
	require.Zero(t, fl.entries)
	require.Empty(t, fl.inbox.transitions)
}
