package store

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
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

// Place is where a task stands in the line, for the index.
type Place struct {
	slots.Place
	Due int64 // when it is to be delivered; earlier than Pos if the line was already claimed beyond the due time
}

func placeOf(t *task.Task) Place { return newPlace(t.Slot, t.Pos, t.Seq, t.Due) }

func newPlace(slot int, pos, seq, due int64) Place {
	return Place{slots.Place{Slot: slot, Pos: pos, Seq: seq}, due}
}

// Applied is what a batch has done.
type Applied struct {
	Events  []Outbox // events that are decided and stored, to be published and then deleted (DeleteEvents)
	Added   []Place
	Removed []Place
	Timers  []int // slots of timers that were set or enabled: their first runs are to be made
	Waiting int   // requests that wait for a delivery's outcome
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
func (s *Store) Apply(ctx context.Context, b Batch, now int64) (Applied, error) {
	if err := b.check(); err != nil {
		return Applied{}, fmt.Errorf("applying %d requests: %w", len(b.Changes), err)
	}
	out, err := s.apply(ctx, b, now, false)
	if err != nil {
		return Applied{}, fmt.Errorf("applying %d requests: %w", len(b.Changes), err)
	}
	return out, nil
}

func (s *Store) apply(ctx context.Context, b Batch, now int64, settling bool) (Applied, error) {
	slotCount, err := s.cachedSlotCount(ctx)
	if err != nil {
		return Applied{}, err
	}
	var out Applied
	insert := s.prepare(ctx, insertQuery(preparedRows))
	tries := 0
	err = s.transact(ctx, func(tx *sql.Tx) error {
		tries++
		if err := s.advance(ctx, tx, b); err != nil {
			return err
		}
		w := work{store: s, tx: tx, insert: insert, now: now, resolving: len(b.Resolve) > 0, settling: settling, first: tries == 1, several: len(b.Changes) > 1, slotCount: slotCount}
		if err := w.run(ctx, b); err != nil {
			return err
		}
		out = w.applied
		_, err := s.audit(ctx, tx, b.offsets()) // an operator's change: scanners have no actor
		return err
	})
	return out, err
}

// work is one attempt at one batch.
type work struct {
	store     *Store
	tx        *sql.Tx
	insert    *sql.Stmt // of preparedRows tasks; nil: there is none
	now       int64
	resolving bool
	first     bool // the first try assumes that default ids are new; if the unique key disagrees, the next try looks them up
	settling  bool // no request is still to come that might be older than a proof

	slotCount int
	slots     map[int]Slot
	fresh     []*task.Task // no task of their identity was known
	late      []*task.Task // the same, but their due time is about to be claimed, or was
	applied   Applied
	events    map[int]*eventBox // for each source
	full      []*eventBox
	dead      []*task.DeadLetter
	proven    []schemas.Event // of no source: of tasks that evidence has settled, and of cancels by filter
	taken     []int64         // of tasks in flight: see verdict
	merging   int             // of mergeBudget
	deciding  time.Duration   // of mergePatience
	several   bool            // the batch has more than one change, so it can be cut
	timers    timerWork
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

// decideAll runs the changes of an identity through the state machine, in order: first those that
// waited, then those of the batch. Once a request must wait, all requests behind it wait too. A
// report never waits behind a request, because it is about the very delivery that the request waits
// for.
func (w *work) decideAll(id *identity) error {
	w.decideDue(id)
	for _, c := range id.changes {
		if w.mergedEnough() && w.several {
			return errMerging
		}
		if w.decideOne(id, c, id.queue.requests > 0) {
			continue
		}
		h, err := newWaitingChange(id.key, c)
		if err != nil {
			return err
		}
		if !id.queue.add(h) && c.Request != nil {
			w.addOutcome(c, task.TooMany(c, id.now))
		}
	}
	if w.settling {
		w.applyEvidence(id, nil)
	}
	return nil
}

// decideDue runs what waited for an identity through the state machine.
func (w *work) decideDue(id *identity) {
	w.closeFullBoxes()
	id.now = id.before
	for _, h := range id.queue.due {
		if w.mergedEnough() && !h.report {
			return // they wait for the next transaction
		}
		if w.decideOne(id, h.change, false) {
			id.queue.remove(h)
		} else if !h.report { // reports come first, so all that follow are requests: they stay in the table as they are
			return
		}
	}
}

// decideOne decides a change, unless it must wait.
func (w *work) decideOne(id *identity, c task.Change, queued bool) (decided bool) {
	w.applyEvidence(id, &c)
	if w.foreign(c.Report, id.now) {
		return true
	}
	if queued && c.Report == nil {
		return false
	}
	began := time.Now()
	v := task.Decide(id.now, w.phase(id), withoutDelivery(c), w.slotCount, w.now)
	w.deciding += time.Since(began)
	if v.Wait {
		return false
	}
	id.now = v.Next
	w.merging += v.Cost
	if v.Taken {
		w.taken = append(w.taken, id.now.Seq)
	}
	w.addOutcome(c, v)
	return true
}

// withoutDelivery removes the delivery that a report names, in the simulator's runs without that rule.
func withoutDelivery(c task.Change) task.Change {
	if c.Report == nil || !faultpoint.Without(faultpoint.ReportOfDelivery) {
		return c
	}
	r := *c.Report
	r.Delivery = ""
	c.Report = &r
	return c
}

// mergedEnough tells that the rest must wait for another transaction.
func (w *work) mergedEnough() bool { return w.merging > mergeBudget || w.deciding > mergePatience }

// addOutcome keeps the dead letter and the event of a verdict.
func (w *work) addOutcome(c task.Change, v task.Verdict) {
	if v.Dead != nil {
		v.Dead.DiedAt = w.now
		w.dead = append(w.dead, v.Dead)
	}
	if c.Request != nil && v.Event.State != "" {
		v.Event.Request = w.store.known.position(c.Seq)
	}
	w.addEvent(c.Seq, v.Event)
}

// phase returns the phase of the identity's task after the changes so far. What this transaction
// has made is pending, waiting or ended by construction.
func (w *work) phase(id *identity) task.Phase {
	switch {
	case id.now == nil:
		return task.Ended
	case id.now == id.before:
		return id.now.Phase(w.slots[id.now.Slot].Claimed, w.slots[id.now.Slot].Done)
	case id.now.Slot == task.OutOfLine:
		return task.Ended
	case id.now.State != task.StateLine:
		return task.Waiting
	}
	return task.Pending
}

func (w *work) reject(c task.Change) {
	w.closeFullBoxes()
	d := *c.Rejected
	d.DiedAt = w.now
	w.dead = append(w.dead, &d)
	w.addEvent(c.Seq, schemas.Event{Topic: d.Topic, ID: d.TaskID, State: schemas.StateRejected, Due: d.Due, Kind: d.Kind, Reason: d.Reason, Request: w.store.known.position(c.Seq)})
}

func (w *work) addEvent(seq int64, e schemas.Event) {
	if e.State == "" {
		return
	}
	e.At = w.now
	src, _ := task.SplitSeq(seq)
	if w.events == nil {
		w.events = make(map[int]*eventBox)
	}
	box := w.events[src]
	if box == nil {
		box = &eventBox{Outbox: Outbox{Source: src}}
		w.events[src] = box
	}
	box.Seq = max(box.Seq, seq)
	box.Events = append(box.Events, e)
	box.size += eventSize(e)
}

// eventBox gathers events of one source.
type eventBox struct {
	Outbox
	size int // about, in bytes
}

// closeFullBoxes puts full boxes aside. It is called between identities, so that the events of one stay in order.
func (w *work) closeFullBoxes() {
	for src, box := range w.events {
		if box.size >= maxBox {
			w.full = append(w.full, box)
			delete(w.events, src)
		}
	}
}

// lockSlots locks the slots of every row that this batch writes or judges. Once a known task is
// among them, that is all slots: a request that waited for it may put it into any.
func (w *work) lockSlots(ctx context.Context, list []*identity) error {
	set := slotSet{}
	for _, t := range slices.Concat(w.fresh, w.late) {
		set.add(t.Slot)
	}
	for _, r := range w.timers.pending {
		set.add(r.Slot)
	}
	for slot := 0; slot < w.slotCount && len(list) > 0; slot++ {
		set.add(slot)
	}
	var err error
	if w.slots, err = w.store.lockSlots(ctx, w.tx, set, lockShared); err != nil {
		return err
	}
	w.store.hint.learn(w.slots)
	return nil
}

// placeFresh places new tasks under the lock. It stores the late ones, and moves those of the
// others whose place was claimed meanwhile. If a task's place is claimed, it goes right behind
// claimed. Tasks are released by due, so that does not delay them.
func (w *work) placeFresh(ctx context.Context) error {
	moves := map[int][]any{}
	for _, t := range w.fresh {
		if claimed := w.slots[t.Slot].Claimed; t.Pos <= claimed {
			t.Pos = claimed + 1
			moves[t.Slot] = append(moves[t.Slot], t.Seq)
		}
		w.applied.Added = append(w.applied.Added, placeOf(t))
	}
	for slot, seqs := range moves {
		err := chunks(seqs, func(part []any) error {
			_, err := w.tx.ExecContext(ctx, "UPDATE tasks SET pos = ? WHERE seq IN ("+marks(len(part))+")", append([]any{w.slots[slot].Claimed + 1}, part...)...)
			return err
		})
		if err != nil {
			return fmt.Errorf("placing late tasks: %w", err)
		}
	}
	for _, t := range w.late {
		t.Pos = max(t.Due, w.slots[t.Slot].Claimed+1)
		w.applied.Added = append(w.applied.Added, placeOf(t))
	}
	return w.insertTasks(ctx, w.late)
}

// moved tells whether a task has ended with nothing changed but its place and state, as by a report,
// and by a cancel, which also drops the body. Such tasks of one batch can be updated together.
func (id *identity) moved() (move, bool) {
	if id.before == nil || id.now == nil || id.now.Slot != task.OutOfLine {
		return move{}, false
	}
	a, b := *id.before, *id.now
	a.Slot, a.Pos, a.State = b.Slot, b.Pos, b.State
	m := move{b.Slot, b.Pos, b.State, len(b.Body) == 0}
	if m.bare {
		a.Body = b.Body
	}
	return m, reflect.DeepEqual(a, b)
}

// write brings the rows of the identities that changed up to date.
func (w *work) write(ctx context.Context, list []*identity) error {
	var gone []int64
	var rows []*task.Task
	same := map[move][]int64{}
	for _, id := range list {
		if id.now == id.before {
			continue
		}
		if t := id.before; t != nil {
			if t.Slot != task.OutOfLine {
				w.applied.Removed = append(w.applied.Removed, placeOf(t))
			}
		}
		if t := id.now; t != nil {
			if t.Slot != task.OutOfLine {
				t.Pos = max(t.Pos, w.slots[t.Slot].Claimed+1)
				w.applied.Added = append(w.applied.Added, placeOf(t))
			}
		}
		if m, only := id.moved(); only {
			same[m] = append(same[m], id.now.Seq)
			continue
		}
		if id.before != nil {
			gone = append(gone, id.before.Seq)
		}
		if id.now != nil {
			rows = append(rows, id.now)
		}
	}
	if len(same)+len(gone) > 0 {
		if err := faultpoint.At(faultpoint.StoreReplacing); err != nil {
			return err
		}
	}
	if err := keepTaken(ctx, w.tx, w.taken); err != nil {
		return err
	}
	if err := moveTasks(ctx, w.tx, same); err != nil {
		return err
	}
	if err := deleteTasks(ctx, w.tx, gone); err != nil {
		return err
	}
	return w.insertTasks(ctx, rows)
}

func (w *work) finish(ctx context.Context) error {
	if err := w.store.insertDead(ctx, w.tx, w.dead); err != nil {
		return err
	}
	for _, box := range w.events {
		w.full = append(w.full, box)
	}
	for _, box := range eventBoxes(w.proven, w.now) {
		w.full = append(w.full, &eventBox{Outbox: box})
	}
	for _, box := range w.full {
		if err := box.store(ctx, w.tx); err != nil {
			return err
		}
		w.applied.Events = append(w.applied.Events, box.Outbox)
	}
	return nil
}

// claimedHint remembers the last claimed offset seen of each slot. With it, most tasks get their
// final place before the lock is taken. It may be outdated: the place is judged again under the
// lock.
type claimedHint struct{ v [4096]atomic.Int64 }

func (h *claimedHint) claimed(slot int) int64 { return h.v[slot].Load() }

func (h *claimedHint) learn(slots map[int]Slot) {
	for n, s := range slots {
		h.v[n].Store(s.Claimed)
	}
}
