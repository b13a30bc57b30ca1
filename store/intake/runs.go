package intake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Made is what MakeRuns has done.
type Made struct {
	Runs, Dropped int
	Timers        int // looked at: 0 says that nothing is to be made
	Last          int // the slot of the last of them
	Added         []handle.Place
	Events        []handle.Box // of dropped runs, to be published and then deleted
}

// MakeRuns makes the runs up to upTo of timers in the held slots, as tasks, and moves the timers
// on, in one transaction. ErrFenced: a slot has another owner; nothing was made. It makes a page,
// of timers in the order of owned: call it until Timers is 0, each time with the slots behind Last
// first. So a slot with too many runs does not keep the others from theirs. A repeated call makes
// no run twice: their identities are unique, and next has moved with them. skip are timers that
// cannot be read, or whose runs cannot be stored. MakeRuns adds new ones, and sets one to false
// that is to be tried once more.
func (in Intake) MakeRuns(ctx context.Context, owned []handle.SlotEpoch, upTo, now int64, tolerance time.Duration, skip map[[16]byte]bool) (Made, error) {
	if len(owned) == 0 {
		return Made{}, nil
	}
	timers, runs, bytes := in.pace.next()
	keys, last, err := in.dueTimers(ctx, owned, upTo, skip, timers, bytes)
	if err != nil {
		return Made{}, err
	}
	if len(keys) == 0 {
		in.pace.nothingLeft(skip)
		return Made{}, nil
	}
	page := maker{
		work: work{intake: in, insert: in.h.Prepare(ctx, insertQuery(handle.PreparedRows)), now: now}, epochs: make(map[int]int64, len(owned)), skip: skip,
		making: task.Making{Now: now, UpTo: upTo, Tolerance: tolerance, Room: runs, Bytes: bytes},
	}
	for _, h := range owned {
		page.epochs[h.Slot] = h.Epoch
	}
	for {
		made, err := in.makePage(ctx, page, keys)
		switch {
		case err == nil:
			in.pace.succeeded(skip)
			made.Last = last
			return made, nil
		case errors.Is(err, handle.ErrFenced), errors.Is(ctx.Err(), context.Canceled):
			return Made{}, err
		case BadRecord(err) && len(keys) > 1:
			keys = keys[:len(keys)/2] // the others come with the next page
		case in.pace.failed(keys, skip, err):
			in.leaveAlone(keys[0], skip, err)
			return Made{Timers: 1, Last: last}, nil
		default:
			return Made{}, fmt.Errorf("making the runs of %d timers: %w", len(keys), err)
		}
	}
}

func (in Intake) makePage(ctx context.Context, page maker, keys []any) (Made, error) {
	if err := in.runs.reserve(ctx, in, page.making.Room, page.making.Now); err != nil {
		return Made{}, err
	}
	page.numbers = &pageNumbers{of: &in.runs}
	var out Made
	err := in.h.Transact(ctx, func(tx *sql.Tx) error {
		m := page
		m.tx = tx
		if err := m.run(ctx, keys); err != nil {
			return err
		}
		out = m.made
		out.Added = m.applied.Added
		return nil
	})
	return out, err
}

// maker is one attempt at one page of timers. Its work stores the tasks.
type maker struct {
	work
	epochs  map[int]int64 // epochs, by slot
	skip    map[[16]byte]bool
	making  task.Making // its room and bytes are those of the page
	numbers *pageNumbers
	made    Made
}

func (m *maker) run(ctx context.Context, keys []any) error {
	timers, err := m.read(ctx, keys)
	if err != nil {
		return err
	}
	slots := handle.SlotSet{}
	for _, t := range timers {
		slots.Add(t.Slot)
	}
	var dropped []schemas.Event
	count := 0
	room, bytes, began := m.making.Room, m.making.Bytes, time.Now()
	changed := make([]task.Timer, 0, len(timers))
	var missed []*task.Timer
	for i := range timers {
		t := &timers[i]
		if room <= 0 || bytes <= 0 || i > 0 && m.intake.pace.expired(began) {
			break
		}
		making := m.making
		making.Claimed, making.Room, making.Bytes = m.intake.h.LastClaimed(t.Slot), min(room, makeEach), bytes
		runs, err := t.Make(making)
		if err != nil { // a newer version set it, perhaps: it waits for one that can read it
			m.intake.h.Log.Error("a timer cannot be read, and makes no runs", zap.String("topic", t.Topic), zap.String("id", t.ID), zap.Error(err))
			m.skip[task.Ident(t.Topic, t.ID)] = true
			continue
		}
		room -= len(runs.Tasks) + len(runs.Dropped)
		for _, run := range runs.Tasks {
			if bytes -= len(run.Body); !t.IsElsewhere(run) {
				m.fresh = append(m.fresh, run)
			}
		}
		dropped, count = append(dropped, runs.Dropped...), count+runs.Missed
		changed = append(changed, *t)
		if runs.Gaps {
			missed = append(missed, t)
		}
	}
	m.made.Timers, m.made.Dropped = len(keys), count
	if err := m.insertFresh(ctx); err != nil {
		return err
	}
	if err := faultpoint.At(faultpoint.StoreMaking); err != nil {
		return err
	}
	if m.slots, err = m.intake.h.LockSlots(ctx, m.tx, slots, handle.LockShared); err != nil {
		return err
	}
	m.intake.h.LearnClaimed(m.slots)
	for slot := range slots {
		if !m.intake.h.Conditions.HeldUnder(m.slots[slot], m.epochs[slot]) {
			return handle.ErrFenced
		}
	}
	if err := m.placeFresh(ctx); err != nil {
		return err
	}
	if err := m.moveOn(ctx, changed); err != nil {
		return err
	}
	for _, t := range missed {
		if err := tables.WriteDefinition(ctx, m.tx, t); err != nil {
			return err
		}
	}
	m.made.Events = handle.EventBoxes(dropped, m.now)
	for _, box := range m.made.Events {
		if err := box.Store(ctx, m.tx); err != nil {
			return err
		}
	}
	return nil
}

// read locks the timers, and leaves out those with nothing left to make.
func (m *maker) read(ctx context.Context, keys []any) ([]task.Timer, error) {
	rows, err := tables.Fetch(ctx, m.tx, tables.ScanTimer, "SELECT "+tables.TimerColumns+" FROM timers WHERE ident IN ("+tables.Marks(len(keys))+")"+m.intake.h.Locking(handle.LockExclusive), keys...)
	if err != nil {
		return nil, fmt.Errorf("reading %d timers: %w", len(keys), err)
	}
	return slices.DeleteFunc(rows, func(t task.Timer) bool {
		_, held := m.epochs[t.Slot]
		return !held || t.State != task.TimerEnabled || t.Next > m.making.UpTo
	}), nil
}

// insertFresh stores the new runs: at once if far ahead of claimed, others under their slots' lock.
func (m *maker) insertFresh(ctx context.Context) error {
	if err := m.dropExisting(ctx); err != nil {
		return err
	}
	seqs, err := m.numbers.first(len(m.fresh))
	if err != nil {
		return err
	}
	m.made.Runs = len(m.fresh)
	all := m.fresh
	m.fresh = nil
	for i, t := range all {
		t.Seq = seqs[i]
		if t.Due > m.intake.h.LastClaimed(t.Slot)+nearby {
			m.fresh = append(m.fresh, t)
		} else {
			m.late = append(m.late, t)
		}
	}
	return m.insertTasks(ctx, m.fresh)
}

// dropExisting leaves out runs with a task: cancelled, delivered, or put there by a caller.
func (m *maker) dropExisting(ctx context.Context) error {
	keys := tables.Idents(m.fresh, func(t *task.Task) [16]byte { return task.Ident(t.Topic, t.ID) })
	found, err := tables.FetchIn(ctx, m.tx, func(r *sql.Rows, key *[]byte) error { return r.Scan(key) }, "SELECT ident FROM tasks WHERE ident", keys, "")
	if err != nil {
		return fmt.Errorf("looking for runs that exist: %w", err)
	}
	exists := map[[16]byte]bool{}
	for _, key := range found {
		exists[[16]byte(key)] = true
	}
	m.fresh = slices.DeleteFunc(m.fresh, func(t *task.Task) bool { return exists[task.Ident(t.Topic, t.ID)] })
	return nil
}

// moveOn stores up to where runs are made. Under the lock, their place behind claimed is known.
func (m *maker) moveOn(ctx context.Context, timers []task.Timer) error {
	for part := range slices.Chunk(timers, tables.MaxCases) {
		var next, open, placed, keys []any
		for i := range part {
			t := &part[i]
			key := task.Ident(t.Topic, t.ID)
			next = append(next, key[:], t.Next)
			open = append(open, key[:], t.Open)
			placed = append(placed, key[:], m.slots[t.Slot].Claimed+1)
			keys = append(keys, key[:])
		}
		cases := "CASE ident" + strings.Repeat(" WHEN ? THEN ?", len(part)) + " END"
		_, err := m.tx.ExecContext(ctx, "UPDATE timers SET next = "+cases+", open = "+cases+", placed = "+cases+" WHERE ident IN ("+tables.Marks(len(part))+")",
			slices.Concat(next, open, placed, keys)...)
		if err != nil {
			return fmt.Errorf("moving %d timers on: %w", len(part), err)
		}
	}
	return nil
}

// RetireTimers forgets deleted timers whose version was remembered since before an instant, a piece
// at a time, and returns how many.
func (in Intake) RetireTimers(ctx context.Context, before int64) (int, error) {
	keys, err := tables.Fetch(ctx, in.h.Reads(), func(r *sql.Rows, key *[]byte) error { return r.Scan(key) }, "SELECT ident FROM timers WHERE slot = ? AND next < ? LIMIT ?", task.OutOfLine, before, tables.MaxRows)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	_, err = in.h.Exec(ctx, "DELETE FROM timers WHERE ident IN ("+tables.Marks(len(keys))+") AND slot = ? AND next < ?", append(tables.Args(keys), task.OutOfLine, before)...)
	return len(keys), wrap.Err(err, "forgetting %d deleted timers", len(keys))
}
