package flight

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/notyet/notyet/task"
)

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
