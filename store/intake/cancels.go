package intake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// listedCancels are the cancels of one record. They hold for the tasks as listed.
type listedCancels struct {
	*work
	task.Cancels
	seq    int64
	comes  func(seq int64) bool // see toCome
	list   []*identity
	listed map[[16]byte]task.Listed
	set    map[[16]byte]int64 // the seqs of timers' present definitions, by runs changed since the listing
}

// apply decides the cancels, unless another installation wrote the record. Outside a recovery it
// reads no body, and no cancel waits in the table of waiting requests: a task being delivered is
// too late at once, whatever follows. If one cancel would have to wait, all of them come later.
//
// Claims wait for locks of slots. So the cancels are decided and written before them, by the slots
// as read, unless a task is about to be claimed. Under the locks only a look at the slots is left.
func (w *listedCancels) apply(ctx context.Context, kept map[Place]Extent) (err error) {
	if id, err := tables.ReadMeta(ctx, w.tx, handle.InstallationID); err != nil || string(id) != w.Installation {
		return err
	}
	if w.comes, err = toCome(ctx, w.tx, kept); err != nil { // before the tasks are read: what is stored by then is seen
		return err
	}
	for source, next := range w.Stored {
		if next > 0 && w.comes(task.Seq(source, next-1)) {
			return fmt.Errorf("the intake is to be read again up to where it stood when tasks were listed: %w", ErrLater)
		}
	}
	w.listed = make(map[[16]byte]task.Listed, len(w.Tasks))
	for _, l := range w.Tasks {
		w.listed[[16]byte(l.Ident)] = l
	}
	for key := range w.listed {
		w.list = append(w.list, &identity{key: key})
	}
	slices.SortFunc(w.list, inOrder)
	body := "''"
	if w.intake.evidence != nil {
		body = "body" // says what follows from a delivery that is proven
	}
	if err := w.readKnown(ctx, w.list, body); err != nil {
		return err
	}
	early := w.first && !slices.ContainsFunc(w.list, w.near)
	if early {
		err = w.readSlots(ctx)
	} else {
		err = w.lockSlots(ctx, w.list)
	}
	if err != nil {
		return err
	}
	phases := w.phases()
	if err := tables.Chunks(w.list, func(part []*identity) error { return countWaiting(ctx, w.tx, part) }); err != nil {
		return fmt.Errorf("looking for waiting requests: %w", err)
	}
	if err := w.readDefinitions(ctx); err != nil {
		return err
	}
	w.now = w.clock()
	cancelled := int64(0)
	for _, id := range w.list {
		if err := w.cancel(ctx, id); err != nil {
			return err
		}
		if id.now != id.before && id.now.State.Cancelled() {
			cancelled++
		}
	}
	if err := w.write(ctx, w.list); err != nil {
		return err
	}
	if _, err := w.intake.h.AuditMore(ctx, w.tx, w.Audit, cancelled); err != nil {
		return err
	}
	if err := w.finish(ctx); err != nil || !early {
		return err
	}
	if err := w.lockSlots(ctx, w.list); err != nil {
		return err
	}
	if !slices.Equal(phases, w.phases()) {
		return handle.ErrClaimed
	}
	return nil
}

// near tells whether a claim may come upon the task while a batch is stored.
func (w *listedCancels) near(id *identity) bool {
	t := id.before
	return t != nil && t.Slot != task.OutOfLine && t.Pos <= w.intake.h.LastClaimed(t.Slot)+nearby
}

// readSlots reads the slots without a lock.
func (w *listedCancels) readSlots(ctx context.Context) error {
	rows, err := w.intake.h.Slots(ctx, w.tx)
	w.slots = make(map[int]handle.Slot, len(rows))
	for _, s := range rows {
		w.slots[s.Slot] = s
	}
	return err
}

// phases are those of the tasks as they were known.
func (w *listedCancels) phases() []task.Phase {
	out := make([]task.Phase, len(w.list))
	for i, id := range w.list {
		out[i] = w.phase(&identity{before: id.before, now: id.before})
	}
	return out
}

// readDefinitions reads set. The runs are locked, so nobody sets the timers anew.
func (w *listedCancels) readDefinitions(ctx context.Context) error {
	var timers [][16]byte
	of := map[[16]byte][16]byte{}
	for _, id := range w.list {
		if l := w.listed[id.key]; l.Timer > 0 && id.before != nil && id.before.Seq != l.Seq && task.IsRun(id.before.Seq) {
			of[id.key] = task.TimerOf(id.before.Topic, id.before.ID)
			timers = append(timers, of[id.key])
		}
	}
	seqs, err := tables.TimerSeqs(ctx, w.tx, timers)
	w.set = map[[16]byte]int64{}
	for key, timer := range of {
		w.set[key] = seqs[timer]
	}
	return err
}

// cancel decides one cancel, without a version. ErrLater: the database was set back, and does
// not know the listed task yet, or its dispatcher; or earlier requests are still to be decided.
func (w *listedCancels) cancel(ctx context.Context, id *identity) error {
	l := w.listed[id.key]
	id.now = id.before
	if !l.Is(id.now, w.set[id.key]) {
		if w.comes(max(l.Seq, l.Timer)) {
			return fmt.Errorf("the intake is to be read again up to where it scheduled a task: %w", ErrLater)
		}
		if id.queue.requests > 0 {
			return w.cancelWaiting(ctx, l.Seq)
		}
		return nil
	}
	if w.phase(id) == task.Pending && id.queue.requests > 0 {
		return fmt.Errorf("requests wait for a task: %w", ErrLater)
	}
	w.closeFullBoxes()
	r := schemas.NewRequest(schemas.OpCancel, id.now.Topic, id.now.ID)
	if !w.decideOne(id, task.Change{Seq: w.seq, Request: &r}, false) {
		return fmt.Errorf("the dispatchers have not compared their slots with the database: %w", ErrLater)
	}
	return nil
}

// cancelWaiting notes the cancel of a listed task whose request waits. The database was set back,
// and an earlier task of the identity is in doubt again.
func (w *listedCancels) cancelWaiting(ctx context.Context, listed int64) error {
	found, err := tables.Fetch(ctx, w.tx, scanWaiting, "SELECT ident, report, size, request FROM waiting WHERE seq = ?"+w.intake.h.Locking(handle.LockExclusive), listed)
	switch {
	case errors.Is(err, errDamaged): // nobody can decide it
		return nil
	case err != nil:
		return fmt.Errorf("reading a waiting request: %w", err)
	case len(found) == 0 || found[0].report || found[0].change.CancelledBy > 0:
		return nil
	}
	c := found[0].change
	c.CancelledBy = w.seq
	data, err := encodeChange(c)
	if err == nil {
		_, err = w.tx.ExecContext(ctx, "UPDATE waiting SET request = ? WHERE seq = ?", data, listed)
	}
	return wrap.Err(err, "noting the cancel of a waiting request")
}

// notedCancel returns the cancel that is noted at a request that waited, once the request has made
// its task.
func (id *identity) notedCancel(c task.Change) (cancel task.Change, noted bool) {
	if c.CancelledBy == 0 || id.now == nil || id.now.Seq != c.Seq {
		return cancel, false
	}
	r := schemas.NewRequest(schemas.OpCancel, id.now.Topic, id.now.ID)
	return task.Change{Seq: c.Seq, Request: &r, CancelledBy: c.CancelledBy}, true
}

// toCome tells of a seq whether its record may still be stored. A record lost in Kafka, or of a
// partition that is read no more, is not to come. An unknown source is of a partition with records
// and no source yet, or of a recreated partition.
func toCome(ctx context.Context, tx *sql.Tx, kept map[Place]Extent) (func(seq int64) bool, error) {
	all, err := tables.Fetch(ctx, tx, scanSource, "SELECT "+sourceColumns+" FROM sources")
	if err != nil {
		return nil, fmt.Errorf("reading how far the intake is stored: %w", err)
	}
	sources, without := make(map[int]Source, len(all)), maps.Clone(kept)
	maps.DeleteFunc(without, func(_ Place, e Extent) bool { return e.From >= e.To })
	for _, s := range all {
		if sources[s.ID] = s; s.Retired == 0 {
			delete(without, Place{s.Topic, s.Partition})
		}
	}
	return func(seq int64) bool {
		id, offset := task.SplitSeq(seq)
		if id < firstSource || id > lastSource {
			return false
		}
		s, known := sources[id]
		extent, read := kept[Place{s.Topic, s.Partition}]
		switch {
		case !known:
			return kept == nil || len(without) > 0
		case s.Retired > 0 || offset < s.Next:
			return false
		}
		return kept == nil || read && offset >= extent.From && offset < extent.To
	}, nil
}
