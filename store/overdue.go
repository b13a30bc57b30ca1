package store

import (
	"context"
	"database/sql"
	"fmt"
)

// Overdue answers the slots that lie behind, whoever owns them: in unclaimed is the first task beyond claimed due before the
// given time (Unix ms), in unsettled the first one that is claimed and not settled. Two dives into an index for each slot.
func (s *Store) Overdue(ctx context.Context, before int64) (unclaimed, unsettled []Slot, err error) {
	type view struct {
		Slot
		next, open sql.NullInt64
	}
	first := "(SELECT t.pos FROM tasks t WHERE t.slot = s.slot AND t.pos > s.%s AND t.pos < ? ORDER BY t.pos LIMIT 1)"
	rows, err := fetch(ctx, s.db, func(r *sql.Rows, v *view) error {
		return r.Scan(&v.Slot.Slot, &v.Epoch, &v.Owner, &v.Claimed, &v.Done, &v.next, &v.open)
	}, "SELECT "+slotColumns+", "+fmt.Sprintf(first, "claimed")+", "+fmt.Sprintf(first, "done")+" FROM slots s ORDER BY slot", before, before)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for slots that lie behind: %w", err)
	}
	for _, v := range rows {
		if v.next.Valid {
			unclaimed = append(unclaimed, v.Slot)
		}
		if v.open.Valid && v.open.Int64 <= v.Claimed {
			unsettled = append(unsettled, v.Slot)
		}
	}
	return unclaimed, unsettled, nil
}
