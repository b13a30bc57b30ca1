package intake

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// A caller asks for runs beyond a timer's own: one run now, or the runs of a past range. Like those
// of MakeRuns, they are stored under the lock of the timer's row. The row does not change, so
// disabling, replacing or deleting the timer leaves the runs alone.

// AskedRuns is one transaction's result for a caller who asked for runs.
type AskedRuns struct {
	task.Asked
	Made, Existing int
	Added          []handle.Place // for the index
	Entry          int64          // in the audit log: give it back with the next piece
}

// AskRun makes one run of a timer at an instant, whatever the expression says, due now. An existing
// run is not made twice: Made is 0 then. look.ErrNoTimer: there is no such timer.
func (in Intake) AskRun(ctx context.Context, topic, id string, at, now int64) (AskedRuns, error) {
	return in.askRuns(ctx, topic, id, 1, 0, now, false, func(t *task.Timer, remembered int64) (task.Asked, error) {
		if at < remembered && at < now {
			return task.Asked{Forgotten: 1}, nil
		}
		return t.AskRun(at, now)
	})
}

// BackfillPiece makes a timer's next runs in a range, the oldest first, in one transaction. Call it
// with From at the last piece's Next until Next is 0. A piece may be repeated: an existing run is
// not made twice. A rehearsal is rolled back. entry is the last piece's Entry, 0 with the first:
// all pieces have one entry in the audit log.
func (in Intake) BackfillPiece(ctx context.Context, topic, id string, r task.Range, entry, now int64, rehearse bool) (AskedRuns, error) {
	r.Room, r.Bytes = makeEach, makeBytes
	return in.askRuns(ctx, topic, id, r.Room, entry, now, rehearse, func(t *task.Timer, remembered int64) (task.Asked, error) {
		r.Remembered = max(r.Remembered, remembered)
		return t.Backfill(r, now)
	})
}

func (in Intake) askRuns(ctx context.Context, topic, id string, most int, entry, now int64, rehearse bool, choose func(t *task.Timer, remembered int64) (task.Asked, error)) (out AskedRuns, err error) {
	block, err := in.reserveRuns(ctx, most, now)
	if err != nil {
		return AskedRuns{Entry: entry}, err
	}
	numbers := &pageNumbers{of: block}
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		elsewhere, err := handle.Elsewhere(ctx, in.h, tx)
		if err != nil {
			return err
		}
		if why, err := elsewhere(topic); err != nil || why != "" { // a run may be on the way
			return cmp.Or(err, handle.ErrMoving)
		}
		spread, err := in.h.SpreadIn(ctx, tx)
		if err != nil {
			return err
		}
		m := maker{work: work{intake: in, tx: tx, now: now, spread: spread}, numbers: numbers}
		out = AskedRuns{Entry: entry}
		if out.Asked, err = m.ask(ctx, topic, id, choose); err != nil {
			return err
		}
		out.Made, out.Added = len(m.applied.Added), m.applied.Added
		out.Existing = len(out.Tasks) - out.Made
		if rehearse {
			out.Added = nil
			return errRehearsed
		}
		if err := faultpoint.At(faultpoint.StoreMaking); err != nil {
			return err
		}
		out.Entry, err = in.h.AuditMore(ctx, tx, entry, int64(out.Made))
		return err
	})
	if err != nil && !errors.Is(err, errRehearsed) {
		return AskedRuns{Entry: entry}, fmt.Errorf("making the runs that were asked for: %w", err)
	}
	return out, nil
}

// ask stores the chosen runs that do not exist.
func (m *maker) ask(ctx context.Context, topic, id string, choose func(t *task.Timer, remembered int64) (task.Asked, error)) (task.Asked, error) {
	key := task.Ident(topic, id)
	rows, err := tables.Fetch(ctx, m.tx, tables.ScanTimer, "SELECT "+tables.TimerColumns+" FROM timers WHERE ident = ?"+m.intake.h.Locking(handle.LockExclusive), key[:])
	if err != nil {
		return task.Asked{}, fmt.Errorf("reading the timer: %w", err)
	}
	if len(rows) == 0 || rows[0].State == task.TimerDeleted || rows[0].Topic != topic || rows[0].ID != id {
		return task.Asked{}, look.ErrNoTimer
	}
	// Until the commit, nothing more is forgotten.
	since, err := rememberedSince(ctx, m.tx, m.intake.h.Locking(handle.LockShared))
	if err != nil {
		return task.Asked{}, err
	}
	asked, err := choose(&rows[0], max(since, rows[0].Moved))
	if err != nil {
		return task.Asked{}, err
	}
	m.fresh = slices.DeleteFunc(slices.Clone(asked.Tasks), rows[0].IsElsewhere)
	if err := m.forgetDropped(ctx); err != nil {
		return task.Asked{}, err
	}
	if err := m.dropExisting(ctx); err != nil {
		return task.Asked{}, err
	}
	seqs, err := m.numbers.first(len(m.fresh))
	if err != nil {
		return task.Asked{}, err
	}
	for i, t := range m.fresh {
		t.Seq = seqs[i]
		t.PlaceIn(m.spread)
	}
	m.late, m.fresh = m.fresh, nil
	if err := m.lockSlots(ctx, nil); err != nil {
		return task.Asked{}, err
	}
	return asked, m.placeFresh(ctx)
}

// forgetDropped deletes the rows of dropped runs: they were never sent, and are made anew.
func (m *maker) forgetDropped(ctx context.Context) error {
	keys := tables.Idents(m.fresh, func(t *task.Task) [16]byte { return task.Ident(t.Topic, t.ID) })
	slices.SortFunc(keys, compareKeys)
	rows, err := tables.FetchIn(ctx, m.tx, func(r *sql.Rows, t *task.Task) error { return r.Scan(&t.Seq, &t.Slot, &t.State, &t.Attempt, &t.Replay) },
		"SELECT seq, slot, state, attempt, replay FROM tasks WHERE ident", keys,
		" AND state = ? AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.seq = tasks.seq)"+m.intake.h.Locking(handle.LockExclusive), int(task.StateDead))
	if err != nil {
		return fmt.Errorf("looking for runs that were dropped: %w", err)
	}
	var gone []int64
	for _, t := range rows {
		if t.WasDropped() {
			gone = append(gone, t.Seq)
		}
	}
	return deleteTasks(ctx, m.tx, gone)
}

// forgotten names, in table meta, the instant up to which ended tasks may be forgotten, in Unix ms.
var forgotten = []byte("tasks.forgotten")

// endsEarly is more than a run, made 90 s ahead, can end before its instant, fired or cancelled.
const endsEarly = 2 * time.Minute

// ForgetUpTo notes that tasks ended up to an instant, Unix ms, may be forgotten from now on.
func (in Intake) ForgetUpTo(ctx context.Context, before int64) error {
	err := in.h.Transact(ctx, func(tx *sql.Tx) error {
		if err := handle.EnsureMeta(ctx, tx, forgotten, before); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE meta SET value = ? WHERE name = ? AND value < ?", before, forgotten, before)
		return err
	})
	return wrap.Err(err, "noting up to when tasks are forgotten")
}

// Remembered returns since when runs of timers are remembered, Unix ms: from then on, no task means
// no run. now, if nobody has noted it.
func (in Intake) Remembered(ctx context.Context, now int64) (int64, error) {
	since, err := rememberedSince(ctx, in.h.Reads(), "")
	if err != nil || since == 0 {
		return now, err
	}
	return min(since, now), nil
}

// rememberedSince is Remembered, and 0 if nobody has noted it.
func rememberedSince(ctx context.Context, from dialect.Querier, locking string) (int64, error) {
	upTo, noted, err := tables.One[int64](ctx, from, "SELECT value FROM meta WHERE name = ?"+locking, forgotten)
	if err != nil || !noted {
		return 0, wrap.Err(err, "reading up to when tasks are forgotten")
	}
	return upTo + endsEarly.Milliseconds(), nil
}
