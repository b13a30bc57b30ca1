package flight

import (
	"math"
	"time"
)

// ownedSlot is a slot that is ours: its offsets as the database has them, and every task between them. Next to each field
// stands what writes it.
type ownedSlot struct {
	number  int
	epoch   int64
	claimed int64 // takeIn: of a claim, or of one whose reply was lost
	before  int64 // likewise: claimed before the latest claim
	done    int64 // closeTo

	tasks []*Task // (done, claimed], in the order of pos; enter adds, closeTo takes away
	head  int     // tasks before it are closed

	next   int64 // the first place beyond claimed that is known to hold a task
	urgent int64 // the earliest due time that a wake has told of
	looked bool  // the database was asked for next since claimed was moved

	parked map[int64]parked // by seq; see parked

	// Took and SlotsSeen write these: see changing.go.
	turn      int64     // at which the slot was last seen
	claimMost int64     // no claim goes beyond it
	callMost  int64     // no held task beyond it is called back
	raised    time.Time // callMost was

	claiming  bool      // somebody is moving claimed, and is the only one who may: the claimer, or ownership (catchUp)
	leaving   time.Time // since when the slot is to be given away; zero: it is not
	releasing bool      // it was given back, or may have been: it cannot stay
	abandoned bool      // no longer ours: what comes in for it is thrown away; see abandon
}

const never = math.MaxInt64

// leavingFor is how long the slot has been waited for since it was to be given away.
func (l *ownedSlot) leavingFor() time.Duration {
	if l.leaving.IsZero() {
		return 0
	}
	return time.Since(l.leaving)
}

// closable returns how far done can move: everything up to there is settled or gone. count is how many of those tasks are still in
// their places, which the database is to confirm.
func (l *ownedSlot) closable() (to int64, count int) {
	to = l.claimed
	for i := l.head; i < len(l.tasks); i++ {
		if t := l.tasks[i]; t.status < settled {
			to = t.pos - 1 // tasks at the same place close together
			break
		}
	}
	if to <= l.done {
		return l.done, 0
	}
	for i := l.head; i < len(l.tasks) && l.tasks[i].pos <= to; i++ {
		if l.tasks[i].status == settled {
			count++
		}
	}
	return to, count
}

// closeTo moves done to where the database has it now, and returns how many tasks it let go.
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

// claimTo moves claimed. Places beyond that are known stay known.
func (l *ownedSlot) claimTo(to int64) {
	l.before, l.claimed, l.looked = l.claimed, to, false
	if l.next <= to {
		l.next = never
	}
	if l.urgent <= to && l.next != to+1 { // right behind it stands what came when its own place was claimed already
		l.urgent = never
	}
}

// liesBehind says that what comes next was due before an instant, or may have been: a wake and the index tell of single tasks, and only the
// database of the first.
func (l *ownedSlot) liesBehind(at int64) bool { return l.next < at || !l.looked && l.claimed < at }

// reach returns how far a claim of the slot goes. The slot may be claimed beyond the look-ahead: before a burst the look-ahead was
// longer, or the database's clock was set back. Then what came late stands right behind claimed, and a few places are enough for it. The
// pause between claims is longer than these places last, so time catches up. Multiples let slots be claimed together.
func (l *ownedSlot) reach(ahead int64) int64 {
	const few = int64(ClaimPause / time.Millisecond)
	if ahead > l.claimed {
		return ahead
	}
	return (l.claimed/few + 1) * few
}

func (l *ownedSlot) open() []*Task { return l.tasks[l.head:] }

// drained tells that nothing is left to send or to settle, and that no claim is under way that could bring more.
func (l *ownedSlot) drained() bool {
	return !l.claiming && l.done == l.claimed && l.head == len(l.tasks)
}
