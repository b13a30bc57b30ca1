package flight

import (
	"math"
	"slices"
	"time"

	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

const never = math.MaxInt64

// leavingFor is how long the slot has been waited for since it was to be given away.
func (l *ownedSlot) leavingFor() time.Duration {
	if l.leaving.IsZero() {
		return 0
	}
	return time.Since(l.leaving)
}

// closable returns how far done can move: everything up to there is settled or gone. tally is of
// the tasks still in their places, for the database to confirm.
func (l *ownedSlot) closable() (to int64, tally line.Tally) {
	to = l.claimed
	for i := l.head; i < len(l.tasks); i++ {
		if t := l.tasks[i]; t.status < settled {
			to = t.pos - 1 // tasks at the same place close together
			break
		}
	}
	if to <= l.done {
		return l.done, tally
	}
	for i := l.head; i < len(l.tasks) && l.tasks[i].pos <= to; i++ {
		if l.tasks[i].status == settled {
			tally.Add(l.tasks[i].seq)
		}
	}
	return to, tally
}

// closeTo moves done to where the database has it now, and returns the number of tasks let go.
func (l *ownedSlot) closeTo(to int64) (n int) {
	l.done = to
	for l.head < len(l.tasks) && l.tasks[l.head].pos <= to {
		l.tasks[l.head] = nil
		l.head++
		n++
	}
	if l.head > len(l.tasks)/2 {
		l.tasks = append(l.tasks[:0:0], l.tasks[l.head:]...)
		l.head = 0
	}
	return n
}

func (l *ownedSlot) open() []*Task { return l.tasks[l.head:] }

// drained tells whether nothing is left to send or to settle, and no claim under way could bring
// more.
func (l *ownedSlot) drained() bool {
	return !l.claiming && l.done == l.claimed && l.head == len(l.tasks)
}

// strays are slots that are maybe ours to the database, and not worked on here: they were taken and
// not begun because the call failed on the way, or abandoned because they did not drain. Each is
// begun or given back in the end; otherwise its next owner waits for us. The epoch stands by slot.
type strays map[int]int64

func (h strays) note(slots []int, epoch int64) {
	for _, slot := range slots {
		h[slot] = epoch
	}
}

// settle forgets slots whose fate under an epoch is clear.
func (h strays) settle(slots []int, epoch int64) {
	for _, slot := range slots {
		if h[slot] == epoch {
			delete(h, slot)
		}
	}
}

// without returns, by epoch, the slots that are not among the assigned ones.
func (h strays) without(assigned []int) map[int64][]int {
	out := map[int64][]int{}
	for slot, epoch := range h {
		if _, mine := slices.BinarySearch(assigned, slot); !mine {
			out[epoch] = append(out[epoch], slot)
		}
	}
	return out
}

// lostSlot is an abandoned slot: the epoch under which it was held here, the claimed place, and the
// turn seen.
type lostSlot struct{ epoch, claimed, turn int64 }

// takesOver says whether held tasks of other slots are still to come to a slot: tasks let through
// by its gates might overtake them.
func (l *ownedSlot) takesOver() bool { return l.callMost != never }

// mayOvertake says whether a task of the slot, released at an instant, might overtake held tasks
// still to come.
func (l *ownedSlot) mayOvertake(at int64) bool { return task.Held(at) > l.callMost }

// Known are the owned slots as they were known here at some moment.
type Known map[int]knownSlot

type knownSlot struct {
	slot                *ownedSlot
	claimed, done, turn int64
}
