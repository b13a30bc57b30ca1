package flight

import "time"

// dueHeap orders staged tasks by the instant of their release; those of one instant by class and then as they came.
type dueHeap []*Task

func (h dueHeap) less(a, b *Task) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if ac, bc := a.lane.Class(), b.lane.Class(); ac != bc {
		return ac < bc
	}
	return a.seq < b.seq
}

func (h *dueHeap) push(t *Task) {
	*h = append(*h, t)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(s[i], s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *dueHeap) pop() *Task {
	s := *h
	top, last := s[0], len(s)-1
	s[0], s[last] = s[last], nil
	s = s[:last]
	for i := 0; ; {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < last && h.less(s[c], s[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return top
}

// untilDue is how long until the first staged task is due; at most a second.
func (h dueHeap) untilDue(now time.Time) time.Duration {
	if len(h) == 0 {
		return time.Second
	}
	// Aim at the start of the due millisecond.
	return min(max(time.UnixMilli(h[0].at).Sub(now), 0), time.Second)
}
