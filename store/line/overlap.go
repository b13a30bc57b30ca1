package line

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// Start is a due run of a timer that must be alone or is missed.
type Start struct {
	handle.SlotEpoch
	Seq    int64
	Topic  string
	Timer  string // id
	Run    int64  // when it lies, Unix ms
	Alone  bool   // not while another is unfinished
	Missed bool   // dropped if a later one is on its way
	Skip   bool   // dropped when missed, whatever else is on its way; of a timer that is forgotten
}

// Refusal is why a run is dropped.
type Refusal uint8

const (
	RunOverlaps Refusal = iota + 1 // an earlier one is unfinished
	RunMissed                      // it is missed, and a later one is sent or on its way
)

// StartRuns decides which of the runs, in the order of due, may be released, and returns the others
// by seq. ErrFenced: a slot has another owner, and nothing was decided. Repeating the call after a
// lost reply is harmless.
//
// A timer's row remembers one run that is released, whatever comes: the latest that had to be
// alone, or the stand-in for runs dropped as missed. So every dropped run has a later one that is
// delivered, however long the target's backlog is, and whoever owns the slot by then. Only a caller
// can cancel the later one. A remembered run keeps its place until its delivery. Meanwhile later
// missed runs are dropped for their latest, which nothing remembers: a run is released when no
// later one is on its way.
//
// A started run is unfinished until its task has ended, also after the timer was deleted, or
// deleted and set again. Once a deleted timer is forgotten, its runs may be released.
func (l Line) StartRuns(ctx context.Context, starts []Start, now int64, tolerance time.Duration) (refused map[int64]Refusal, err error) {
	err = l.h.Transact(ctx, func(tx *sql.Tx) error {
		refused = map[int64]Refusal{}
		return tables.Chunks(starts, func(part []Start) error {
			d := starting{h: l.h, tx: tx, now: now, tolerance: tolerance, refused: refused}
			return d.decide(ctx, part)
		})
	})
	return refused, wrap.Err(err, "starting %d runs", len(starts))
}

type starting struct {
	h         *handle.Handle
	tx        *sql.Tx
	now       int64
	tolerance time.Duration
	timers    map[[16]byte]*startingTimer
	runs      map[int64]runTask // those that the timers remember, by seq
	refused   map[int64]Refusal
}

type startingTimer struct {
	task.Timer       // its topic, id, state, next and definition
	running    int64 // the seq of the run that it remembers
	missed     bool  // its gaps have changed
}

// runTask is how far the task of a run is.
type runTask struct {
	seq        int64
	id         string
	unfinished bool // it is pending, with its owner, or waits for a report or a retry
	sent       bool // it has ended, delivered
}

// laterThan: it is a later run of the same timer, delivered or on its way.
func (t runTask) laterThan(r Start) bool {
	id, run, ok := timer.SplitRunID(t.id)
	return (t.unfinished || t.sent) && ok && id == r.Timer && run > r.Run
}

func (d *starting) decide(ctx context.Context, starts []Start) error {
	if err := d.read(ctx, starts); err != nil {
		return err
	}
	for i, r := range starts {
		why, note, err := d.of(ctx, r, starts[i+1:])
		if err != nil {
			return err
		}
		if why != 0 {
			d.refused[r.Seq] = why
			d.missed(r, why)
		}
		if note.seq == 0 {
			continue
		}
		t, key := d.timer(r), task.Ident(r.Topic, r.Timer)
		if t == nil {
			continue
		}
		if _, err := d.tx.ExecContext(ctx, "UPDATE timers SET running = ? WHERE ident = ?", note.seq, key[:]); err != nil {
			return fmt.Errorf("starting a run: %w", err)
		}
		t.running, d.runs[note.seq] = note.seq, note
	}
	for _, t := range d.timers {
		if t.missed {
			if err := tables.WriteDefinition(ctx, d.tx, &t.Timer); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *starting) timer(r Start) *startingTimer {
	if t := d.timers[task.Ident(r.Topic, r.Timer)]; t != nil && t.Topic == r.Topic && t.ID == r.Timer {
		return t
	}
	return nil
}

// missed has the timer remember that a run was dropped, and why.
func (d *starting) missed(r Start, why Refusal) {
	t := d.timer(r)
	if t == nil || t.State == task.TimerDeleted {
		return
	}
	s, err := timer.Parse(t.Definition)
	if err != nil {
		return // it was set by a newer version
	}
	reason := task.WhyOverlap
	if why == RunMissed {
		reason = task.WhyMisfire
	}
	t.Miss(s, r.Run, r.Run+1, reason)
	t.missed = true
}

// read locks the timers and their slots, and reads the remembered runs.
func (d *starting) read(ctx context.Context, starts []Start) error {
	var keys []any
	set := handle.SlotSet{}
	for _, r := range starts {
		key := task.Ident(r.Topic, r.Timer)
		keys = append(keys, key[:])
		set.Add(r.Slot)
	}
	slices.SortFunc(keys, func(a, b any) int { return slices.Compare(a.([]byte), b.([]byte)) })
	rows, err := tables.Fetch(ctx, d.tx, scanStarting, "SELECT topic, id, state, next, definition, running FROM timers WHERE ident IN ("+tables.Marks(len(keys))+")"+d.h.Locking(handle.LockExclusive), keys...)
	if err != nil {
		return fmt.Errorf("reading timers: %w", err)
	}
	d.timers = map[[16]byte]*startingTimer{}
	var seqs []any
	for i := range rows {
		d.timers[task.Ident(rows[i].Topic, rows[i].ID)] = &rows[i]
		seqs = append(seqs, rows[i].running)
	}
	slots, err := d.h.LockSlots(ctx, d.tx, set, handle.LockShared) // nobody takes them over meanwhile
	if err != nil {
		return err
	}
	for _, r := range starts {
		if !d.h.Conditions.HeldUnder(slots[r.Slot], r.Epoch) {
			return handle.ErrFenced
		}
	}
	running, err := d.tasks(ctx, "seq", seqs)
	d.runs = map[int64]runTask{}
	for _, t := range running {
		d.runs[t.seq] = t
	}
	return err
}

func scanStarting(r *sql.Rows, t *startingTimer) error {
	var definition []byte
	var stored tables.StoredDefinition
	err := r.Scan(&t.Topic, &t.ID, &t.State, &t.Next, &definition, &t.running)
	if err == nil && json.Unmarshal(definition, &stored) == nil {
		t.Definition, t.Kept, t.Gaps, t.Moved, t.Elsewhere = stored.Definition, stored.Kept, stored.Gaps, stored.Moved, stored.Elsewhere
	}
	return err
}

// of decides about one run: why it is dropped, and which run the timer is to remember from now on.
func (d *starting) of(ctx context.Context, r Start, behind []Start) (why Refusal, note runTask, err error) {
	t := d.timer(r)
	if t == nil {
		if r.Missed && r.Skip {
			why = RunMissed
		}
		return why, note, nil
	}
	before := d.runs[t.running]
	switch {
	case r.Missed && t.skips(r): // also where it was started, and the answer that said so came too late
		return RunMissed, note, nil
	case t.running == r.Seq:
		return 0, note, nil
	case r.Missed && before.laterThan(r):
		return RunMissed, note, nil
	case before.unfinished && r.Alone:
		return RunOverlaps, note, nil
	}
	if r.Missed {
		if later, found, err := d.standIn(ctx, t, r, behind); err != nil || found {
			if !later.unfinished || before.unfinished { // earlier runs were dropped for that one: it keeps its place
				later.seq = 0
			}
			return RunMissed, later, err
		}
	}
	if before.unfinished {
		return 0, note, nil
	}
	return 0, runTask{seq: r.Seq, id: timer.RunID(r.Timer, r.Run), unfinished: true}, nil
}

func (t *startingTimer) skips(r Start) bool {
	if t.Definition == (timer.Definition{}) {
		return r.Skip
	}
	return t.Definition.Misfire == timer.MisfireSkip
}

// standIn looks for a later run, delivered or on its way. found, without one: the timer has still
// to make the run. A disabled, deleted or replaced timer does not tell its made runs: other missed
// ones are in behind.
func (d *starting) standIn(ctx context.Context, t *startingTimer, r Start, behind []Start) (later runTask, found bool, err error) {
	runs, coming := t.StandIns(r.Run, d.now, d.tolerance)
	if coming {
		return runTask{}, true, nil
	}
	tasks, err := d.tasks(ctx, "ident", tables.Idents(runs, t.RunIdent))
	for _, run := range runs {
		for _, one := range tasks {
			if task.IsRun(one.seq) && one.id == timer.RunID(t.ID, run) && (one.unfinished || one.sent) {
				return one, true, nil
			}
		}
	}
	for _, one := range slices.Backward(behind) { // nobody can cancel them any more
		if t.Definition.Misfire != timer.MisfireAll && one.Missed && one.Timer == r.Timer && one.Topic == r.Topic && one.Run > r.Run {
			return runTask{seq: one.Seq, id: timer.RunID(one.Timer, one.Run), unfinished: true}, true, err
		}
	}
	return runTask{}, false, err
}

// tasks reads how far the tasks of runs are.
func (d *starting) tasks(ctx context.Context, column string, keys []any) ([]runTask, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	rows, err := tables.Fetch(ctx, d.tx, func(r *sql.Rows, t *runTask) error {
		var state task.State
		var ahead sql.NullInt64 // of what its slot's owner has settled; NULL: it is out of the line
		err := r.Scan(&t.seq, &t.id, &state, &ahead)
		t.unfinished = ahead.Valid && ahead.Int64 > 0
		t.sent = ahead.Valid && ahead.Int64 <= 0 || state == task.StateSucceeded || state.Stopped()
		return err
	}, "SELECT t.seq, t.id, t.state, t.pos - s.done FROM tasks t LEFT JOIN slots s ON s.slot = t.slot WHERE t."+column+" IN ("+tables.Marks(len(keys))+")", keys...)
	return rows, wrap.Err(err, "reading runs")
}
