package handle

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/notyet/notyet/store/internal/tables"
)

// SlotSet collects slots to lock: ascending, and each once. Because all transactions use one order,
// they do not deadlock.
type SlotSet map[int]struct{}

func (set SlotSet) Add(slot int) {
	if slot >= 0 {
		set[slot] = struct{}{}
	}
}

func (set SlotSet) sorted() []int { return slices.Sorted(maps.Keys(set)) }

// LockSlots reads the slots under a lock that keeps their claimed where it is until the transaction ends. All of them must exist.
func (h *Handle) LockSlots(ctx context.Context, tx *sql.Tx, set SlotSet, clause string) (map[int]Slot, error) {
	out, err := h.LockSlotsThere(ctx, tx, set, clause)
	if err == nil && len(out) != len(set) {
		h.ForgetSpread()
		return nil, fmt.Errorf("locking slots %s: only %d of them exist: %w", strings.Trim(fmt.Sprint(set.sorted()), "[]"), len(out), ErrSpread)
	}
	return out, err
}

// LockSlotsThere is LockSlots of those that exist.
func (h *Handle) LockSlotsThere(ctx context.Context, tx *sql.Tx, set SlotSet, clause string) (map[int]Slot, error) {
	slots := set.sorted()
	if len(slots) == 0 {
		return nil, nil
	}
	rows, err := tables.Fetch(ctx, tx, ScanSlot, "SELECT "+h.SlotColumns()+" FROM slots WHERE slot IN ("+tables.Marks(len(slots))+") ORDER BY slot"+h.Locking(clause), tables.Args(slots)...)
	if err != nil {
		return nil, fmt.Errorf("locking %d slots: %w", len(slots), err)
	}
	out := make(map[int]Slot, len(rows))
	for _, r := range rows {
		out[r.Slot] = r
	}
	return out, nil
}
