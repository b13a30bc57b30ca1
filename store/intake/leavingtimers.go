package intake

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// leftTimer is a row of table timers.
type leftTimer struct {
	task.Timer
	Running int64
	Stored  []byte // the definition, also one that this version cannot read
}

func scanLeftTimer(r *sql.Rows, t *leftTimer) error {
	return tables.ScanTimerAnd(r, &t.Timer, &t.Running, &t.Stored)
}

// TakeOutTimers has timers leave, each with its runs at rest in one transaction, and returns how
// many left. One whose runs must be alone stays while one is in flight: nobody knows which may start
// next.
func (in Moves) TakeOutTimers(ctx context.Context, f Following, arrived int64, keys [][16]byte) (n int, err error) {
	for _, key := range keys {
		out := 0
		err := in.h.Transact(ctx, func(tx *sql.Tx) (err error) {
			out, err = in.takeOutTimer(ctx, tx, f, arrived, key)
			return err
		})
		if n += out; err != nil {
			return n, fmt.Errorf("having a timer leave: %w", err)
		}
	}
	return n, nil
}

func (in Moves) takeOutTimer(ctx context.Context, tx *sql.Tx, f Following, arrived int64, key [16]byte) (int, error) {
	l, err := in.leaving(ctx, tx, f, arrived)
	if err != nil {
		return 0, err
	}
	timers, err := tables.Fetch(ctx, tx, scanLeftTimer, "SELECT "+tables.TimerColumns+", running, definition FROM timers WHERE ident = ?"+in.h.Locking(handle.LockExclusive), key[:])
	if err != nil || len(timers) == 0 {
		return 0, err
	}
	t := &timers[0]
	pending, err := t.Pending()
	if err != nil { // it was set by a newer version: nobody takes its runs away either
		pending = nil
	}
	runs, err := in.runsOf(ctx, tx, t, pending)
	if err != nil {
		return 0, err
	}
	rest, inFlight, unsure, err := in.atRest(ctx, tx, runs)
	if err != nil || unsure || inFlight && (t.Definition.Alone || t.Running != 0) {
		return 0, err
	}
	behind := func(run task.Task) int { // the one that others wait for
		if run.Seq == t.Running {
			return 0
		}
		return 1
	}
	slices.SortFunc(rest, func(a, b task.Task) int { return cmp.Or(cmp.Compare(behind(a), behind(b)), nearest(a, b)) })
	if _, err := tx.ExecContext(ctx, "DELETE FROM timers WHERE ident = ?", key[:]); err != nil {
		return 0, err
	}
	l.left = append(l.left, leaver{Timer: t})
	return 1, l.write(ctx, rest)
}

// runsOf reads and locks the runs of a timer that may be unfinished.
func (in Moves) runsOf(ctx context.Context, tx *sql.Tx, t *leftTimer, pending []int64) ([]task.Task, error) {
	keys := tables.Idents(pending, t.RunIdent)
	slices.SortFunc(keys, compareKeys)
	scan := func(r *sql.Rows, t *task.Task) error { return tables.ScanTaskNotes(r, t) }
	const columns = "SELECT " + tables.TaskColumns + tables.TaskNotes + " FROM tasks WHERE "
	rows, err := tables.FetchIn(ctx, tx, scan, columns+"ident", keys, in.h.Locking(handle.LockExclusive))
	if err == nil && t.Running != 0 && !slices.ContainsFunc(rows, func(r task.Task) bool { return r.Seq == t.Running }) {
		var one []task.Task
		one, err = tables.Fetch(ctx, tx, scan, columns+"seq = ?"+in.h.Locking(handle.LockExclusive), t.Running)
		rows = append(rows, one...)
	}
	return slices.DeleteFunc(rows, func(r task.Task) bool { return !task.IsRun(r.Seq) }), wrap.Err(err, "reading the runs of a timer")
}

// alone returns the identities of the timers of tasks that are runs which must be alone. Only the
// timer knows which of them may start, so they leave with it.
func (in Moves) alone(ctx context.Context, tx *sql.Tx, rows []task.Task) (there map[[16]byte]bool, err error) {
	var timers [][16]byte
	for i := range rows {
		if key, alone := aloneOf(&rows[i]); alone {
			timers = append(timers, key)
		}
	}
	keys := tables.Idents(timers, func(key [16]byte) [16]byte { return key })
	slices.SortFunc(keys, compareKeys)
	found, err := tables.FetchIn(ctx, tx, func(r *sql.Rows, key *[]byte) error { return r.Scan(key) }, "SELECT ident FROM timers WHERE ident", keys, "")
	there = map[[16]byte]bool{}
	for _, key := range found {
		there[[16]byte(key)] = true
	}
	return there, wrap.Err(err, "reading the timers of runs that must be alone")
}

// aloneOf returns the timer of a run that must be alone.
func aloneOf(t *task.Task) (timer [16]byte, alone bool) {
	if !task.IsRun(t.Seq) || t.Replay > 0 {
		return timer, false
	}
	body, err := schemas.DecodeBody(t.Body)
	return task.TimerOf(t.Topic, t.ID), err == nil && body.Settings.Run.Alone
}

// lockTimers reads which timers are here already, and prepares the others for their slots.
func (w arrival) lockTimers(ctx context.Context, timers []*leftTimer) (lacking []*leftTimer, err error) {
	keys := tables.Idents(timers, func(t *leftTimer) [16]byte { return task.Ident(t.Topic, t.ID) })
	slices.SortFunc(keys, compareKeys)
	found, err := tables.FetchIn(ctx, w.tx, func(r *sql.Rows, key *[]byte) error { return r.Scan(key) }, "SELECT ident FROM timers WHERE ident", keys, w.intake.h.Locking(handle.LockExclusive))
	if err != nil {
		return nil, fmt.Errorf("looking for timers that follow: %w", err)
	}
	here := map[[16]byte]bool{}
	for _, key := range found {
		here[[16]byte(key)] = true
	}
	for _, t := range timers {
		key := task.Ident(t.Topic, t.ID)
		if here[key] { // this is the later one: the former home was set back
			continue
		}
		if t.State != task.TimerDeleted {
			t.Slot = 0
			if of, ok := schemas.BodyKey(t.Body); ok {
				t.Slot = w.spread.Of(t.Topic, of, t.ID)
			}
		}
		for i := range t.Kept {
			t.Kept[i].Slots = 0 // their slots were another database's
		}
		here[key], lacking = true, append(lacking, t)
		w.timers.list = append(w.timers.list, &timerIdentity{key: key, now: &t.Timer})
	}
	return lacking, nil
}

// insertTimers stores timers in their slots.
func (w arrival) insertTimers(ctx context.Context, timers []*leftTimer) error {
	for i, t := range timers {
		if t.State != task.TimerDeleted {
			t.Placed = w.slots[t.Slot].Claimed + 1
		}
		definition := t.Stored
		if t.Definition != (timer.Definition{}) {
			var err error
			if definition, err = tables.EncodeDefinition(&t.Timer); err != nil {
				return err
			}
		}
		key := w.timers.list[i].key
		if err := insertTimer(ctx, w.tx, &t.Timer, key, definition); err != nil {
			return fmt.Errorf("storing a timer that follows its target: %w", err)
		}
		if _, err := w.tx.ExecContext(ctx, "UPDATE timers SET running = ? WHERE ident = ?", t.Running, key[:]); err != nil {
			return err
		}
	}
	return nil
}
