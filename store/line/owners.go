package line

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Acquire makes owner the owner of the slots under epoch, and returns them as they were before, in
// order. It leaves out slots that another owner holds at epoch or above, and slots that were given
// back under epoch. From the commit on, all writes of the previous owner fail, and the slots are
// sure. Repeating the call after a lost reply is harmless.
//
// had is what owner knows of slots. Where the database was set back and has less claimed, owner
// claims as much again: what may have been sent is in doubt then, and no longer pending. Where it may have
// forgotten that tasks had moved to another slot, owner claims what that slot's owner may have claimed.
func (l Line) Acquire(ctx context.Context, slots []int, epoch int64, owner string, had ...Had) ([]handle.Slot, error) {
	if owner == "" {
		return nil, errors.New("acquiring slots: the owner must have a name, for a slot without one is free")
	}
	var before []handle.Slot
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		var err error
		before, err = tables.Fetch(ctx, tx, handle.ScanSlot, "SELECT "+l.h.SlotColumns()+" FROM slots WHERE slot IN ("+tables.Marks(len(slots))+") AND (epoch < ? OR (epoch = ? AND owner = ?)) ORDER BY slot"+l.h.Locking(handle.LockExclusive), append(tables.Args(slots), epoch, epoch, []byte(owner))...)
		if err != nil || len(before) == 0 {
			return err
		}
		// Where claims may be forgotten, so may tasks that were sent: the scanner reads those again, behind all that was claimed.
		taken := []any{int64(everywhere), epoch, []byte(owner), epoch, epoch}
		for _, b := range before {
			taken = append(taken, b.Slot)
		}
		_, err = tx.ExecContext(ctx, "UPDATE slots SET doubt = CASE WHEN "+l.h.Unsure("slots")+" THEN ? ELSE claimed END, epoch = ?, owner = ?, doubt_epoch = ?, life_epoch = ?, life = "+l.h.Life+" WHERE slot IN ("+tables.Marks(len(before))+")", taken...)
		for i := range before {
			b := &before[i]
			to := b.Claimed
			for _, h := range had {
				if h.Slot == b.Slot {
					to = max(to, h.claimed(*b))
				}
			}
			if to == b.Claimed || err != nil {
				continue
			}
			b.Claimed = to
			_, err = tx.ExecContext(ctx, "UPDATE slots SET claimed = ?, doubt = CASE WHEN doubt < ? THEN ? ELSE doubt END WHERE slot = ?", b.Claimed, b.Claimed, b.Claimed, b.Slot)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("acquiring %d slots: %w", len(slots), err)
	}
	return before, nil
}

// Had is what whoever takes a slot, or gives it up, knows of it that the database may have forgotten.
type Had struct {
	Slot int
	Pos  int64 // it was claimed up to there
	Turn int64 // and was seen at this turn; 0: neither
	// Reach is how far any owner can have claimed. Tasks that stand here again, because the database has forgotten
	// that they had moved, may be claimed up to there.
	Reach int64
}

// claimed is how far a slot is to be claimed when it is taken as the database has it.
func (h Had) claimed(s handle.Slot) int64 {
	if s.MayHaveMoved() || s.Turn < h.Turn {
		return max(h.Pos, h.Reach)
	}
	return h.Pos
}

// Release gives back the slots of epoch that are drained, that is, all that was claimed is settled.
// It keeps and returns the others: their owner has something to settle, or a claim whose reply was
// lost has moved claimed. It also keeps a slot of which the database has forgotten a part: had is as with
// Acquire. It may be repeated.
//
// From the commit on, all later writes under the epoch fail, claims too. So if a claim and a
// release of one slot both succeed, the claim came first, and then the slot is not drained.
func (l Line) Release(ctx context.Context, slots []int, epoch int64, had ...Had) (kept []int, err error) {
	err = l.h.Transact(ctx, func(tx *sql.Tx) error {
		where := " WHERE slot IN (" + tables.Marks(len(slots)) + ") AND epoch = ? AND LENGTH(owner) > 0"
		a := append(tables.Args(slots), epoch)
		whole, known := remembered(had)
		if _, err := tx.ExecContext(ctx, "UPDATE slots SET owner = ?"+where+l.h.Conditions.Drained+whole, slices.Concat([]any{[]byte{}}, a, known)...); err != nil {
			return err
		}
		kept, err = tables.Fetch(ctx, tx, func(r *sql.Rows, slot *int) error { return r.Scan(slot) }, "SELECT slot FROM slots"+where+" ORDER BY slot", a...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("releasing %d slots: %w", len(slots), err)
	}
	return kept, nil
}

// remembered is the condition that the database remembers all that was had.
func remembered(had []Had) (clause string, args []any) {
	if len(had) == 0 {
		return "", nil
	}
	var turns []any
	for _, h := range had {
		args, turns = append(args, h.Slot, h.Pos), append(turns, h.Slot, h.Turn)
	}
	cases := " >= CASE slot" + strings.Repeat(" WHEN ? THEN ?", len(had)) + " ELSE 0 END"
	return " AND claimed" + cases + " AND turn" + cases, append(args, turns...)
}

// Abandon gives up the slots that are still held under epoch, drained or not. What is claimed and
// not settled in them is in doubt; the next owner deals with it. From the commit on, all later
// writes under the epoch fail. It may be repeated. had is as with Acquire.
func (l Line) Abandon(ctx context.Context, slots []int, epoch int64, had ...Had) error {
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		a := append([]any{[]byte{}}, tables.Args(slots)...)
		_, err := tx.ExecContext(ctx, "UPDATE slots SET owner = ? WHERE slot IN ("+tables.Marks(len(slots))+") AND epoch = ?", append(a, epoch)...)
		for _, h := range had {
			if err == nil {
				_, err = tx.ExecContext(ctx, "UPDATE slots SET claimed = ? WHERE slot = ? AND epoch = ? AND claimed < ?", h.Pos, h.Slot, epoch, h.Pos)
			}
			if err == nil && h.Turn > 0 {
				_, err = tx.ExecContext(ctx, "UPDATE slots SET claimed = ? WHERE slot = ? AND epoch = ? AND claimed < ? AND turn < ?", h.Reach, h.Slot, epoch, h.Reach, h.Turn)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("abandoning %d slots: %w", len(slots), err)
	}
	return nil
}
