package handle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Slot is one line of tasks, with the two offsets that move along it.
type Slot struct {
	Slot    int
	Epoch   int64     // of the assignment under which it was taken; a higher one fences a lower one
	Owner   string    // member id; empty when it is free
	Claimed int64     // every task with pos <= Claimed is the owner's
	Done    int64     // every task with pos <= Done is settled
	Doubt   int64     // a task up to there may have been sent before its owner claimed it: by an earlier owner, or what the database has forgotten
	Unsure  bool      // the database may have forgotten what the owner has claimed: see Handle.Unsure
	Sent    SentNotes // of LockSlots alone
	Change
}

// Change is where a slot stands while the number of slots changes: see docs/design/slots.md.
type Change struct {
	Base, Target int   // the number of slots that finds a key's first slot, and the one to which it changes; the same in all rows
	Spread       int   // the number of slots over which the keys of this one are spread: Base, and Target once it is split
	Moved        int64 // of a slot that is split: each task up to this place stands where it belongs. No claim goes beyond it
	MovedHeld    int64 // the same for held places
	Turn         int64 // rises with each step after which owners must look again before they claim
}

// SentOnce: only the owner can have sent a claimed task that was never set aside, and once.
func (s Slot) SentOnce(pos int64) bool { return pos > s.Doubt && !s.Unsure }

// Changing tells whether the number of slots changes.
func (c Change) Changing() bool { return c.Base != c.Target }

// Split tells whether the slot's keys are spread over the coming number of slots.
func (c Change) Split() bool { return c.Spread != c.Base }

// Whole tells whether each task of the slot stands where it belongs.
func (c Change) Whole() bool { return c.Moved == math.MaxInt64 && c.MovedHeld == math.MaxInt64 }

// AllButAnswers is Whole, but for some tasks about which the owner waits for an answer.
func (c Change) AllButAnswers() bool {
	return c.Moved != math.MaxInt64 && c.Moved >= task.Held(0)-1 && c.MovedHeld == math.MaxInt64
}

// InPlace: a task at this place of the slot certainly stands where it belongs.
func (c Change) InPlace(pos int64) bool {
	if task.IsHeld(pos) {
		return pos <= c.MovedHeld
	}
	return pos <= c.Moved
}

// Count is how many slots have owners: while their number changes, the old ones and the new ones.
func (c Change) Count() int { return max(c.Base, c.Target) }

// GivenUp: the slot is to have no owner any more. Only ended tasks are remembered there.
func (s Slot) GivenUp() bool { return s.Base > 0 && s.Slot >= s.Count() }

// MayHaveMoved: the database may have forgotten moves of the slot's tasks to another one, whose
// owner has claimed them. The slot's owner knows nothing of the claim, so it takes the slot anew
// instead of confirming it.
func (s Slot) MayHaveMoved() bool { return s.Unsure && s.Changing() }

// SlotPos is a position in a slot's order.
type SlotPos = slots.Pos

// SlotEpoch is a slot held under an epoch.
type SlotEpoch struct {
	Slot  int
	Epoch int64
}

// SlotColumns are ScanSlot's columns of slots.
func (h *Handle) SlotColumns() string {
	return "slot, epoch, owner, claimed, done, CASE WHEN doubt_epoch = epoch THEN doubt ELSE claimed END, " + h.Unsure("slots") + ", base, target, spread, moved, moved_held, turn"
}

// Unsure is the condition that a row of the named table slots is unsure: see store/life.go.
func (h *Handle) Unsure(table string) string {
	return "(" + table + ".life_epoch = " + table + ".epoch AND " + table + ".life <> " + h.Life +
		" AND (" + table + ".slot < " + table + ".base OR " + table + ".slot < " + table + ".target))" // the others are not to be owned
}

// ErrUnsure: a request cannot be decided before the owners of slots have compared their memory with
// the database, and cannot wait in the table of waiting requests. Try again.
var ErrUnsure = errors.New("the database was started anew, and the dispatchers have not compared their slots with it yet")

// ScanSlot reads a slot.
func ScanSlot(r *sql.Rows, s *Slot) error { return r.Scan(s.columns()...) }

func scanNotedSlot(r *sql.Rows, s *Slot) error {
	return r.Scan(append([]any{&s.Sent}, s.columns()...)...)
}

func (s *Slot) columns() []any {
	return []any{&s.Slot, &s.Epoch, &s.Owner, &s.Claimed, &s.Done, &s.Doubt, &s.Unsure, &s.Base, &s.Target, &s.Spread, &s.Moved, &s.MovedHeld, &s.Turn}
}

// NextTurn is the turn after those of all rows.
func NextTurn(rows []Slot) int64 {
	turn := int64(0)
	for _, r := range rows {
		turn = max(turn, r.Turn)
	}
	return turn + 1
}

// SlotCount is the number of slots that are to have owners; 0 before Migrate. During a change,
// these are the old ones and the new ones. There may be more rows: see Slots.
func (h *Handle) SlotCount(ctx context.Context) (int, error) {
	n, _, err := tables.One[int](ctx, h.DB, "SELECT CASE WHEN target > base THEN target ELSE base END FROM slots WHERE slot = 0")
	return n, wrap.Err(err, "counting the slots")
}

// Slots reads all slots, in order, also given up ones with remembered tasks.
func (h *Handle) Slots(ctx context.Context, q dialect.Querier) ([]Slot, error) {
	out, err := tables.Fetch(ctx, q, ScanSlot, "SELECT "+h.SlotColumns()+" FROM slots ORDER BY slot")
	return out, wrap.Err(err, "reading the slots")
}

// Beyond returns, for each place, the first place behind it in its slot with a task, if any. Each
// costs one dive into the (slot, pos) index. The places are literals: from another table's column,
// the server would read the slot from its beginning, with all settled tasks.
func (h *Handle) Beyond(ctx context.Context, q dialect.Querier, places []SlotPos) ([]SlotPos, error) {
	type row struct {
		slot int
		pos  sql.NullInt64
	}
	var out []SlotPos
	for part := range slices.Chunk(places, 100) {
		a := make([]any, 0, 3*len(part))
		for _, p := range part {
			a = append(a, p.Slot, p.Slot, p.Pos)
		}
		dives := strings.Repeat(" UNION ALL SELECT ?, (SELECT pos FROM tasks WHERE slot = ? AND pos > ? ORDER BY pos LIMIT 1)", len(part))
		rows, err := tables.Fetch(ctx, q, func(r *sql.Rows, v *row) error { return r.Scan(&v.slot, &v.pos) }, dives[len(" UNION ALL "):], a...)
		if err != nil {
			return nil, fmt.Errorf("looking for the next tasks: %w", err)
		}
		for _, r := range rows {
			if r.pos.Valid {
				out = append(out, SlotPos{Slot: r.slot, Pos: r.pos.Int64})
			}
		}
	}
	return out, nil
}

// Place is where a task stands in the line, for the index.
type Place = slots.Placed

func PlaceOf(t *task.Task) Place { return NewPlace(t.Slot, t.Pos, t.Seq, t.Due) }

func NewPlace(slot int, pos, seq, due int64) Place {
	return Place{Place: slots.Place{Slot: slot, Pos: pos, Seq: seq}, Due: due}
}

// SlotSet collects slots to lock, ascending, each once: one order for all prevents deadlocks.
type SlotSet map[int]struct{}

func (set SlotSet) Add(slot int) {
	if slot >= 0 {
		set[slot] = struct{}{}
	}
}

func (set SlotSet) sorted() []int { return slices.Sorted(maps.Keys(set)) }

// LockSlots reads the slots, and locks their claimed until the transaction ends. All must exist.
func (h *Handle) LockSlots(ctx context.Context, tx *sql.Tx, set SlotSet, clause string) (map[int]Slot, error) {
	out, err := h.LockSlotsThere(ctx, tx, set, clause)
	if err == nil && len(out) != len(set) {
		h.ForgetSpread()
		return nil, fmt.Errorf("locking slots %s: only %d of them exist: %w", strings.Trim(fmt.Sprint(set.sorted()), "[]"), len(out), ErrSpread)
	}
	return out, err
}

// LockSlotsThere is LockSlots of the existing ones.
func (h *Handle) LockSlotsThere(ctx context.Context, tx *sql.Tx, set SlotSet, clause string) (map[int]Slot, error) {
	slots := set.sorted()
	if len(slots) == 0 {
		return nil, nil
	}
	rows, err := tables.Fetch(ctx, tx, scanNotedSlot, "SELECT COALESCE(sent, ''), "+h.SlotColumns()+" FROM slots WHERE slot IN ("+tables.Marks(len(slots))+") ORDER BY slot"+h.Locking(clause), tables.Args(slots)...)
	if err != nil {
		return nil, fmt.Errorf("locking %d slots: %w", len(slots), err)
	}
	out := make(map[int]Slot, len(rows))
	for _, r := range rows {
		out[r.Slot] = r
	}
	return out, nil
}

type claimedHint [4096]atomic.Int64

// LastClaimed is the last claimed offset seen of a slot. By it, most tasks get their final place
// before the lock. An outdated one does no harm: the place is judged again under the lock.
func (h *Handle) LastClaimed(slot int) int64 { return h.hint[slot].Load() }

// LearnClaimed notes what was read of slots.
func (h *Handle) LearnClaimed(slots map[int]Slot) {
	for n, slot := range slots {
		h.hint[n].Store(slot.Claimed)
	}
}

// ErrSpread: a transaction has placed tasks by an outdated spread of keys over slots. The next try
// reads the spread again.
var ErrSpread = errors.New("the number of slots is being changed")

// ErrClaimed: tasks were claimed, or slots became unsure, while a transaction was deciding. The
// next try decides under the locks of the slots.
var ErrClaimed = errors.New("tasks were claimed meanwhile")

// SpreadIn returns how keys are spread over slots. It is read once, and again when CheckSpread
// finds it outdated. q is the caller's transaction.
func (h *Handle) SpreadIn(ctx context.Context, q dialect.Querier) (slots.Spread, error) {
	if known := h.spread.Load(); known != nil {
		return *known, nil
	}
	rows, err := tables.Fetch(ctx, q, func(r *sql.Rows, v *Slot) error { return r.Scan(&v.Slot, &v.Base, &v.Target, &v.Spread) },
		"SELECT slot, base, target, spread FROM slots ORDER BY slot")
	if err != nil {
		return slots.Spread{}, fmt.Errorf("reading how keys are spread over slots: %w", err)
	}
	if len(rows) == 0 {
		return slots.Spread{}, ErrNotMigrated
	}
	spread := SpreadOf(rows)
	h.spread.Store(&spread)
	return spread, nil
}

// SpreadOf is how all slots' rows, in order, spread keys.
func SpreadOf(rows []Slot) slots.Spread {
	var split []bool
	for i, r := range rows {
		if r.Split() {
			if split == nil {
				split = make([]bool, len(rows))
			}
			split[i] = true
		}
	}
	return slots.Changing(rows[0].Base, rows[0].Target, len(rows), split)
}

// CheckSpread verifies, under the lock of slots, the spread by which tasks were placed.
func (h *Handle) CheckSpread(spread slots.Spread, locked map[int]Slot) error {
	for n, row := range locked {
		if row.Base != spread.Base() || row.Target != spread.Target() || row.Spread != spread.Count(n) {
			h.ForgetSpread()
			return ErrSpread
		}
	}
	return nil
}

// ForgetSpread has the spread read again: it may be outdated.
func (h *Handle) ForgetSpread() { h.spread.Store(nil) }
