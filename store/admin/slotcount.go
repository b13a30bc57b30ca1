package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// The number of slots changes while services run, see docs/design/slots.md: SetSlots begins, each
// owner splits its slots (Split), the other tasks follow (MoveOn), and FinishSlots ends it.

// MostSlots is how many slots an installation may have.
const MostSlots = 4096

// ErrOlderServices: a process is alive that does not know of changes of the number of slots.
var ErrOlderServices = errors.New("services of an older version are alive: upgrade or stop them first")

// ErrNotCompared: an owner may know of a change of the number of slots that the database has
// forgotten. Another change would hide the loss from the owner.
var ErrNotCompared = fmt.Errorf("%w: try again in a moment; if no dispatcher is alive (notyet cluster), start one", handle.ErrUnsure)

// ErrSlots: an installation cannot have so many slots.
var ErrSlots = fmt.Errorf("the number of slots must be 1 to %d", MostSlots)

// nextSlots is the name in table meta of the number of slots after the present change; 0: none.
const nextSlots = "slots.next"

// Growth is how the number of slots changes.
type Growth struct {
	Base, Target int           // the number of slots, and the one to which it changes
	Next         int           // the one that follows; 0: none does
	Leaving      int           // slots of which keys leave
	Split        int           // those of them that are split
	Whole        int           // those of them of which all tasks stand where they belong
	Kept         int           // slots that were given up, and of which ended tasks are remembered
	Behind       []handle.Slot // those of Leaving that are not among Whole
}

// Changing tells whether the number of slots changes.
func (g Growth) Changing() bool { return g.Base != g.Target }

// Settled: the number of slots does not change, and no change is to follow.
func (g Growth) Settled() bool { return !g.Changing() && g.Next == 0 }

// growthOf is the progress of the change by all slots' rows.
func growthOf(rows []handle.Slot, next int) Growth {
	if len(rows) == 0 {
		return Growth{}
	}
	g := Growth{Base: rows[0].Base, Target: rows[0].Target, Next: next, Kept: len(rows) - rows[0].Count()}
	for _, r := range rows {
		if slots.Leaving(r.Slot, g.Base, g.Target) {
			g.Leaving++
			if r.Split() {
				g.Split++
				if r.Whole() {
					g.Whole++
					continue
				}
			}
			g.Behind = append(g.Behind, r)
		}
	}
	return g
}

// Growth returns how the number of slots changes.
func (a Admin) Growth(ctx context.Context) (Growth, error) {
	rows, err := a.h.Slots(ctx, a.h.Reads())
	if err != nil {
		return Growth{}, err
	}
	next, err := readNext(ctx, a.h.DB)
	return growthOf(rows, next), err
}

func readNext(ctx context.Context, q dialect.Querier) (int, error) {
	next, _, err := tables.One[int](ctx, q, "SELECT value FROM meta WHERE name = ?", []byte(nextSlots))
	return next, wrap.Err(err, "reading the next number of slots")
}

// SetSlots lets the installation go over to n slots, after a change under way to another number.
// Repeating the call is harmless. After a start of the database, it waits until owners have looked.
func (a Admin) SetSlots(ctx context.Context, n int) (Growth, error) {
	if n < 1 || n > MostSlots {
		return Growth{}, ErrSlots
	}
	for began, waited := time.Now(), error(nil); ; {
		g, err := a.setSlots(ctx, n)
		if waited != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, handle.ErrCommit) {
			err = waited // the caller's time is over: this says why
		}
		if !errors.Is(err, ErrNotCompared) || time.Since(began) > comparedWithin || loop.Rest(ctx, comparedWithin/20) != nil {
			return g, err
		}
		waited = err
	}
}

// comparedWithin is how long SetSlots waits until owners have looked: they do once a second.
const comparedWithin = 5 * time.Second

func (a Admin) setSlots(ctx context.Context, n int) (Growth, error) {
	now, err := a.h.Time(ctx)
	if err != nil {
		return Growth{}, err
	}
	var out Growth
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		rows, err := a.lockAllSlots(ctx, tx)
		if err != nil {
			return err
		}
		if err := a.noneOlder(ctx, tx, now.UnixMilli()); err != nil {
			return err
		}
		if slices.ContainsFunc(rows, func(r handle.Slot) bool { return r.Unsure && r.Owner != "" }) {
			return ErrNotCompared
		}
		next := 0
		if rows[0].Changing() && n != rows[0].Target {
			next = n
		}
		if err := setNext(ctx, tx, next); err != nil {
			return err
		}
		if !rows[0].Changing() && n != rows[0].Base {
			if rows, err = a.beginSlots(ctx, tx, rows, n); err != nil {
				return err
			}
		}
		out = growthOf(rows, next)
		_, err = a.h.Audit(ctx, tx, 1)
		return err
	})
	return out, wrap.Err(err, "changing the number of slots to %d", n)
}

func setNext(ctx context.Context, tx *sql.Tx, n int) error {
	if err := handle.EnsureMeta(ctx, tx, []byte(nextSlots), 0); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE meta SET value = ? WHERE name = ?", n, []byte(nextSlots))
	return err
}

// noneOlder refuses while a process is alive that would place tasks by the count of rows.
func (a Admin) noneOlder(ctx context.Context, tx *sql.Tx, now int64) error {
	var older int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM services WHERE spreads = 0 AND seen > ?", now-handle.ServiceLease).Scan(&older); err != nil {
		return err
	}
	if older > 0 {
		return ErrOlderServices
	}
	return nil
}

// lockAllSlots locks all slots' rows, in order. So nobody places a task meanwhile.
func (a Admin) lockAllSlots(ctx context.Context, tx *sql.Tx) ([]handle.Slot, error) {
	rows, err := tables.Fetch(ctx, tx, handle.ScanSlot, "SELECT "+a.h.SlotColumns()+" FROM slots ORDER BY slot"+a.h.Locking(handle.LockExclusive))
	if err == nil && len(rows) == 0 {
		err = handle.ErrNotMigrated
	}
	return rows, err
}

// beginSlots begins to change the number of slots, in the transaction with all of them locked.
func (a Admin) beginSlots(ctx context.Context, tx *sql.Tx, rows []handle.Slot, n int) ([]handle.Slot, error) {
	base, turn := rows[0].Base, handle.NextTurn(rows)
	for slot := len(rows); slot < n; slot++ {
		if _, err := tx.ExecContext(ctx, "INSERT INTO slots (slot, epoch, owner, claimed, done, life, life_epoch, base, spread, target) VALUES (?, 0, ?, 0, 0, "+a.h.Life+", 0, ?, ?, ?)",
			slot, []byte{}, base, base, n); err != nil {
			return nil, fmt.Errorf("making slot %d: %w", slot, err)
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE slots SET target = ?, spread = base, turn = ?", n, turn); err != nil {
		return nil, err
	}
	if err := handle.Require(ctx, tx, handle.Spread, true); err != nil {
		return nil, err
	}
	return tables.Fetch(ctx, tx, handle.ScanSlot, "SELECT "+a.h.SlotColumns()+" FROM slots ORDER BY slot")
}

// FinishSlots ends a change of the number of slots if all tasks are in place, and begins the next
// one. done: there was something to do.
func (a Admin) FinishSlots(ctx context.Context) (done bool, err error) {
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		done = false
		rows, err := a.lockAllSlots(ctx, tx)
		if err != nil {
			return err
		}
		g := growthOf(rows, 0)
		if !g.Changing() || g.Whole < g.Leaving || slices.ContainsFunc(rows, func(r handle.Slot) bool { return r.Unsure }) { // owners must see first what was forgotten
			return nil
		}
		if all, err := empty(ctx, tx, rows[min(g.Target, len(rows)):]); err != nil || !all {
			return err
		}
		done = true
		if _, err := tx.ExecContext(ctx, "UPDATE slots SET base = target, spread = target, turn = ?", handle.NextTurn(rows)); err != nil {
			return err
		}
		if err := handle.Require(ctx, tx, handle.Spread, false); err != nil {
			return err
		}
		return a.follow(ctx, tx)
	})
	return done && err == nil, wrap.Err(err, "ending the change of the number of slots")
}

// empty tells whether given up slots have no task to come. Otherwise the slot's owner looks at all
// of it again, because nobody would own such a task.
func empty(ctx context.Context, tx *sql.Tx, given []handle.Slot) (bool, error) {
	all := true
	for _, r := range given {
		_, some, err := tables.One[int64](ctx, tx, "SELECT seq FROM tasks WHERE slot = ? AND pos > ? LIMIT 1", r.Slot, r.Done)
		if err != nil {
			return false, err
		}
		if !some {
			continue
		}
		all = false
		if _, err := tx.ExecContext(ctx, "UPDATE slots SET moved = ? WHERE slot = ?", task.Held(0)-1, r.Slot); err != nil {
			return false, err
		}
	}
	return all, nil
}

// follow begins the next change, if there is one.
func (a Admin) follow(ctx context.Context, tx *sql.Tx) error {
	next, err := readNext(ctx, tx)
	if err != nil || next == 0 {
		return err
	}
	rows, err := tables.Fetch(ctx, tx, handle.ScanSlot, "SELECT "+a.h.SlotColumns()+" FROM slots ORDER BY slot")
	if err != nil {
		return err
	}
	if next != rows[0].Base {
		if _, err := a.beginSlots(ctx, tx, rows, next); err != nil {
			return err
		}
	}
	return setNext(ctx, tx, 0)
}

// DropSlots forgets given up slots without any remembered task, from the last one on, and returns
// how many. held tells whether a slot's owner is still to give it back.
func (a Admin) DropSlots(ctx context.Context, held func(handle.Slot) bool) (n int, err error) {
	rows, err := a.h.Slots(ctx, a.h.Reads())
	if err != nil {
		return 0, err
	}
	for len(rows) > 0 && !rows[0].Changing() && len(rows) > rows[0].Count() {
		last := rows[len(rows)-1]
		dropped, err := a.dropSlot(ctx, last.Slot, held)
		if err != nil || !dropped {
			return n, err
		}
		rows = rows[:len(rows)-1]
		n++
	}
	return n, nil
}

func (a Admin) dropSlot(ctx context.Context, slot int, held func(handle.Slot) bool) (dropped bool, err error) {
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		dropped = false
		rows, err := a.lockAllSlots(ctx, tx)
		if err != nil {
			return err
		}
		last := rows[len(rows)-1]
		if last.Slot != slot || last.Changing() || slot < last.Count() || last.Owner != "" && held(last) {
			return nil
		}
		for _, table := range []string{"tasks", "timers"} {
			if _, used, err := tables.One[int](ctx, tx, "SELECT slot FROM "+table+" WHERE slot = ? LIMIT 1", slot); err != nil || used {
				return err
			}
		}
		dropped = true
		_, err = tx.ExecContext(ctx, "DELETE FROM slots WHERE slot = ?", slot)
		return err
	})
	return dropped, wrap.Err(err, "forgetting slot %d", slot)
}
