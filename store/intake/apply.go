package intake

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

// Batch is a run of intake records with the offsets they cover. All of it happens, or nothing.
type Batch struct {
	Advance []Advance     // each source once
	Changes []task.Change // in intake order for each source
	Gaps    []Gap         // offsets that Advance covers and Changes do not bring, in order for each source: see Skip
	// Epochs are the leader epochs of the sources that the batch moves, where they are known.
	Epochs map[int]Epoch
	// Resolve also looks at the requests that wait for the outcome of these identities.
	Resolve [][16]byte
}

// Applied is what a batch has done.
type Applied struct {
	Events  []handle.Box // events that are decided and stored, to be published and then deleted
	Added   []handle.Place
	Removed []handle.Place
	Timers  []int          // slots of timers that were set or enabled: their first runs are to be made
	Waiting int            // requests that wait for a delivery's outcome
	Dead    map[string]int // dead letters that it has stored, by kind
	Opened  map[int]Size   // what has become pending, by source
}

// Apply stores a batch in one transaction: the intake offsets, the tasks, the events. ErrFenced
// says that the offsets are not where the batch begins, so at least a part of it is stored already;
// read the source again. After any other error the batch may be stored or not. Apply the same batch
// again: the offsets make sure that it is stored once.
//
// The order inside keeps a task from slipping between a writer and the owner of its slot. First
// come known rows and most new ones. Then a shared lock on their slots fixes every claimed offset.
// Then comes all that depends on claimed, then the commit. An owner that moves claimed waits for
// the lock and reads afterwards.
//
// now tells the time in Unix ms. It is asked once the batch has its locks: what a report of another
// process asks for counts from after that report.
func (in Intake) Apply(ctx context.Context, b Batch, now func() int64) (Applied, error) {
	if err := b.check(); err != nil {
		return Applied{}, fmt.Errorf("applying %d requests: %w", len(b.Changes), err)
	}
	out, err := in.apply(ctx, b, now, false)
	if err != nil {
		return Applied{}, fmt.Errorf("applying %d requests: %w", len(b.Changes), err)
	}
	return out, nil
}

func (in Intake) apply(ctx context.Context, b Batch, now func() int64, reconciling bool) (Applied, error) {
	var out Applied
	insert := in.h.Prepare(ctx, insertQuery(handle.PreparedRows))
	tries := 0
	err := in.h.Transact(ctx, func(tx *sql.Tx) error {
		tries++
		spread, err := in.h.SpreadIn(ctx, tx)
		if err != nil {
			return err
		}
		if err := in.advance(ctx, tx, b); err != nil {
			return err
		}
		w := work{intake: in, tx: tx, insert: insert, clock: now, spread: spread, resolving: len(b.Resolve) > 0,
			mode: mode{reconciling: reconciling, first: tries == 1, several: len(b.Changes) > 1 || len(b.Resolve) > 1 && !reconciling}}
		if err := w.run(ctx, b); err != nil {
			return err
		}
		out = w.applied
		_, err = in.h.Audit(ctx, tx, b.offsets()) // an operator's change: scanners have no actor
		return err
	})
	return out, err
}

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

	slots map[int]handle.Slot // locked
	fresh []*task.Task        // no task of their identity was known
	late  []*task.Task        // the same, but their due time is about to be claimed, or was
	taken []int64             // of tasks in flight: see verdict
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

func (w *work) run(ctx context.Context, b Batch) error {
	if err := w.knowAdvanced(ctx, b.Advance); err != nil {
		return err
	}
	w.now = w.clock()
	if err := w.decideTimers(ctx, b.Changes); err != nil {
		return err
	}
	list, err := w.gather(ctx, b)
	if err != nil {
		return err
	}
	if err := w.timers.apart(list); err != nil {
		return err
	}
	if err := w.splitFresh(&list); err != nil {
		return err
	}
	if err := w.insertTasks(ctx, w.fresh); err != nil {
		return err
	}
	if err := w.lockSlots(ctx, list); err != nil {
		return err
	}
	if err := w.placeFresh(ctx); err != nil {
		return err
	}
	if err := w.readWaiting(ctx, list); err != nil {
		return err
	}
	if err := w.knowSources(ctx, list); err != nil {
		return err
	}
	w.now = w.clock()
	for _, id := range list {
		if err := w.decideAll(id); err != nil {
			return err
		}
	}
	if err := w.write(ctx, list); err != nil {
		return err
	}
	if err := w.writeTimers(ctx); err != nil {
		return err
	}
	if err := w.writeWaiting(ctx, list); err != nil {
		return err
	}
	return w.finish(ctx)
}

func (w *work) finish(ctx context.Context) error {
	if err := w.intake.h.InsertDead(ctx, w.tx, w.dead); err != nil {
		return err
	}
	for _, d := range w.dead {
		if w.applied.Dead == nil {
			w.applied.Dead = map[string]int{}
		}
		w.applied.Dead[d.Kind]++
	}
	for _, box := range w.events {
		w.full = append(w.full, box)
	}
	for _, box := range handle.EventBoxes(w.proven, w.now) {
		w.full = append(w.full, &eventBox{Box: box})
	}
	for _, box := range w.full {
		if err := box.Store(ctx, w.tx); err != nil {
			return err
		}
		w.applied.Events = append(w.applied.Events, box.Box)
	}
	return nil
}
