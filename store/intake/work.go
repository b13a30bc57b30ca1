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

type work struct {
	intake    Intake
	tx        *sql.Tx
	insert    *sql.Stmt // of preparedRows tasks; nil: there is none
	clock     func() int64
	now       int64 // of the clock, when what is decided next was locked
	spread    slots.Spread
	resolving bool // it also looks at what waits
	mode

	slots  map[int]handle.Slot // locked
	fresh  []*task.Task        // no task of their identity was known
	late   []*task.Task        // the same, but their due time is about to be claimed, or was
	taken  []int64             // of tasks in flight: see verdict
	unread unreadReports
	outcomes
	merged  merged
	known   int // bytes that it has read: see knownBudget
	timers  timerWork
	applied Applied
}

type mode struct {
	reconciling bool // no request is still to come that might be older than a proof
	first       bool // the first try assumes that default ids are new, and that no claim comes upon cancels of many; the next one looks
	oneOfMany   bool // the database is one of several: another may be set back, and send again what has come here
	several     bool // the batch has more than one change, or a scanner looks at more than one identity: it can be cut
}

type identity struct {
	key     [16]byte
	before  *task.Task
	now     *task.Task
	changes []task.Change
	queue   requestQueue
}

// phase returns the phase of the identity's task after the changes so far. A task made by this
// transaction is pending, waiting or ended, unless an earlier life made the same and was forgotten.
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

// nowUnsure makes an unclaimed task's phase Unsure, if the slot is. Recoveries are always sure.
func (w *work) nowUnsure(t *task.Task, ph task.Phase) task.Phase {
	if (ph == task.Pending || ph == task.Between) && w.slots[t.Slot].Unsure && w.intake.evidence == nil {
		return task.Unsure
	}
	return ph
}

// outcomes are a transaction's events and dead letters, until they are stored.
type outcomes struct {
	events map[int]*eventBox // for each source
	full   []*eventBox
	dead   []*task.DeadLetter
	proven []schemas.Event // of no source: of tasks that evidence has settled
}

// addEvent puts the event of a change into the box of its source. The box's number contains the
// time: a database that was set back makes boxes anew, while a former one may yet be deleted.
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

// keep keeps the dead letter of a change, but for a rejection that is to have none.
func (o *outcomes) keep(c task.Change, d *task.DeadLetter) {
	if !c.NoLetter || d.Kind != schemas.KindRejected {
		o.dead = append(o.dead, d)
	}
}

// closeFullBoxes is called between identities, so that the events of one stay in order.
func (o *outcomes) closeFullBoxes() {
	for src, box := range o.events {
		if box.size >= handle.MaxBox {
			o.full = append(o.full, box)
			delete(o.events, src)
		}
	}
}

type eventBox struct {
	handle.Box
	size int // about, in bytes
}

// mergeBudget is how much one transaction merges, in copied bytes: see task.Verdict. Without a
// bound, many small requests for one large task would keep a transaction busy for minutes.
const mergeBudget = 256 << 20

// mergePatience bounds the time of merges and decisions about timers. On a slow or busy machine,
// the budget takes longer than the server lets the transaction's connection be silent.
const mergePatience = handle.IdleTimeout / 5

type merged struct {
	bytes int
	took  time.Duration // also with decisions about timers
}

func (m *merged) enough() bool { return m.bytes > mergeBudget || m.took > mergePatience }

var errMerging = errors.New("the batch merges too much for one transaction")

// knownBudget is how much one transaction reads of its known tasks' and timers' bodies, and one
// body more. A cancel or a report is small and may be about a task of megabytes, so the size of a
// batch does not bound its reading.
const knownBudget = 32 << 20

var errKnown = errors.New("what the batch is about is too much for one transaction")

func (w *work) reads(body []byte) error {
	if w.known > knownBudget && w.several {
		return errKnown
	}
	w.known += len(body)
	return nil
}

func (w *work) scanTask(r *sql.Rows, t *task.Task) error {
	if err := tables.ScanTaskNotes(r, t); err != nil {
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
