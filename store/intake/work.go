package intake

import (
	"database/sql"
	"errors"
	"time"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// work is one attempt at one batch.
type work struct {
	intake    Intake
	tx        *sql.Tx
	insert    *sql.Stmt // of preparedRows tasks; nil: there is none
	clock     func() int64
	now       int64 // of the clock, when what is decided next was locked
	spread    slots.Spread
	resolving bool // it also looks at what waits
	mode

	slots  map[int]handle.Slot   // locked
	fresh  []*task.Task          // no task of their identity was known
	late   []*task.Task          // the same, but their due time is about to be claimed, or was
	taken  []int64               // of tasks in flight: see verdict
	unread map[int64]task.Unread // by seq
	outcomes
	merged  merged
	known   int // bytes that it has read: see knownBudget
	timers  timerWork
	applied Applied
}

// mode says how a batch is decided.
type mode struct {
	reconciling bool // no request is still to come that might be older than a proof
	first       bool // the first try assumes that default ids are new; if the unique key disagrees, the next try looks them up
	several     bool // the batch has more than one change, or a scanner looks at more than one identity: it can be cut
}

// identity gathers what a batch asks of one task.
type identity struct {
	key     [16]byte
	before  *task.Task
	now     *task.Task
	changes []task.Change
	queue   requestQueue
}

// phase returns the phase of the identity's task after the changes so far. What this transaction
// has made is pending, waiting or ended by construction, unless a life before has made the same and
// it was forgotten.
func (w *work) phase(id *identity) task.Phase {
	switch {
	case id.now == nil:
		return task.Ended
	case id.now == id.before:
		return w.nowUnsure(id.now, id.now.Phase(w.slots[id.now.Slot].Claimed, w.slots[id.now.Slot].Done))
	case id.now.Slot == task.OutOfLine:
		return task.Ended
	case id.now.State != task.StateLine:
		return w.nowUnsure(id.now, task.Between)
	}
	return w.nowUnsure(id.now, task.Pending)
}

// nowUnsure turns the phase of a task that is not claimed into Unsure, if its slot is. In a recovery
// no dispatcher runs.
func (w *work) nowUnsure(t *task.Task, ph task.Phase) task.Phase {
	if (ph == task.Pending || ph == task.Between) && w.slots[t.Slot].Unsure && w.intake.evidence == nil {
		return task.Unsure
	}
	return ph
}

// outcomes are the events and dead letters that a transaction decides, until it stores them.
type outcomes struct {
	events map[int]*eventBox // for each source
	full   []*eventBox
	dead   []*task.DeadLetter
	proven []schemas.Event // of no source: of tasks that evidence has settled
}

// addEvent puts the event of a change into the box of its source. Time is a part of the box's number: a database that was set back decides
// about the same records anew, while somebody may still want to delete the box of before.
func (o *outcomes) addEvent(now, seq int64, e schemas.Event) {
	if e.State == "" {
		return
	}
	e.At = now
	src, _ := task.SplitSeq(seq)
	if o.events == nil {
		o.events = make(map[int]*eventBox)
	}
	box := o.events[src]
	if box == nil {
		box = &eventBox{Box: handle.Box{Source: src}}
		o.events[src] = box
	}
	box.Seq = max(box.Seq, now<<20|seq&(1<<20-1))
	box.Events = append(box.Events, e)
	box.size += handle.EventSize(e)
}

// closeFullBoxes puts full boxes aside. It is called between identities, so that the events of one stay in order.
func (o *outcomes) closeFullBoxes() {
	for src, box := range o.events {
		if box.size >= handle.MaxBox {
			o.full = append(o.full, box)
			delete(o.events, src)
		}
	}
}

// eventBox gathers events of one source.
type eventBox struct {
	handle.Box
	size int // about, in bytes
}

// mergeBudget is how much one transaction merges, in bytes that are copied: see task.Verdict.
// Without a bound, a batch of many small requests for one large task would keep its transaction
// busy for minutes.
const mergeBudget = 256 << 20

// mergePatience bounds the same in time, and the decisions about timers. On a slow or busy machine, merging up to the budget takes
// longer than the server lets the transaction's connection be silent.
const mergePatience = handle.IdleTimeout / 5

// merged is what a transaction has merged so far.
type merged struct {
	bytes int
	took  time.Duration // also with decisions about timers
}

// enough tells that the rest must wait for another transaction.
func (m *merged) enough() bool { return m.bytes > mergeBudget || m.took > mergePatience }

// errMerging: a batch merges more than a transaction may.
var errMerging = errors.New("the batch merges too much for one transaction")

// knownBudget is how much one transaction reads of the bodies of tasks and timers that it is about,
// and one more. A cancel or a report is small and may be about a task of megabytes, so what a batch
// brings does not bound what it reads.
const knownBudget = 32 << 20

// errKnown: a batch is about more than a transaction may read.
var errKnown = errors.New("what the batch is about is too much for one transaction")

// reads counts the body of a task or a timer that is known.
func (w *work) reads(body []byte) error {
	if w.known > knownBudget && w.several {
		return errKnown
	}
	w.known += len(body)
	return nil
}

func (w *work) scanTask(r *sql.Rows, t *task.Task) error {
	if err := tables.ScanTaskUnread(r, t); err != nil {
		return err
	}
	return w.reads(t.Body)
}

func (w *work) scanTimer(r *sql.Rows, t *task.Timer) error {
	if err := tables.ScanTimer(r, t); err != nil {
		return err
	}
	return w.reads(t.Body)
}
