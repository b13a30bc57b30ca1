package flight

import (
	"cmp"
	"container/heap"
	"time"
)

// staging counts the memory of tasks with their bodies, and says for how many more there is room.
// Each task knows whether it is counted, and so counts once, however often it is added or removed.
type staging struct {
	maxTasks, maxBytes int
	tasks, bytes       int
}

// add counts a task whose body is in memory.
func (s *staging) add(t *Task) {
	if t.counted {
		return
	}
	t.counted = true
	s.tasks++
	s.bytes += t.size
}

// remove forgets the count of a task, and reports whether there was one.
func (s *staging) remove(t *Task) bool {
	if t.content == nil || !t.counted {
		return false
	}
	t.counted = false
	s.tasks--
	s.bytes -= t.size
	return true
}

func (s *staging) room() (tasks, bytes int) { return s.maxTasks - s.tasks, s.maxBytes - s.bytes }

// scarce says whether the last tenth of the room is reached, at least one task's: tasks read ahead
// leave this part to due ones.
func (s *staging) scarce() bool {
	tasks, bytes := s.room()
	return tasks <= max(s.maxTasks/10, 1) || bytes <= s.maxBytes/10
}

// dueHeap orders tasks by the instant of their release; those of one instant by class, then by
// order, and then as they came. Methods with capital letters are for package heap.
type dueHeap []*Task

func (h *dueHeap) push(t *Task) { heap.Push(h, t) }

func (h *dueHeap) pop() *Task { return heap.Pop(h).(*Task) }

func (h dueHeap) Len() int { return len(h) }

func (h dueHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if ac, bc := a.lane.Class(), b.lane.Class(); ac != bc {
		return ac < bc
	}
	return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.seq, b.seq)) < 0
}

func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *dueHeap) Push(t any) { *h = append(*h, t.(*Task)) }

func (h *dueHeap) Pop() any {
	s, last := *h, len(*h)-1
	t := s[last]
	s[last] = nil
	*h = s[:last]
	return t
}

// untilDue is how long until the first staged task is due; at most a second.
func (h dueHeap) untilDue(now time.Time) time.Duration {
	if len(h) == 0 {
		return time.Second
	}
	// Aim at the start of the due millisecond.
	return min(max(time.UnixMilli(h[0].at).Sub(now), 0), time.Second)
}
