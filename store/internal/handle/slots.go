package handle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	place "github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Slot is one line of tasks, with the two offsets that move along it.
type Slot struct {
	Slot    int
	Epoch   int64  // of the assignment under which it was taken; a higher one fences a lower one
	Owner   string // member id; empty when it is free
	Claimed int64  // every task with pos <= Claimed is the owner's
	Done    int64  // every task with pos <= Done is settled
	Doubt   int64  // a task up to there may have been sent before its owner claimed it: by an earlier owner, or what the database has forgotten
	Unsure  bool   // the database may have forgotten what the owner has claimed: see Handle.Unsure
	Change
}

// Change is where a slot stands while the number of slots changes: docs/design/slots.md explains it.
type Change struct {
	Base, Target int   // the number of slots that finds a key's first slot, and the one to which it changes; the same in all rows
	Spread       int   // the number of slots over which the keys of this one are spread: Base, and Target once it is split
	Moved        int64 // of a slot that is split: each task up to this place stands where it belongs. No claim goes beyond it
	MovedHeld    int64 // the same for held places
	Turn         int64 // rises with each step after which owners must look again before they claim
}

// SentOnce tells whether nobody but the slot's owner can have sent a claimed task that was never set aside, and the owner once.
func (s Slot) SentOnce(pos int64) bool { return pos > s.Doubt && !s.Unsure }

// Changing tells whether the number of slots changes.
func (c Change) Changing() bool { return c.Base != c.Target }

// Split tells whether the slot's keys are spread over the number of slots that is to come.
func (c Change) Split() bool { return c.Spread != c.Base }

// Whole tells whether each task of the slot stands where it belongs.
func (c Change) Whole() bool { return c.Moved == math.MaxInt64 && c.MovedHeld == math.MaxInt64 }

// AllButAnswers tells whether each task of the slot stands where it belongs, but for some about which its owner waits for an answer.
func (c Change) AllButAnswers() bool {
	return c.Moved != math.MaxInt64 && c.Moved >= task.Held(0)-1 && c.MovedHeld == math.MaxInt64
}

// InPlace tells whether a task at this place of the slot stands where it belongs, for certain.
func (c Change) InPlace(pos int64) bool {
	if task.IsHeld(pos) {
		return pos <= c.MovedHeld
	}
	return pos <= c.Moved
}

// Count is how many slots have owners: while their number changes, the old ones and the new ones.
func (c Change) Count() int { return max(c.Base, c.Target) }

// GivenUp tells whether the slot is to have no owner any more: only tasks that have ended are remembered there.
func (s Slot) GivenUp() bool { return s.Base > 0 && s.Slot >= s.Count() }

// MayHaveMoved tells whether the database may have forgotten that tasks of the slot had moved to another one, whose owner has
// claimed them. The slot's own owner knows nothing of that claim, so it takes the slot anew instead of confirming it.
func (s Slot) MayHaveMoved() bool { return s.Unsure && s.Changing() }

// SlotPos is a position in a slot's order.
type SlotPos = place.Pos

// SlotEpoch is a slot that its owner holds under an epoch.
type SlotEpoch struct {
	Slot  int
	Epoch int64
}

// SlotColumns are those of slots that ScanSlot reads.
func (h *Handle) SlotColumns() string {
	return "slot, epoch, owner, claimed, done, CASE WHEN doubt_epoch = epoch THEN doubt ELSE claimed END, " + h.Unsure("slots") + ", base, target, spread, moved, moved_held, turn"
}

// Unsure is the condition that a row of the table slots, of that name, is unsure: store/life.go explains it.
func (h *Handle) Unsure(table string) string {
	return "(" + table + ".life_epoch = " + table + ".epoch AND " + table + ".life <> " + h.Life +
		" AND (" + table + ".slot < " + table + ".base OR " + table + ".slot < " + table + ".target))" // the others are not to be owned
}

// ErrUnsure says that a request cannot be decided before the owners of slots have compared their
// memory with the database, and that it cannot wait in the table of waiting requests. Try again.
var ErrUnsure = errors.New("the database was started anew, and the dispatchers have not compared their slots with it yet")

// ScanSlot reads a slot.
func ScanSlot(r *sql.Rows, s *Slot) error {
	return r.Scan(&s.Slot, &s.Epoch, &s.Owner, &s.Claimed, &s.Done, &s.Doubt, &s.Unsure, &s.Base, &s.Target, &s.Spread, &s.Moved, &s.MovedHeld, &s.Turn)
}

// NextTurn is the turn of slots that follows those of all the rows.
func NextTurn(rows []Slot) int64 {
	turn := int64(0)
	for _, r := range rows {
		turn = max(turn, r.Turn)
	}
	return turn + 1
}

// SlotCount is the number of slots that are to have owners; 0 before Migrate. While it changes, these are the old ones and the new
// ones. There may be rows of more: see Slots.
func (h *Handle) SlotCount(ctx context.Context) (int, error) {
	var n int
	err := h.DB.QueryRowContext(ctx, "SELECT CASE WHEN target > base THEN target ELSE base END FROM slots WHERE slot = 0").Scan(&n)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("counting the slots: %w", err)
	}
	return n, nil
}

// Slots reads all slots, in order: also those that were given up and of which tasks that have ended are remembered.
func (h *Handle) Slots(ctx context.Context) ([]Slot, error) {
	out, err := tables.Fetch(ctx, h.DB, ScanSlot, "SELECT "+h.SlotColumns()+" FROM slots ORDER BY slot")
	if err != nil {
		return nil, fmt.Errorf("reading the slots: %w", err)
	}
	return out, nil
}

// Beyond returns, for each of the places, the first place behind it in its slot that holds a task,
// if there is one. Each costs one dive into the (slot, pos) index. The places are literals: if they
// came from another table's column, the server would read the slot from its beginning, with all
// that was ever settled in it.
func (h *Handle) Beyond(ctx context.Context, places []SlotPos) ([]SlotPos, error) {
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
		rows, err := tables.Fetch(ctx, h.DB, func(r *sql.Rows, v *row) error { return r.Scan(&v.slot, &v.pos) }, dives[len(" UNION ALL "):], a...)
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
