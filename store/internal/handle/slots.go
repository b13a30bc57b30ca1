package handle

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	place "github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store/internal/tables"
)

// Slot is one line of tasks, with the two offsets that move along it.
type Slot struct {
	Slot    int
	Epoch   int64  // of the assignment under which it was taken; a higher one fences a lower one
	Owner   string // member id; empty when it is free
	Claimed int64  // every task with pos <= Claimed is the owner's
	Done    int64  // every task with pos <= Done is settled
	Unsure  bool   // the database may have forgotten what the owner has claimed: see Handle.Unsure
}

// SlotPos is a position in a slot's order.
type SlotPos = place.Pos

// SlotColumns are those of slots that ScanSlot reads.
func (h *Handle) SlotColumns() string {
	return "slot, epoch, owner, claimed, done, " + h.Unsure("slots")
}

// Unsure is the condition that a row of the table slots, of that name, is unsure: store/life.go explains it.
func (h *Handle) Unsure(table string) string {
	return "(" + table + ".life_epoch = " + table + ".epoch AND " + table + ".life <> " + h.life + ")"
}

// ScanSlot reads a slot.
func ScanSlot(r *sql.Rows, s *Slot) error {
	return r.Scan(&s.Slot, &s.Epoch, &s.Owner, &s.Claimed, &s.Done, &s.Unsure)
}

// SlotCount is the number of slots; 0 before Migrate.
func (h *Handle) SlotCount(ctx context.Context) (int, error) {
	var n int
	if err := h.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM slots").Scan(&n); err != nil {
		return 0, fmt.Errorf("counting the slots: %w", err)
	}
	return n, nil
}

// Slots reads all slots, in order.
func (h *Handle) Slots(ctx context.Context) ([]Slot, error) {
	out, err := tables.Fetch(ctx, h.db, ScanSlot, "SELECT "+h.SlotColumns()+" FROM slots ORDER BY slot")
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
		rows, err := tables.Fetch(ctx, h.db, func(r *sql.Rows, v *row) error { return r.Scan(&v.slot, &v.pos) }, dives[len(" UNION ALL "):], a...)
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
