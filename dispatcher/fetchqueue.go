package dispatcher

import "github.com/notyet/notyet/task"

// fetchQueue holds claimed tasks whose bodies are not read yet, by lane. Targets take turns, so that a flood on one delays
// only itself; within a target, classes share by weight, so that fresh work goes first and nothing starves; within a class
// they go by their time, whatever a long look-ahead has brought before.
type fetchQueue struct {
	targets map[uint32]*fetchTarget
	ring    []*fetchTarget // targets with something queued, the next in turn first
	size    int
}

type fetchTarget struct {
	classes [task.Classes]dueHeap
	left    [task.Classes]int // of the weights, in this turn
	size    int
}

// weights of high, normal, low and retried: how many of each a turn may take.
var weights = [task.Classes]int{256, 128, 32, 16}

func newFetchQueue() fetchQueue { return fetchQueue{targets: map[uint32]*fetchTarget{}} }

func (q *fetchQueue) push(t *claimedTask) {
	key := t.lane.Target()
	ft := q.targets[key]
	if ft == nil {
		ft = &fetchTarget{left: weights}
		q.targets[key] = ft
		q.ring = append(q.ring, ft)
	} else if ft.size == 0 {
		q.ring = append(q.ring, ft)
	}
	ft.classes[min(t.lane.Class(), task.Classes-1)].push(t)
	ft.size++
	q.size++
}

// take removes at most n tasks, turn by turn; only such as are to be released at until or before. A target that n cuts short gives
// its place away all the same, and goes on with the rest of its weights when it comes around: under load n is small, and would
// otherwise be the most urgent class's alone.
func (q *fetchQueue) take(n int, until int64) []*claimedTask {
	out := make([]*claimedTask, 0, min(n, q.size))
	// A turn may give nothing since its weights are used up: then the next one gives what there is.
	for idle := 0; len(out) < n && idle < 2*len(q.ring); {
		ft := q.ring[0]
		q.ring = q.ring[1:]
		before := len(out)
		for class := range ft.classes {
			tasks := &ft.classes[class]
			for ft.left[class] > 0 && len(out) < n && len(*tasks) > 0 && (*tasks)[0].at <= until {
				out = append(out, tasks.pop())
				ft.left[class]--
			}
		}
		if idle++; len(out) > before {
			idle = 0
			ft.size -= len(out) - before
		}
		if len(out) < n {
			ft.left = weights
		}
		if ft.size > 0 {
			q.ring = append(q.ring, ft)
		}
	}
	q.size -= len(out)
	if q.size == 0 {
		*q = newFetchQueue() // names of targets that are no more must not pile up
	}
	return out
}

// first is the earliest time at which one of the tasks is to be released; never: there is none.
func (q *fetchQueue) first() int64 {
	at := int64(never)
	for _, ft := range q.ring {
		for _, class := range ft.classes {
			if len(class) > 0 {
				at = min(at, class[0].at)
			}
		}
	}
	return at
}
