package flight

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
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
	fl.Outcomes.checkOutlets()
	require.Zero(t, fl.staging.tasks+fl.staging.bytes)
	require.Zero(t, fl.entries)
	require.Empty(t, fl.inbox.transitions)
}

func TestDueHeapOrdersByInstantClassAndSeq(t *testing.T) {
	h := dueHeap{}
	for _, at := range [][3]int64{{2, 0, 1}, {1, 3, 2}, {1, 0, 9}, {1, 0, 3}, {1, 1, 1}} {
		h.push(&Task{at: at[0], lane: task.LaneKey{}.Lane("t", task.Class(at[1])), seq: at[2]})
	}
	var got [][3]int64
	for len(h) > 0 {
		top := h.pop()
		got = append(got, [3]int64{top.at, int64(top.lane.Class()), top.seq})
	}
	require.Equal(t, [][3]int64{{1, 0, 3}, {1, 0, 9}, {1, 1, 1}, {1, 3, 2}, {2, 0, 1}}, got)
}

// The heap is a sorted list to whoever pushes and pops.
func TestDueHeapIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, model, seq := dueHeap{}, dueHeap{}, int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				seq++ // small ranges make ties
				added := &Task{at: rapid.Int64Range(0, 4).Draw(t, "at"), seq: seq, lane: task.LaneKey{}.Lane("t", task.Class(rapid.IntRange(0, 3).Draw(t, "class")))}
				h.push(added)
				model = append(model, added)
				slices.SortFunc(model, func(a, b *Task) int {
					return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.lane.Class(), b.lane.Class()), cmp.Compare(a.seq, b.seq))
				})
			},
			"pop": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("empty")
				}
				require.Same(t, model[0], h.pop())
				model = model[1:]
			},
			"": func(t *rapid.T) { require.Len(t, h, len(model)) },
		})
	})
}
