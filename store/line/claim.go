package line

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// ErrTurned: since the owner's last look, a slot was split, or the number of slots began to change.
var ErrTurned = errors.New("how keys are spread over slots has changed")

// ErrLife: the database has begun another life than the one in which a claim was to be made.
var ErrLife = errors.New("the database was started anew since the last look at it")

// Claim moves claimed of the slots ahead to pos. From the commit on, every task up to pos belongs
// to the owner. All slots must be held under epoch and not given back. None may be beyond pos, or
// before from, the owner's view of claimed, by slot: a database that was set back has forgotten a
// claim. Otherwise nothing moves and Claim returns ErrFenced. If all are held, but the turn of one
// is not the owner's (see handle.Slot), Claim returns ErrTurned; in another life than that of In,
// ErrLife. An unsure slot stays where it is claimed, and is sure from the commit on: see
// store/life.go. While the number of slots changes, only Acquire makes slots sure. A split slot is
// claimed as far as its tasks stand where they belong. Repeating a claim with the same pos after a
// lost reply succeeds.
func (l Line) Claim(ctx context.Context, turn int64, slots []int, from []int64, epoch, pos int64) error {
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		a := append([]any{pos, pos, pos, epoch}, tables.Args(slots)...)
		a = append(a, epoch, pos, pos, pos)
		for i, slot := range slots {
			a = append(a, slot, from[i])
		}
		inLife, life := "", []any(nil)
		if l.life != nil {
			inLife, life = " AND "+l.h.Life+" = ?", []any{*l.life}
		}
		a = append(append(a, turn), life...)
		res, err := tx.ExecContext(ctx, "UPDATE slots SET claimed = ?, doubt = CASE WHEN life = "+l.h.Life+" OR doubt > ? THEN doubt ELSE ? END, life_epoch = ?, life = "+l.h.Life+" WHERE slot IN ("+tables.Marks(len(slots))+")"+l.h.Conditions.Held+
			" AND claimed <= ?"+l.h.Conditions.InPlace+" AND (claimed = ? AND base = target OR NOT "+l.h.Unsure("slots")+") AND claimed >= CASE slot"+strings.Repeat(" WHEN ? THEN ?", len(slots))+" END AND turn = ?"+inLife, a...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err == nil && n != int64(len(slots)) {
			err = l.refused(ctx, tx, slots, epoch, turn)
		}
		return err
	})
	return wrap.Err(err, "claiming %d slots up to %d", len(slots), pos)
}

// refused is why slots were not claimed. One not held is fenced, whatever its turn.
func (l Line) refused(ctx context.Context, tx *sql.Tx, slots []int, epoch, turn int64) error {
	var held, turned int
	var life string
	a := append([]any{turn}, append(tables.Args(slots), epoch)...)
	err := tx.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(turn <> ?), 0), "+l.h.Life+" FROM slots WHERE slot IN ("+tables.Marks(len(slots))+")"+l.h.Conditions.Held, a...).Scan(&held, &turned, &life)
	switch {
	case err != nil:
		return err
	case held == len(slots) && l.life != nil && life != *l.life:
		return ErrLife
	case held == len(slots) && turned > 0:
		return ErrTurned
	}
	return handle.ErrFenced
}

// Next returns the slots, and the first place with a task beyond claimed, for each that has one.
// The task there falls due next, whatever any index says.
func (l Line) Next(ctx context.Context, slots []int) ([]handle.Slot, []handle.SlotPos, error) {
	if len(slots) == 0 {
		return nil, nil, nil
	}
	rows, err := tables.Fetch(ctx, l.h.DB, handle.ScanSlot, "SELECT "+l.h.SlotColumns()+" FROM slots WHERE slot IN ("+tables.Marks(len(slots))+")", tables.Args(slots)...)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for the next tasks: %w", err)
	}
	claimed := make([]handle.SlotPos, len(rows))
	for i, row := range rows {
		claimed[i] = handle.SlotPos{Slot: row.Slot, Pos: row.Claimed}
	}
	next, err := l.h.Beyond(ctx, l.h.Reads(), claimed)
	return rows, next, err
}
