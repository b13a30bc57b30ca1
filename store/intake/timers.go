package intake

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

func ofTimer(c task.Change) bool { return c.Request != nil && c.Request.Op >= schemas.OpTimer }

// timerWork is a batch's effect on timers. Timers are locked before tasks: see MakeRuns.
type timerWork struct {
	list    []*timerIdentity
	pending []task.Task       // of their runs, read under a lock: without bodies
	idents  map[[16]byte]bool // of all runs that may be pending
}

type timerIdentity struct {
	key         [16]byte
	before, now *task.Timer
	changes     []task.Change
	clear       bool
	from        int64 // the first run that is taken away
}

// mostClearing bounds the pending runs of a batch's changed timers. A larger batch is cut.
const mostClearing = 10_000

// decideTimers decides the requests about timers, and locks the runs to take away.
func (w *work) decideTimers(ctx context.Context, changes []task.Change) error {
	byKey := map[[16]byte]*timerIdentity{}
	for _, c := range changes {
		if !ofTimer(c) {
			continue
		}
		key := task.Ident(c.Request.Topic, c.Request.ID)
		id := byKey[key]
		if id == nil {
			id = &timerIdentity{key: key}
			byKey[key], w.timers.list = id, append(w.timers.list, id)
		}
		id.changes = append(id.changes, c)
	}
	if len(byKey) == 0 {
		return nil
	}
	slices.SortFunc(w.timers.list, func(a, b *timerIdentity) int { return slices.Compare(a.key[:], b.key[:]) })
	keys := tables.Idents(w.timers.list, func(id *timerIdentity) [16]byte { return id.key })
	rows, err := tables.FetchIn(ctx, w.tx, w.scanTimer, "SELECT "+tables.TimerColumns+" FROM timers WHERE ident", keys, w.intake.h.Locking(handle.LockExclusive))
	if err != nil {
		return fmt.Errorf("reading %d timers: %w", len(keys), err)
	}
	for i := range rows {
		byKey[task.Ident(rows[i].Topic, rows[i].ID)].before = &rows[i]
	}
	for _, id := range w.timers.list {
		if err := w.decideTimer(id); err != nil {
			return err
		}
	}
	return w.readPending(ctx)
}

// decideTimer runs the changes of a timer through the state machine. Comparing an expression with
// its jitter takes milliseconds, so a batch of many is cut as one that merges much.
func (w *work) decideTimer(id *timerIdentity) error {
	w.closeFullBoxes()
	id.now = id.before
	for _, c := range id.changes {
		if w.merged.enough() && w.several {
			return errMerging
		}
		began := time.Now()
		v := task.DecideTimer(id.now, c, w.spread, w.now)
		w.merged.took += time.Since(began)
		id.now = v.Next
		if v.Clear {
			if !id.clear || v.From < id.from {
				id.from = v.From
			}
			id.clear = true
			id.now.Kept = w.stillKept(id.now.Kept)
		}
		w.addOutcome(c, task.Verdict{Event: v.Event, Dead: v.Dead})
	}
	return nil
}

// stillKept leaves out runs that are known to be claimed.
func (w *work) stillKept(kept []task.Kept) []task.Kept {
	kept = slices.DeleteFunc(kept, func(k task.Kept) bool { return k.AllClaimed(claimedOf(w.spread, k, w.intake.h.LastClaimed)) })
	return kept[max(len(kept)-task.MostKept, 0):]
}

// claimedOf returns how far all possible slots of kept runs are claimed: their own, or all slots if
// the number of slots has changed since.
func claimedOf(spread slots.Spread, k task.Kept, claimed func(slot int) int64) int64 {
	if spread.Whole() && k.Slots == spread.Base() {
		return claimed(k.Slot)
	}
	least := claimed(0)
	for slot := range spread.Rows() {
		least = min(least, claimed(slot))
	}
	return least
}

// readPending locks runs of changed timers. The slots' lock shows the claimed ones.
func (w *work) readPending(ctx context.Context) error {
	w.timers.idents = map[[16]byte]bool{}
	var keys []any
	for _, id := range w.timers.list {
		if !id.clear || id.before == nil {
			continue
		}
		runs, err := id.before.Pending()
		if err != nil {
			if err := w.nonePending(ctx, id.before, err); err != nil {
				return err
			}
		}
		for _, run := range runs {
			if run < id.from {
				continue
			}
			key := id.before.RunIdent(run)
			w.timers.idents[key] = true
			keys = append(keys, key[:])
		}
	}
	if len(keys) > mostClearing && w.several {
		return errMerging
	}
	slices.SortFunc(keys, compareKeys)
	rows, err := tables.FetchIn(ctx, w.tx, func(r *sql.Rows, t *task.Task) error {
		return r.Scan(&t.Seq, &t.Slot, &t.Pos, &t.State, &t.Due, &t.Topic, &t.ID)
	},
		"SELECT seq, slot, pos, state, due, topic, id FROM tasks WHERE ident", keys, w.intake.h.Locking(handle.LockExclusive))
	for _, t := range rows {
		if task.IsRun(t.Seq) { // otherwise a caller has put a task of its own there
			w.timers.pending = append(w.timers.pending, t)
		}
	}
	return wrap.Err(err, "reading %d runs", len(keys))
}

// nonePending refuses to change an unreadable timer with runs to take away: nobody can tell the
// runs. The request becomes a dead letter, and others go on.
func (w *work) nonePending(ctx context.Context, t *task.Timer, cause error) error {
	rows, err := tables.Fetch(ctx, w.tx, func(r *sql.Rows, p *handle.SlotPos) error { return r.Scan(&p.Slot, &p.Pos) }, "SELECT slot, claimed FROM slots")
	if err != nil {
		return fmt.Errorf("reading how far slots are claimed: %w", err)
	}
	claimed := make(map[int]int64, len(rows))
	for _, slot := range rows {
		claimed[slot.Slot] = slot.Pos
	}
	of := func(slot int) int64 { return claimed[slot] }
	if t.AllClaimed(of, func(k task.Kept) int64 { return claimedOf(w.spread, k, of) }) {
		return nil
	}
	return fmt.Errorf("%w: %w", errDamaged, cause)
}

// apart cuts a batch with requests about the very runs to be taken away: the requests come later.
func (t *timerWork) apart(list []*identity) error {
	for _, id := range list {
		if t.idents[id.key] {
			return errMerging
		}
	}
	return nil
}

// writeTimers updates timers, and takes away unclaimed runs, under the locks of their slots.
func (w *work) writeTimers(ctx context.Context) error {
	if len(w.timers.pending) > 0 {
		if err := faultpoint.At(faultpoint.StoreReplacing); err != nil {
			return err
		}
	}
	var gone []int64
	for _, t := range w.timers.pending {
		switch slot := w.slots[t.Slot]; w.nowUnsure(&t, t.Phase(slot.Claimed, slot.Done)) {
		case task.Pending:
			gone = append(gone, t.Seq)
			w.applied.Removed = append(w.applied.Removed, handle.PlaceOf(&t))
			for _, id := range w.timers.list {
				if id.clear && task.TimerOf(t.Topic, t.ID) == id.key {
					id.now.NotElsewhere(&t) // it may be made again
				}
			}
		case task.Unsure:
			if t.State == task.StateLine { // its owner may have it, and the timer would make it once more
				return handle.ErrUnsure
			}
		}
	}
	if err := deleteTasks(ctx, w.tx, gone); err != nil {
		return err
	}
	for _, id := range w.timers.list {
		if id.now == id.before {
			continue
		}
		if err := w.writeTimer(ctx, id); err != nil {
			return fmt.Errorf("storing a timer: %w", err)
		}
		if id.now.State == task.TimerEnabled {
			w.applied.Timers = append(w.applied.Timers, id.now.Slot)
		}
	}
	return nil
}

// alone tells whether the timer's former runs must be alone: claimed ones may be about to start.
func (id *timerIdentity) alone() bool {
	return id.before != nil && (id.before.Definition.Alone || slices.ContainsFunc(id.before.Kept, func(k task.Kept) bool { return k.Definition.Alone }))
}

func (w *work) writeTimer(ctx context.Context, id *timerIdentity) error {
	t, tx := id.now, w.tx
	if t.State == task.TimerDeleted && t.Version < 0 && !id.alone() && !w.oneOfMany { // nothing to remember, but a run that must be alone
		gone, err := tx.ExecContext(ctx, "DELETE FROM timers WHERE ident = ? AND running = 0", id.key[:])
		if err != nil {
			return err
		}
		if n, err := gone.RowsAffected(); err != nil || n > 0 || id.before == nil {
			return err
		}
	}
	definition, err := tables.EncodeDefinition(t)
	if err != nil {
		return err
	}
	if id.before == nil {
		return insertTimer(ctx, tx, t, id.key, definition)
	}
	_, err = tx.ExecContext(ctx, "UPDATE timers SET slot = ?, next = ?, open = ?, placed = ?, state = ?, seq = ?, version = ?, created = ?, topic = ?, id = ?, definition = ?, body = ? WHERE ident = ?",
		timerValues(t, id.key, definition)...)
	return err
}

func insertTimer(ctx context.Context, tx *sql.Tx, t *task.Timer, key [16]byte, definition []byte) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO timers ("+tables.TimerColumns+", ident) VALUES ("+tables.Marks(13)+")", timerValues(t, key, definition)...)
	return err
}

func timerValues(t *task.Timer, key [16]byte, definition []byte) []any {
	return []any{t.Slot, t.Next, t.Open, t.Placed, int(t.State), t.Seq, t.Version, t.Created, []byte(t.Topic), []byte(t.ID), definition, tables.NonNil(t.Body), key[:]}
}
