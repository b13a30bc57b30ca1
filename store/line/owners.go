package line

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Acquire makes owner the owner of the slots under epoch, and returns their former state, in order.
// It leaves out slots that another owner holds at epoch or above, and slots given back under epoch.
// From the commit on, all writes of the previous owner fail, and the slots are sure. Repeating the
// call after a lost reply is harmless.
//
// known is owner's knowledge of the slots. If the database was set back and has less claimed, owner
// claims as much again: its deliveries are in doubt then, and no longer pending. If moves of tasks
// to another slot may be forgotten, owner claims what that slot's owner may have claimed.
func (l Line) Acquire(ctx context.Context, slots []int, epoch int64, owner string, known ...Known) ([]handle.Slot, error) {
	if owner == "" {
		return nil, errors.New("acquiring slots: the owner must have a name, for a slot without one is free")
	}
	var before []handle.Slot
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		sent, err := l.lockSent(ctx, tx, known)
		if err != nil {
			return err
		}
		before, err = tables.Fetch(ctx, tx, handle.ScanSlot, "SELECT "+l.h.SlotColumns()+" FROM slots WHERE slot IN ("+tables.Marks(len(slots))+") AND (epoch < ? OR (epoch = ? AND owner = ?)) ORDER BY slot"+l.h.Locking(handle.LockExclusive), append(tables.Args(slots), epoch, epoch, []byte(owner))...)
		if err != nil || len(before) == 0 {
			return err
		}
		// With claims, sent tasks may be forgotten: the scanner reads them again, behind claimed.
		taken := []any{int64(everywhere), epoch, []byte(owner), epoch, epoch}
		for _, b := range before {
			taken = append(taken, b.Slot)
		}
		_, err = tx.ExecContext(ctx, "UPDATE slots SET doubt = CASE WHEN "+l.h.Unsure("slots")+" THEN ? ELSE claimed END, epoch = ?, owner = ?, doubt_epoch = ?, life_epoch = ?, life = "+l.h.Life+" WHERE slot IN ("+tables.Marks(len(before))+")", taken...)
		if err != nil {
			return err
		}
		return l.remember(ctx, tx, before, known, sent)
	})
	return before, wrap.Err(err, "acquiring %d slots", len(slots))
}

// Known is a taker's or giver's knowledge of slots that the database may have forgotten.
type Known struct {
	Slots []Had
	Sent  []Sent // what its producers have or delivered, wherever it stands: nobody can cancel or stop that
}

// Sent is an attempt that a producer has, or has delivered.
type Sent struct {
	Slot   int // in which it was claimed
	Seq    int64
	Number int32 // see task.SendNumber
}

func had(known []Known) (out []Had) {
	for _, k := range known {
		out = append(out, k.Slots...)
	}
	return out
}

// lockSent locks the tasks that producers have, before any slot, as all writers do.
func (l Line) lockSent(ctx context.Context, tx *sql.Tx, known []Known) (sent []task.Task, err error) {
	for _, k := range known {
		seqs := make([]int64, len(k.Sent))
		for i, one := range k.Sent {
			seqs[i] = one.Seq
		}
		rows, err := tables.FetchIn(ctx, tx, func(r *sql.Rows, t *task.Task) error {
			return r.Scan(&t.Seq, &t.Slot, &t.Pos, &t.State, &t.Attempt, &t.Replay)
		}, "SELECT seq, slot, pos, state, attempt, replay FROM tasks WHERE seq", seqs, " ORDER BY seq"+l.h.Locking(handle.LockExclusive))
		if err != nil {
			return nil, fmt.Errorf("locking %d tasks that producers have: %w", len(k.Sent), err)
		}
		sent = append(sent, rows...)
	}
	return sent, nil
}

// remember claims the locked slots as far as is known, and makes retries of their tasks at
// producers: of pending ones, and of waiting ones with a forgotten attempt. It notes those that the
// database has forgotten.
func (l Line) remember(ctx context.Context, tx *sql.Tx, slots []handle.Slot, known []Known, sent []task.Task) error {
	done := make(map[int]int64, len(slots))
	for i := range slots {
		s := &slots[i]
		done[s.Slot] = s.Done
		to := s.Claimed
		for _, h := range had(known) {
			if h.Slot == s.Slot {
				to = max(to, h.claimed(*s))
			}
		}
		if to == s.Claimed {
			continue
		}
		s.Claimed = to
		if _, err := tx.ExecContext(ctx, "UPDATE slots SET claimed = ?, doubt = CASE WHEN doubt < ? THEN ? ELSE doubt END WHERE slot = ?", to, to, to, s.Slot); err != nil {
			return err
		}
	}
	numbers, slotOf := map[int64]int32{}, map[int64]int{}
	for _, k := range known {
		for _, one := range k.Sent {
			numbers[one.Seq], slotOf[one.Seq] = max(numbers[one.Seq], one.Number), one.Slot
		}
	}
	var seqs []any
	for _, t := range sent {
		delete(slotOf, t.Seq)
		forgotten := t.State <= task.StateReport && task.SendNumber(t.Replay, t.Attempt) < numbers[t.Seq]
		if to, ours := done[t.Slot]; ours && t.Pos > to && (t.State == task.StateLine || forgotten) {
			seqs = append(seqs, t.Seq)
		}
	}
	if err := tables.ExecIn(ctx, tx, "UPDATE tasks SET state = ?, idle = 0 WHERE seq", seqs, int(task.StateRetry)); err != nil {
		return err
	}
	forgotten := map[int]map[int64]int32{} // numbers by slot and seq
	for seq, slot := range slotOf {
		if forgotten[slot] == nil {
			forgotten[slot] = map[int64]int32{}
		}
		forgotten[slot][seq] = numbers[seq]
	}
	return l.note(ctx, tx, slots, forgotten, slices.Collect(maps.Keys(slotOf)))
}

// note notes, in locked slots, the tasks that the database has forgotten, and leaves out old notes.
func (l Line) note(ctx context.Context, tx *sql.Tx, slots []handle.Slot, forgotten map[int]map[int64]int32, seqs []int64) error {
	there, err := tables.FetchIn(ctx, tx, func(r *sql.Rows, seq *int64) error { return r.Scan(seq) }, "SELECT seq FROM tasks WHERE seq", seqs, "")
	if err == nil && len(there) > 0 { // stored since they were to be locked
		err = handle.ErrClaimed
	}
	if err != nil {
		return fmt.Errorf("looking once more for %d tasks that producers have: %w", len(seqs), err)
	}
	if len(slots) == 0 {
		return nil
	}
	numbers := make([]any, len(slots))
	for i, s := range slots {
		numbers[i] = s.Slot
	}
	rows, err := tables.Fetch(ctx, tx, func(r *sql.Rows, s *handle.Slot) error { return r.Scan(&s.Slot, &s.Sent) }, "SELECT slot, COALESCE(sent, '') FROM slots WHERE slot IN ("+tables.Marks(len(slots))+")", numbers...)
	if err != nil {
		return fmt.Errorf("reading what was sent and forgotten: %w", err)
	}
	now, err := l.h.TimeIn(ctx, tx)
	for _, s := range rows {
		if notes := s.Sent.With(forgotten[s.Slot], now.UnixMilli()); err == nil && notes != s.Sent {
			_, err = tx.ExecContext(ctx, "UPDATE slots SET sent = ? WHERE slot = ?", []byte(notes), s.Slot)
		}
	}
	return err
}

// Had is what is known of one slot.
type Had struct {
	Slot int
	Pos  int64 // it was claimed up to there
	Turn int64 // and was seen at this turn; 0: neither
	// Reach is how far any owner can have claimed. Tasks that stand here again after a forgotten
	// move may be claimed up to there.
	Reach int64
}

// claimed is how far a slot is to be claimed when it is taken in the database's state.
func (h Had) claimed(s handle.Slot) int64 {
	if s.MayHaveMoved() || s.Turn < h.Turn {
		return max(h.Pos, h.Reach)
	}
	return h.Pos
}

// Release gives back the drained slots of epoch, with all that was claimed settled. It keeps and
// returns the others: their owner has something to settle, or a claim with a lost reply has moved
// claimed. It also keeps a slot of which the database has forgotten a part: known is as with
// Acquire. It may be repeated.
//
// From the commit on, all later writes under the epoch fail, claims too. So if a claim and a
// release of one slot both succeed, the claim came first, and then the slot is not drained.
func (l Line) Release(ctx context.Context, slots []int, epoch int64, known ...Known) (kept []int, err error) {
	err = l.h.Transact(ctx, func(tx *sql.Tx) error {
		where := " WHERE slot IN (" + tables.Marks(len(slots)) + ") AND epoch = ? AND LENGTH(owner) > 0"
		a := append(tables.Args(slots), epoch)
		whole, args := remembered(had(known))
		if _, err := tx.ExecContext(ctx, "UPDATE slots SET owner = ?"+where+l.h.Conditions.Drained+whole, slices.Concat([]any{[]byte{}}, a, args)...); err != nil {
			return err
		}
		kept, err = tables.Fetch(ctx, tx, func(r *sql.Rows, slot *int) error { return r.Scan(slot) }, "SELECT slot FROM slots"+where+" ORDER BY slot", a...)
		return err
	})
	return kept, wrap.Err(err, "releasing %d slots", len(slots))
}

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

// Abandon gives up the slots still held under epoch, drained or not. Claimed and unsettled tasks in
// them are in doubt; the next owner deals with them. From the commit on, all later writes under the
// epoch fail. It may be repeated. known is as with Acquire.
func (l Line) Abandon(ctx context.Context, slots []int, epoch int64, known ...Known) error {
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		sent, err := l.lockSent(ctx, tx, known)
		if err != nil {
			return err
		}
		rows, err := tables.Fetch(ctx, tx, handle.ScanSlot, "SELECT "+l.h.SlotColumns()+" FROM slots WHERE slot IN ("+tables.Marks(len(slots))+") AND epoch = ? ORDER BY slot"+l.h.Locking(handle.LockExclusive), append(tables.Args(slots), epoch)...)
		if err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, "UPDATE slots SET owner = ? WHERE slot IN ("+tables.Marks(len(slots))+") AND epoch = ?", append(append([]any{[]byte{}}, tables.Args(slots)...), epoch)...); err != nil {
			return err
		}
		return l.remember(ctx, tx, rows, known, sent)
	})
	return wrap.Err(err, "abandoning %d slots", len(slots))
}

// epochLeap is how many epochs NextEpoch skips in a new life of the database: more than it forgot.
const epochLeap = 1_000_000

// NextEpoch allocates a fencing epoch. Each call returns a higher one, whatever else was lost or
// rebuilt. After the database was set back, the epoch exceeds the slots' epochs, because owners
// have taken the slots anew, and the forgotten ones: see store/life.go.
func (l Line) NextEpoch(ctx context.Context) (int64, error) {
	var epoch int64
	name := []byte("epoch")
	err := l.h.Transact(ctx, func(tx *sql.Tx) error {
		var taken int64
		if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(epoch), 0) FROM slots").Scan(&taken); err != nil {
			return err
		}
		// MySQL assigns from left to right. An older program notes no life.
		res, err := tx.ExecContext(ctx, "UPDATE meta SET value = CASE WHEN value < ? THEN ? ELSE value END + CASE WHEN LENGTH(data) = 0 OR data = "+l.h.Life+" THEN 1 ELSE ? END, data = "+l.h.Life+" WHERE name = ?", taken, taken, epochLeap, name)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			if _, err := tx.ExecContext(ctx, "INSERT INTO meta (name, value, data) VALUES (?, ?, "+l.h.Life+")", name, taken+1); err != nil {
				return err
			}
		}
		return tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", name).Scan(&epoch)
	})
	return epoch, wrap.Err(err, "allocating an epoch")
}
