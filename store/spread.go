package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/tables"
)

// errSpread says that a transaction has placed tasks by an outdated spread of keys over slots. The next
// try reads the spread again.
var errSpread = errors.New("the number of slots is being changed")

// spreadIn returns how keys are spread over slots. It is read once, and again after checkSpread has found
// it outdated. q is the caller's transaction.
func (s *Store) spreadIn(ctx context.Context, q dialect.Querier) (slots.Spread, error) {
	if known := s.spread.Load(); known != nil {
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
	spread := spreadOf(rows)
	s.spread.Store(&spread)
	return spread, nil
}

// spreadOf is how all slots' rows, in order, spread keys.
func spreadOf(rows []Slot) slots.Spread {
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

// checkSpread verifies, under the lock of slots, the spread by which tasks were placed in them.
func (s *Store) checkSpread(spread slots.Spread, locked map[int]Slot) error {
	for n, row := range locked {
		if row.Base != spread.Base() || row.Target != spread.Target() || row.Spread != spread.Count(n) {
			s.spread.Store(nil)
			return errSpread
		}
	}
	return nil
}
