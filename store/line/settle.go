package line

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Transition moves one task out of its place. Its owner has claimed the task, or has set it aside
// for a retry while Kafka had not answered. With a State in the line, the task goes to a later
// place: Pos, or right behind claimed. StateLine: an unsent task keeps its state. With any other
// State, the task has ended, with a dead letter if Dead is set. A task that has left its place
// already is not changed.
type Transition struct {
	Seq     int64
	Slot    int
	Epoch   int64
	From    int64 // the place at which it was claimed; 0: wherever it stands
	State   task.State
	Pos     int64
	Attempt int
	Idle    bool      // of a retry: see task.Task
	Snoozed int       // set where a report decides
	Failure task.Note // of the attempt that a retry follows; At 0: the settlement's instant
	Lane    task.Lane
	Dead    *task.DeadLetter
	// MaybeSent: an earlier owner may have sent the task that becomes a dead letter. A timer's run
	// then counts one attempt at least, also after a purge of the letter: see task.WasDropped.
	MaybeSent bool
	// Recall brings forward a put off task beyond claimed: to Pos, or right behind claimed. The
	// state stays. A task is not touched if it is gone, or has changed, or stands at another place
	// than a set From, or where its split slot may have tasks of another slot.
	Recall bool
	Events []schemas.Event // told only if the task still stands as its owner knows it
	// EndsWait: no report came in time. If one is there all the same, it decides instead.
	EndsWait bool
}

func (e Transition) inLine() bool { return e.State <= task.StateReport }

// Applies tells whether the task still stands at the owner's known place. When a settlement is
// repeated, the task may have left, and callers and consumers may have changed it since.
func (e Transition) Applies(row task.Task, s handle.Slot) bool {
	switch {
	case row.Slot != e.Slot, row.Pos <= s.Done:
		return false
	case e.Recall:
		return row.Pos > s.Claimed && s.InPlace(row.Pos) && row.Pos > e.Pos && (e.From == 0 || row.Pos == e.From) && row.State <= task.StateRetry && row.Attempt == e.Attempt
	case row.Pos <= s.Claimed:
		if e.From == 0 { // a late answer; another owner may have gone on with the task meanwhile
			return row.Attempt <= e.Attempt
		}
		return row.Pos == e.From // at another place it has left already, and was claimed again
	}
	return row.State == task.StateRetry && (row.Attempt < e.Attempt || row.Attempt == e.Attempt && !e.inLine())
}

// Settled is what Settle found.
type Settled struct {
	Fenced   []int // slots that have another owner: nothing was written for them, nor for any other
	Mismatch []int // slots whose range holds other tasks than were settled, or is not theirs: their done stays
	// Stands is where done stands in slots in which an earlier settlement, with a lost reply, has
	// moved it beyond From. Settled tasks may be replaced, so count the rest from there.
	Stands map[int]int64
	Events []handle.Box   // the events, to be published and then deleted
	Moved  []handle.Place // where the tasks that stay in the line stand now
	// Reported are transitions of tasks with earlier reports, by seq, as changed by the reports.
	Reported map[int64]Transition
	// Ignored are transitions of tasks with which others have gone on: nothing was changed or told.
	Ignored []int64
}

// Settle makes outcomes durable in one transaction: the tasks that leave their place, their events,
// and the done offsets of their slots. Only the done offsets make other writers of tasks wait. It
// may be repeated after an error with an unknown outcome.
//
// now tells the time in Unix ms, once the rows are locked, as in Apply.
func (l Line) Settle(ctx context.Context, done []Done, transitions []Transition, now func() int64) (Settled, error) {
	var out Settled
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		out = Settled{}
		there, err := stillThere(ctx, tx, transitions)
		if err != nil {
			return err
		}
		rows, err := l.lockTransitions(ctx, tx, there)
		if err != nil {
			return err
		}
		set, epochs := handle.SlotSet{}, map[int]int64{}
		for _, d := range done {
			set.Add(d.Slot)
			epochs[d.Slot] = d.Epoch
		}
		for _, e := range transitions {
			set.Add(e.Slot)
			epochs[e.Slot] = e.Epoch
		}
		clause := handle.LockShared // nobody may move claimed meanwhile
		if len(done) > 0 {
			clause = handle.LockExclusive
		}
		slots, err := l.h.LockSlotsThere(ctx, tx, set, clause) // one that the database has forgotten is held by nobody
		if err != nil {
			return err
		}
		for slot, epoch := range epochs {
			if !l.h.Conditions.HeldUnder(slots[slot], epoch) {
				out.Fenced = append(out.Fenced, slot)
			}
		}
		if len(out.Fenced) > 0 {
			return handle.ErrFenced
		}
		reports, err := l.reports(ctx, tx, transitions, rows, slots, now)
		if err != nil {
			return err
		}
		out.Reported = reports.Changed
		told, err := l.writeTransitions(ctx, tx, reports.Transitions, rows, slots, now(), &out)
		if err != nil {
			return err
		}
		told = append(told, reports.Events...)
		if out.Mismatch, out.Stands, err = moveDone(ctx, tx, done, slots); err != nil || len(told) == 0 {
			return err
		}
		out.Events = handle.EventBoxes(told, now())
		for _, box := range out.Events {
			if err := box.Store(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && len(out.Fenced) == 0 {
		return Settled{}, fmt.Errorf("settling %d slots, %d transitions: %w", len(done), len(transitions), err)
	}
	return out, nil
}

// Row is a task as a settlement reads it: its place and names.
type Row struct {
	task.Task
	Ident [16]byte
}

// stillThere leaves out tasks to wait for reports that have left the places at which they were
// claimed: most have, where consumers report at once (see task.SentOnce). Nothing comes to a
// claimed place. So a look at the index tells, and costs a fraction of locking each row.
func stillThere(ctx context.Context, tx *sql.Tx, transitions []Transition) ([]Transition, error) {
	places, n := map[int]Range{}, 0
	for _, e := range transitions {
		if e.beginsWait() {
			r, known := places[e.Slot]
			if !known {
				r = Range{Slot: e.Slot, From: e.From - 1, To: e.From}
			}
			places[e.Slot], n = Range{e.Slot, min(r.From, e.From-1), max(r.To, e.From)}, n+1
		}
	}
	if n == 0 {
		return transitions, nil
	}
	there, most := make(map[int64]bool, n), 4*n // others that are in flight may stand between them
	for part := range slices.Chunk(slices.Collect(maps.Values(places)), tables.MaxRanges) {
		where, a := rangesWhere(part)
		seqs, err := tables.Fetch(ctx, tx, func(r *sql.Rows, seq *int64) error { return r.Scan(seq) }, "SELECT seq FROM tasks WHERE "+where+" LIMIT ?", append(a, most)...)
		if err != nil {
			return nil, fmt.Errorf("looking for tasks that are still to wait for reports: %w", err)
		}
		if len(seqs) == most {
			return transitions, nil
		}
		for _, seq := range seqs {
			there[seq] = true
		}
	}
	out := make([]Transition, 0, len(transitions))
	for _, e := range transitions {
		if !e.beginsWait() || there[e.Seq] {
			out = append(out, e)
		}
	}
	return out, nil
}

// beginsWait: the task was sent from where it was claimed, and is to wait for a report.
func (e Transition) beginsWait() bool {
	return e.State == task.StateReport && e.From != 0 && !e.Recall && !e.EndsWait
}

// lockTransitions locks the rows before the slots, as all writers do, against deadlocks.
func (l Line) lockTransitions(ctx context.Context, tx *sql.Tx, transitions []Transition) (map[int64]Row, error) {
	list, err := tables.FetchIn(ctx, tx, func(r *sql.Rows, t *Row) error {
		var key, failures []byte
		err := r.Scan(&t.Seq, &key, &t.Slot, &t.Pos, &t.State, &t.Attempt, &t.Idle, &t.Snoozed, &failures)
		t.Failures = task.DecodeNotes(failures)
		copy(t.Ident[:], key)
		return err
	}, "SELECT seq, ident, slot, pos, state, attempt, idle = pos, snoozed, failures FROM tasks WHERE seq", seqsOf(transitions), " ORDER BY seq"+l.h.Locking(handle.LockExclusive))
	rows := make(map[int64]Row, len(list))
	for _, t := range list {
		rows[t.Seq] = t
	}
	return rows, err
}

func seqsOf(transitions []Transition) []any {
	out := make([]any, len(transitions))
	for i, e := range transitions {
		out[i] = e.Seq
	}
	return out
}

// writeTransitions writes the transitions of tasks in known places, and returns their events.
func (l Line) writeTransitions(ctx context.Context, tx *sql.Tx, transitions []Transition, rows map[int64]Row, slots map[int]handle.Slot, now int64, out *Settled) (told []schemas.Event, err error) {
	var dead []*task.DeadLetter
	waits := handle.Waits{}
	leaving := map[transitionGroup][]Transition{}
	for _, e := range transitions {
		row, claimed := rows[e.Seq].Task, slots[e.Slot].Claimed
		if !e.Applies(row, slots[e.Slot]) {
			if repeated := row.Slot == task.OutOfLine && row.State == e.State; !repeated {
				out.Ignored = append(out.Ignored, e.Seq)
			}
			if row.Slot == e.Slot && row.Pos > claimed {
				out.Moved = append(out.Moved, handle.NewPlace(row.Slot, row.Pos, row.Seq, row.Pos))
			}
			continue
		}
		told = append(told, e.Events...)
		if e.inLine() {
			if e.State == task.StateLine {
				e.State, e.Attempt, e.Idle = row.State, row.Attempt, row.Idle
			}
			var failures []task.Note
			if e.Failure.Number > 0 {
				e.Failure.At = cmp.Or(e.Failure.At, now)
				failures = task.Failed(row.Failures, e.Failure)
			}
			waits.Add(e.Seq, e.Idle, max(e.Snoozed, row.Snoozed), failures)
			e.Attempt = max(e.Attempt, row.Attempt) // another owner may have made the latest
			e.Pos = max(e.Pos, claimed+1)
			out.Moved = append(out.Moved, handle.NewPlace(e.Slot, e.Pos, e.Seq, e.Pos))
		} else {
			e.Pos = now
			if e.Snoozed > row.Snoozed {
				waits.Add(e.Seq, false, e.Snoozed, nil)
			}
			if e.MaybeSent && task.IsRun(e.Seq) {
				e.Attempt = max(e.Attempt, 1)
			}
		}
		if e.Dead != nil {
			dead = append(dead, e.Dead)
		}
		alike := transitionGroup{e.inLine(), e.State, e.Lane.Class(), e.Attempt}
		leaving[alike] = append(leaving[alike], e)
	}
	for alike, transitions := range leaving {
		for part := range slices.Chunk(transitions, alike.rows()) {
			if err := alike.write(ctx, tx, part); err != nil {
				return nil, fmt.Errorf("moving %d tasks out of their place: %w", len(part), err)
			}
		}
	}
	if err := waits.Store(ctx, tx); err != nil {
		return nil, err
	}
	return told, l.h.InsertDead(ctx, tx, dead)
}

// transitionGroup is the common part of transitions written together; targets and places differ.
type transitionGroup struct {
	inLine  bool
	state   task.State
	class   task.Class
	attempt int
}

// rows is how many of the transitions one statement writes. All that end have the same place.
func (d transitionGroup) rows() int {
	if d.inLine {
		return tables.MaxCases
	}
	return tables.MaxRows
}

func (d transitionGroup) write(ctx context.Context, tx *sql.Tx, transitions []Transition) error {
	a := []any{int(d.state), int(d.class), d.attempt}
	var place string
	if d.inLine {
		place = "pos = CASE seq" + strings.Repeat(" WHEN ? THEN ?", len(transitions)) + " END"
		for _, e := range transitions {
			a = append(a, e.Seq, e.Pos)
		}
	} else {
		place = "pos = ?, slot = ?"
		a = append(a, transitions[0].Pos, task.OutOfLine)
	}
	_, err := tx.ExecContext(ctx, "UPDATE tasks SET state = ?, lane = lane - lane % 256 + ?, attempt = ?, "+place+" WHERE seq IN ("+tables.Marks(len(transitions))+")", append(a, seqsOf(transitions)...)...)
	return err
}
