package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/slots"
)

// Claim moves claimed of the slots ahead to pos. From the commit on, every task up to pos belongs
// to the owner. All slots must be held under epoch and not given back, and none may be beyond pos,
// or before the place up to which its owner has it claimed (from, one for each slot): a database
// that was set back has forgotten a claim. Otherwise nothing moves and Claim returns ErrFenced. The
// slots are sure from the commit on: see life.go.
// Repeating a claim with the same pos after a lost reply succeeds.
func (s *Store) Claim(ctx context.Context, slots []int, from []int64, epoch, pos int64) error {
	err := s.transact(ctx, func(tx *sql.Tx) error {
		a := append([]any{pos, epoch}, args(slots)...)
		a = append(a, epoch, pos)
		for i, slot := range slots {
			a = append(a, slot, from[i])
		}
		res, err := tx.ExecContext(ctx, "UPDATE slots SET claimed = ?, life_epoch = ?, life = "+s.life+" WHERE slot IN ("+marks(len(slots))+")"+s.conditions.held+
			" AND claimed <= ? AND claimed >= CASE slot"+strings.Repeat(" WHEN ? THEN ?", len(slots))+" END", a...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err == nil && n != int64(len(slots)) {
			err = ErrFenced
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("claiming %d slots up to %d: %w", len(slots), pos, err)
	}
	return nil
}

// SlotPos is a position in a slot's order.
type SlotPos = slots.Pos

// Next returns the slots as they are, and for each that has one the first place beyond claimed that
// holds a task. The task there falls due next, whatever any index says.
func (s *Store) Next(ctx context.Context, slots []int) ([]Slot, []SlotPos, error) {
	if len(slots) == 0 {
		return nil, nil, nil
	}
	rows, err := fetch(ctx, s.db, scanSlot, "SELECT "+s.slotColumns()+" FROM slots WHERE slot IN ("+marks(len(slots))+")", args(slots)...)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for the next tasks: %w", err)
	}
	claimed := make([]SlotPos, len(rows))
	for i, row := range rows {
		claimed[i] = SlotPos{Slot: row.Slot, Pos: row.Claimed}
	}
	next, err := s.beyond(ctx, claimed)
	return rows, next, err
}

// beyond returns, for each of the places, the first place behind it in its slot that holds a task,
// if there is one. Each costs one dive into the (slot, pos) index. The places are literals: if they
// came from another table's column, the server would read the slot from its beginning, with all
// that was ever settled in it.
func (s *Store) beyond(ctx context.Context, places []SlotPos) ([]SlotPos, error) {
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
		rows, err := fetch(ctx, s.db, func(r *sql.Rows, v *row) error { return r.Scan(&v.slot, &v.pos) }, dives[len(" UNION ALL "):], a...)
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
