package handle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/tables"
)

// ErrSpread says that a transaction has placed tasks by an outdated spread of keys over slots. The next
// try reads the spread again.
var ErrSpread = errors.New("the number of slots is being changed")

// SpreadIn returns how keys are spread over slots. It is read once, and again after CheckSpread has found
// it outdated. q is the caller's transaction.
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

// CheckSpread verifies, under the lock of slots, the spread by which tasks were placed in them.
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
