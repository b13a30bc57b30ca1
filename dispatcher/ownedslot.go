package dispatcher

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// ownedSlot is a slot that is ours: its offsets as the database has them, and every task between them.
type ownedSlot struct {
	number  int
	epoch   int64
	claimed int64
	before  int64 // claimed before the latest claim
	done    int64

	tasks []*claimedTask // (done, claimed], in the order of pos
	head  int            // tasks before it are closed

	next   int64 // the first place beyond claimed that is known to hold a task
	urgent int64 // the earliest due time that a wake has told of

	parked map[int64]parked // by seq; see parking.go

	claiming  bool      // somebody is moving claimed, and is the only one who may
	leaving   time.Time // since when the slot is to be given away; zero: it is not
	releasing bool      // it was given back, or may have been: it cannot stay
	abandoned bool      // no longer ours: what comes in for it is thrown away
}

const never = math.MaxInt64

type status uint8

const (
	entered status = iota // its place is claimed, its body not yet read
	staged                // waits for its instant, or for its target
	sending               // with the producer
	telling               // delivered, its final event with the producer
	leaving               // its exit is on the way to the database
	settled               // delivered, its final event told
	left                  // out of the line, by an exit
)

// claimedTask is one of them. There may be millions after an outage, so it is small until its body is read.
type claimedTask struct {
	slot     *ownedSlot
	seq      int64
	pos      int64
	at       int64 // when to release it, Unix ms; until its body is read, at the latest then
	lane     task.Lane
	status   status
	answered bool // set aside, and its answer has come since: it is about to end
	asks     bool // read to ask an unresponsive target with
	doubt    bool // an earlier owner may have sent it

	parkedAt *outlet // where it is to ask, until it is known where it goes

	*content // nil until its body is read
}

// content is what the row of a task says of it.
type content struct {
	topic    string
	id       string
	due      int64
	attempt  int // deliveries made
	replay   int
	state    task.State
	settings schemas.Settings
	body     []byte
	record   *kgo.Record
	size     int
	counted  bool    // by the dispatcher's staging
	outlet   outlet  // where it was last sent, or waits to be
	with     *target // counts it among what its producer holds; nil while none does
}

// sending names the attempt that is to be made, among all that the task ever sees.
func (c *content) sending() int32 { return task.Sending(c.replay, c.attempt+1) }

// maybeSent says that the task may have been delivered already: an earlier owner claimed it, or it was with the producer when it was
// set aside, or its consumer is to get it once more. To such a task nothing else may happen: it is sent, however late.
func (t *claimedTask) maybeSent() bool {
	return (t.doubt || t.state == task.StateRetry) && !faultpoint.Without(faultpoint.DoubtIsSent)
}

// closable answers how far done can move: everything up to it is settled or gone. count is how many of those tasks are
// still in the line, which the database is to confirm.
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

// closeTo moves done to where the database has it now and answers how many tasks it let go.
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

// claimTo moves claimed. What has been heard meanwhile of places beyond it stays known.
func (l *ownedSlot) claimTo(to int64) {
	l.before, l.claimed = l.claimed, to
	if l.next <= to {
		l.next = never
	}
	if l.urgent <= to {
		l.urgent = never
	}
}

// reach is how far a claim of the line goes. Where it is claimed beyond the look-ahead - before a burst that look-ahead was
// longer, or the database's clock was set back - what came late stands right behind, and a few places are enough for it. Claims
// rest longer than these last, so that time catches up; multiples let lines be claimed together.
func (l *ownedSlot) reach(ahead int64) int64 {
	const few = int64(claimPause / time.Millisecond)
	if ahead > l.claimed || faultpoint.Without(faultpoint.ClaimedAhead) {
		return ahead
	}
	return (l.claimed/few + 1) * few
}

func (l *ownedSlot) open() []*claimedTask { return l.tasks[l.head:] }

// drained says that nothing is left to send or to settle, nor may come by a claim that is under way.
func (l *ownedSlot) drained() bool {
	return (!l.claiming || faultpoint.Without(faultpoint.ReleasedWhenDrained)) && l.done == l.claimed && l.head == len(l.tasks)
}
