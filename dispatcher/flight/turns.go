package flight

import (
	"container/heap"
	"sync"
	"time"

	"github.com/notyet/notyet/task"
)

// fetchTasks bounds one read of bodies: enough to spread the cost of a statement, short enough for
// the first of them, and no more than the store reads at a time.
const fetchTasks = 900

// backlog holds claimed tasks whose bodies are to be read. Its own lock guards nothing else: a task
// taken from here may be another owner's by then, so Next looks at the task under machine.mu.
type backlog struct {
	tenants *Tenants

	mu     sync.Mutex
	queues map[string]*fetchQueue // by tenant
	homes  map[uint32]string      // of queued targets: the tenant of the first task with a known one
	order  []string               // of them: the next in turn first
	known  *map[int]string        // the intakes at the last look at the targets without one
	unread []*Task                // taken from it, but there was no room for their bodies
	bite   int                    // how many of them to try at once
}

func newBacklog(of *Tenants) *backlog {
	return &backlog{tenants: of, queues: map[string]*fetchQueue{}, homes: map[uint32]string{}}
}

// push queues tasks with their tenants. All tasks of a target are in one queue, because a key's
// tasks go in the order of time, whoever sent the requests, and before the intakes are known.
func (b *backlog) push(tasks []*Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range tasks {
		target, of := t.lane.Target(), b.tenants.of(t.seq)
		switch home, queued := b.homes[target]; {
		case !queued:
			b.homes[target] = of
		case home == "" && of != "":
			b.move(target, of)
		default:
			of = home
		}
		b.queue(of).push(t)
	}
}

func (b *backlog) queue(of string) *fetchQueue {
	q := b.queues[of]
	if q == nil {
		made := newFetchQueue(b.homes)
		q = &made
		b.queues[of] = q
		b.order = append(b.order, of)
	}
	return q
}

// move has a target take the turns of its intake, which was not known before. Otherwise the target
// would wait for the targets of all intakes that were not.
func (b *backlog) move(target uint32, to string) {
	b.homes[target] = to
	b.queue(to).enter(b.queues[""].leave(target))
}

// moveKnown moves the targets whose intakes have come to be known: after a start, all of them.
func (b *backlog) moveKnown() {
	known, q := b.tenants.bySource.Load(), b.queues[""]
	if known == b.known || q == nil {
		return
	}
	b.known = known
	for target, ft := range q.targets {
		if to := ft.tenant(b.tenants); to != "" {
			b.move(target, to)
		}
	}
}

// take removes at most n tasks to be released at until or before, or says after which time to ask
// again.
func (b *backlog) take(n int, until int64) ([]*Task, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moveKnown()
	if n := min(len(b.unread), b.bite, n); n > 0 {
		batch := b.unread[:n:n]
		b.unread = b.unread[n:]
		return batch, 0
	}
	if batch := b.takeTurns(min(n, fetchTasks), until); len(batch) > 0 {
		return batch, 0
	}
	first := int64(never)
	for _, q := range b.queues {
		first = min(first, q.first())
	}
	if first == never {
		return nil, time.Second
	}
	return nil, max(time.Duration(min(first-until, 1000))*time.Millisecond, time.Millisecond)
}

// takeTurns has the tenants take turns, each with its part of the missing tasks.
func (b *backlog) takeTurns(n int, until int64) (batch []*Task) {
	for gave := true; gave && len(batch) < n; {
		gave = false
		turn := b.order
		for i, of := range turn {
			taken := b.queues[of].take(max((n-len(batch))/(len(turn)-i), 1), until)
			batch, gave = append(batch, taken...), gave || len(taken) > 0
			if b.order = b.order[1:]; b.queues[of].size > 0 {
				b.order = append(b.order, of)
			} else {
				if delete(b.queues, of); len(b.queues) == 0 {
					b.homes = map[uint32]string{} // its memory, likewise
				}
			}
			if len(batch) == n {
				return batch
			}
		}
	}
	return batch
}

func (b *backlog) size() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		n += q.size
	}
	return n + len(b.unread)
}

// putBack returns tasks before all others, of which the next take brings only a bite.
func (b *backlog) putBack(unread []*Task, bite int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unread, b.bite = append(unread, b.unread...), bite
}

// fetchQueue holds a tenant's claimed tasks without bodies, by lane. Targets take turns, so that a
// flood on one delays only itself; within a target, classes share by weight, so that fresh work
// goes first and nothing starves; within a class tasks go by time, whatever a long look-ahead has
// brought before. A target with nothing due costs nothing until something is.
type fetchQueue struct {
	targets map[uint32]*fetchTarget // those with something queued
	homes   map[uint32]string       // see backlog; targets that end leave it
	ring    []*fetchTarget          // those that had something due at the last take, the next in turn first
	later   laterTargets            // the others
	waited  int                     // how many have ever been put among the latter
	size    int
}

type fetchTarget struct {
	key     uint32
	classes [task.Classes]dueHeap
	left    [task.Classes]int // of the weights, in this turn
	size    int

	at    int64 // while it is among the later ones: its first time
	place int   // there; -1: it is in the ring
	order int   // of those of one time
}

// weights of high, normal, low and retried: how many of each a turn may take.
var weights = [task.Classes]int{256, 128, 32, 16}

// targetsAtOnce bounds the targets looked at in vain by one take, and those that become due in it.
// There may be as many targets as tasks.
const targetsAtOnce = 4096

func newFetchQueue(homes map[uint32]string) fetchQueue {
	return fetchQueue{targets: map[uint32]*fetchTarget{}, homes: homes}
}

func (q *fetchQueue) push(t *Task) {
	key := t.lane.Target()
	ft := q.targets[key]
	if ft == nil {
		ft = &fetchTarget{key: key, left: weights}
		q.targets[key] = ft
	}
	ft.classes[min(t.lane.Class(), task.Classes-1)].push(t)
	ft.size++
	q.size++
	switch {
	case ft.size == 1:
		q.wait(ft)
	case ft.place >= 0 && t.at < ft.at:
		ft.at = t.at
		heap.Fix(&q.later, ft.place)
	}
}

// leave takes a target out of the queue. In the ring, an empty one stands for it until its turn.
func (q *fetchQueue) leave(target uint32) *fetchTarget {
	ft := q.targets[target]
	delete(q.targets, target)
	q.size -= ft.size
	if ft.place >= 0 {
		heap.Remove(&q.later, ft.place)
		return ft
	}
	gone := *ft
	*ft = fetchTarget{place: -1}
	return &gone
}

// enter takes a target from another queue.
func (q *fetchQueue) enter(ft *fetchTarget) {
	q.targets[ft.key] = ft
	q.size += ft.size
	q.wait(ft)
}

// wait puts a target among those with nothing due, as far as is known.
func (q *fetchQueue) wait(ft *fetchTarget) {
	q.waited++
	ft.at, ft.order = ft.first(), q.waited
	heap.Push(&q.later, ft)
}

// take removes at most n tasks, turn by turn; only such as are to be released at until or before. A
// target cut short by n gives its place away all the same, and goes on with the rest of its weights
// in its next turn: under load n is small, and would otherwise be the most urgent class's alone.
func (q *fetchQueue) take(n int, until int64) []*Task {
	for i := 0; i < targetsAtOnce && len(q.later) > 0 && q.later[0].at <= until; i++ {
		q.ring = append(q.ring, heap.Pop(&q.later).(*fetchTarget))
	}
	out := make([]*Task, 0, min(n, q.size))
	// A turn may give nothing because its weights are used up: then the next one gives.
	for idle := 0; len(out) < n && len(q.ring) > 0 && idle < targetsAtOnce; idle++ {
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
		if len(out) > before {
			idle = 0
			ft.size -= len(out) - before
		}
		if len(out) < n {
			ft.left = weights
		}
		switch {
		case q.targets[ft.key] != ft: // it has left
		case ft.size == 0:
			delete(q.targets, ft.key)
			delete(q.homes, ft.key)
		case ft.first() > until:
			q.wait(ft)
		default:
			q.ring = append(q.ring, ft)
		}
	}
	q.size -= len(out)
	if q.size == 0 {
		*q = newFetchQueue(q.homes) // its memory must not stay as large as it ever was
	}
	return out
}

// first is the earliest time of release, 0 for a due task; never: there is none.
func (q *fetchQueue) first() int64 {
	switch {
	case len(q.ring) > 0:
		return 0
	case len(q.later) > 0:
		return q.later[0].at
	}
	return never
}

func (t *fetchTarget) first() int64 {
	at := int64(never)
	for _, class := range t.classes {
		if len(class) > 0 {
			at = min(at, class[0].at)
		}
	}
	return at
}

// tenant is that of any task with a known intake.
func (t *fetchTarget) tenant(of *Tenants) string {
	for _, class := range t.classes {
		for _, one := range class {
			if tenant := of.of(one.seq); tenant != "" {
				return tenant
			}
		}
	}
	return ""
}

// laterTargets is a heap, for package heap: by time, and then as the targets came.
type laterTargets []*fetchTarget

func (l laterTargets) Len() int { return len(l) }

func (l laterTargets) Less(i, j int) bool {
	if l[i].at != l[j].at {
		return l[i].at < l[j].at
	}
	return l[i].order < l[j].order
}

func (l laterTargets) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

func (l *laterTargets) Push(x any) {
	t := x.(*fetchTarget)
	t.place = len(*l)
	*l = append(*l, t)
}

func (l *laterTargets) Pop() any {
	last := len(*l) - 1
	t := (*l)[last]
	t.place, (*l)[last] = -1, nil
	*l = (*l)[:last]
	return t
}
