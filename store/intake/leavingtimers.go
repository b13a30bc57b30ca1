package intake

import (
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
// many left. One whose runs must be alone stays while one is in flight: nobody knows which may
// start next.
func (in Moves) TakeOutTimers(ctx context.Context, f Following, arrived int64, keys [][16]byte) (int, error) {
	n, err := leaveIn(ctx, in, f, arrived, keys, (*leaving).takeOutTimer)
	return n, wrap.Err(err, "having timers leave")
}

func (l *leaving) takeOutTimer(ctx context.Context, key [16]byte) (int, error) {
	timers, err := tables.Fetch(ctx, l.tx, scanLeftTimer, "SELECT "+tables.TimerColumns+", running, definition FROM timers WHERE ident = ?"+l.h.Locking(handle.LockExclusive), key[:])
	if err != nil || len(timers) == 0 {
		return 0, err
	}
	t := &timers[0]
	if n, err := l.takeOutRuns(ctx, t); err != nil || n > 0 { // the timer leaves next time
		return 0, err
	}
	runs, err := l.runsOf(ctx, l.tx, t, l.now)
	if err != nil {
		return 0, err
	}
	of, err := l.stand(ctx, runs)
	if err != nil || of.unsure {
		return 0, err
	}
	t.Elsewhere = slices.DeleteFunc(t.Elsewhere, func(run int64) bool { return run <= l.now })
	for _, r := range of.inFlight {
		if run, coming := comes(r, l.now); coming {
			t.Elsewhere = append(t.Elsewhere, run)
		}
	}
	if len(t.Elsewhere) > task.MostElsewhere { // some are claimed ahead: it stays for a moment
		return 0, nil
	}
	if slices.ContainsFunc(of.inFlight, func(r task.Task) bool { return mustBeAlone(&r, key) }) {
		return 0, nil
	}
	if stays, err := l.aloneInFlight(ctx, l.tx, t, key, runs); err != nil || stays && !l.f.Nowhere {
		return 0, err
	}
	if _, err := l.tx.ExecContext(ctx, "DELETE FROM timers WHERE ident = ?", key[:]); err != nil {
		return 0, err
	}
	// They arrive no later than the timer: one that is set again does not make them again either.
	l.ended(of.out, slices.DeleteFunc(of.sent, func(r task.Task) bool {
		_, coming := comes(r, l.now)
		return !coming
	}))
	t.Moved = l.now
	out, with := leaver{Timer: t}, int64(0)
	if t.State != task.TimerDeleted {
		with = t.Moved
	}
	if i := slices.IndexFunc(of.atRest, func(r task.Task) bool { return r.Seq == t.Running }); i >= 0 {
		run := of.atRest[i]
		out.Task, of.atRest = &run, slices.Delete(of.atRest, i, i+1)
	}
	l.left = append(l.left, out)
	slices.SortFunc(of.atRest, nearest)
	for i := range of.atRest {
		l.left = append(l.left, leaver{Task: &of.atRest[i], With: with})
	}
	return 1, l.write(ctx)
}

// takeOutRuns takes a piece of a timer's runs out of the line, where they are too many for one
// transaction, and returns how many left. Runs that must be alone leave with their timer.
func (l *leaving) takeOutRuns(ctx context.Context, t *leftTimer) (int, error) {
	pending, err := t.Pending()
	piece := max(1, min(followRows, followBytes/max(len(t.Body), 1)))
	if err != nil || len(pending) <= piece {
		return 0, nil //nolint:nilerr // set by a newer version: nobody takes its runs away either
	}
	seqs, err := tables.FetchIn(ctx, l.tx, func(r *sql.Rows, seq *int64) error { return r.Scan(seq) }, "SELECT seq FROM tasks WHERE ident", tables.Idents(pending, t.RunIdent), "")
	for part := range slices.Chunk(seqs, piece) {
		n := 0
		if n, err = l.takeOut(ctx, part); err != nil || n > 0 {
			return n, err
		}
	}
	return 0, wrap.Err(err, "reading the runs of a timer")
}

// comes returns the instant of a run, and whether it is still to come: the run was fired, or is
// claimed ahead. A timer that is set again makes such runs.
func comes(r task.Task, now int64) (run int64, coming bool) {
	_, run, ok := timer.SplitRunID(r.ID)
	return run, ok && run > now
}

// cancelsAhead is for how many runs that are not made yet a cancel follows.
const cancelsAhead = 100

// runsOf reads and locks the runs of a timer that may be unfinished, and what is known of those
// that it may make, or make again.
func (in Moves) runsOf(ctx context.Context, tx *sql.Tx, t *leftTimer, now int64) ([]task.Task, error) {
	pending, err := t.Pending()
	if err != nil { // it was set by a newer version: nobody takes its runs away either
		pending = nil
	}
	if s, err := timer.Parse(t.Definition); err == nil {
		if t.State == task.TimerEnabled {
			now = min(now, t.Next)
		}
		run, ok := s.Next(now - 1)
		for n := 0; ok && n < cancelsAhead; run, ok = s.Next(run) {
			if pending = append(pending, run); t.State != task.TimerEnabled || run >= t.Next {
				n++
			}
		}
	}
	slices.Sort(pending)
	keys := tables.Idents(slices.Compact(pending), t.RunIdent)
	slices.SortFunc(keys, compareKeys)
	scan := func(r *sql.Rows, t *task.Task) error { return tables.ScanTaskNotes(r, t) }
	const columns = "SELECT " + tables.TaskColumns + tables.TaskNotes + " FROM tasks t WHERE t."
	rows, err := tables.FetchIn(ctx, tx, scan, columns+"ident", keys, noContentOfALetter+in.h.Locking(handle.LockExclusive))
	if err == nil && t.Running != 0 && !slices.ContainsFunc(rows, func(r task.Task) bool { return r.Seq == t.Running }) {
		var one []task.Task
		one, err = tables.Fetch(ctx, tx, scan, columns+"seq = ?"+noContentOfALetter+in.h.Locking(handle.LockExclusive), t.Running)
		rows = append(rows, one...)
	}
	// A caller's own task of a run's id leaves by itself.
	return slices.DeleteFunc(rows, func(r task.Task) bool { return !task.IsRun(r.Seq) && r.Slot != task.OutOfLine }), wrap.Err(err, "reading the runs of a timer")
}

// aloneInFlight tells whether a run of the timer that must be alone is in flight. The slots of runs
// are locked.
func (in Moves) aloneInFlight(ctx context.Context, tx *sql.Tx, t *leftTimer, key [16]byte, runs []task.Task) (bool, error) {
	set := handle.SlotSet{}
	for _, r := range runs {
		set.Add(r.Slot)
	}
	set.Add(t.Slot)
	for _, k := range t.Kept {
		set.Add(k.Slot)
	}
	slots, err := in.h.LockSlotsThere(ctx, tx, set, handle.LockShared)
	for slot, s := range slots {
		if err != nil || s.Claimed <= s.Done {
			continue
		}
		var claimed []task.Task
		claimed, err = tables.Fetch(ctx, tx, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks WHERE slot = ? AND pos > ? AND pos <= ? AND topic = ?", slot, s.Done, s.Claimed, []byte(t.Topic))
		if slices.ContainsFunc(claimed, func(r task.Task) bool { return mustBeAlone(&r, key) }) {
			return true, nil
		}
	}
	return false, wrap.Err(err, "looking for runs in flight")
}

// timersOf returns the identities of those timers of tasks that are there, and whether they were
// deleted.
func (in Moves) timersOf(ctx context.Context, tx *sql.Tx, rows []task.Task) (map[[16]byte]bool, error) {
	var timers [][16]byte
	for _, t := range rows {
		if task.IsRun(t.Seq) && t.Replay == 0 {
			timers = append(timers, task.TimerOf(t.Topic, t.ID))
		}
	}
	keys := tables.Idents(timers, func(key [16]byte) [16]byte { return key })
	slices.SortFunc(keys, compareKeys)
	type row struct {
		key     []byte
		deleted bool
	}
	found, err := tables.FetchIn(ctx, tx, func(r *sql.Rows, v *row) error { return r.Scan(&v.key, &v.deleted) }, fmt.Sprintf("SELECT ident, state = %d FROM timers WHERE ident", task.TimerDeleted), keys, "")
	out := map[[16]byte]bool{}
	for _, v := range found {
		out[[16]byte(v.key)] = v.deleted
	}
	return out, wrap.Err(err, "reading the timers of runs")
}

// mustBeAlone tells whether a task is a run of a timer that must be alone.
func mustBeAlone(r *task.Task, key [16]byte) bool {
	if !task.IsRun(r.Seq) || r.Replay > 0 || task.TimerOf(r.Topic, r.ID) != key {
		return false
	}
	body, err := schemas.DecodeBody(r.Body)
	return err == nil && body.Settings.Run.Alone
}

// lockTimers locks timers that are here already, also those of runs.
func (w arrival) lockTimers(ctx context.Context, timers []*leftTimer, tasks []*task.Task) (here map[[16]byte]*task.Timer, err error) {
	keys := tables.Idents(timers, func(t *leftTimer) [16]byte { return task.Ident(t.Topic, t.ID) })
	for _, t := range tasks {
		if task.IsRun(t.Seq) {
			key := task.TimerOf(t.Topic, t.ID)
			keys = append(keys, key[:])
		}
	}
	slices.SortFunc(keys, compareKeys)
	found, err := tables.FetchIn(ctx, w.tx, tables.ScanTimer, "SELECT "+tables.TimerColumns+" FROM timers WHERE ident", slices.CompactFunc(keys, func(a, b any) bool { return compareKeys(a, b) == 0 }), w.intake.h.Locking(handle.LockExclusive))
	if err != nil {
		return nil, fmt.Errorf("looking for timers that follow: %w", err)
	}
	here = map[[16]byte]*task.Timer{}
	for i := range found {
		here[task.Ident(found[i].Topic, found[i].ID)] = &found[i]
	}
	return here, nil
}

// lackingTimers prepares those that are not here for their slots. From then on they are.
func (w arrival) lackingTimers(timers []*leftTimer, here map[[16]byte]*task.Timer) (lacking []*leftTimer) {
	for _, t := range timers {
		key := task.Ident(t.Topic, t.ID)
		if here[key] != nil { // this is the later one: the former home was set back
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
		here[key], lacking = &t.Timer, append(lacking, t)
		w.timers.list = append(w.timers.list, &timerIdentity{key: key, now: &t.Timer})
	}
	return lacking
}

// withTimers leaves out the runs of timers that were set back in the former home: a later one is
// here, and has not made them, or was deleted. Runs whose timer was deleted before are tasks as
// others.
func withTimers(all []leaver, here map[[16]byte]*task.Timer) (tasks []*task.Task) {
	for _, l := range all {
		t, run := here[task.TimerOf(l.Task.Topic, l.Task.ID)], l.Task
		switch {
		case t == nil || !task.IsRun(run.Seq) || run.Replay > 0 || run.State != task.StateLine:
		case l.With != 0 && l.With != t.Moved && !t.HasMade(task.RunInstant(run.ID)):
			continue
		}
		tasks = append(tasks, run)
	}
	return tasks
}

// insertTimers stores timers in their slots.
func (w arrival) insertTimers(ctx context.Context, timers []*leftTimer) error {
	for i, t := range timers {
		if t.State != task.TimerDeleted {
			t.Placed = w.slots[t.Slot].Claimed + 1
		}
		definition := t.Stored
		if t.State == task.TimerDeleted || t.Definition != (timer.Definition{}) { // it can be read
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

// reopen has timers know again of runs that were not in the line for a while, or elsewhere.
func (w arrival) reopen(ctx context.Context, runs []*task.Task, timers map[[16]byte]*task.Timer) error {
	for _, t := range runs {
		_, run, ok := timer.SplitRunID(t.ID)
		if !ok || !task.IsRun(t.Seq) || t.Replay > 0 {
			continue
		}
		key := task.TimerOf(t.Topic, t.ID)
		if of := timers[key]; of != nil && of.IsElsewhere(t) {
			of.NotElsewhere(t)
			if err := tables.WriteDefinition(ctx, w.tx, of); err != nil {
				return err
			}
		}
		if t.State != task.StateLine {
			continue
		}
		for column, set := range map[string]struct {
			beyond string
			to     int64
		}{"open": {">", run}, "placed": {"<", t.Pos}} {
			if _, err := w.tx.ExecContext(ctx, "UPDATE timers SET "+column+" = ? WHERE ident = ? AND state = ? AND "+column+" "+set.beyond+" ?", set.to, key[:], int(task.TimerEnabled), set.to); err != nil {
				return fmt.Errorf("noting that a run is in the line again: %w", err)
			}
		}
	}
	return nil
}
