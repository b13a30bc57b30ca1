package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/notyet/notyet/schemas"
)

// Done closes (From, To] of a slot: all of it was delivered, in Count tasks that are still in the line.
type Done struct {
	Slot     int
	Epoch    int64
	From, To int64
	Count    int
}

// Exit takes one task that its owner has claimed out of its place. With a State in the line it goes to a later place, at
// Pos or behind claimed; with another it has ended, with a dead letter where one is given.
type Exit struct {
	Seq     int64
	Slot    int
	Epoch   int64
	State   State
	Pos     int64
	Attempt int
	Lane    Lane
	Dead    *DeadLetter
}

func (e Exit) inLine() bool { return e.State <= StateReport }

// Settled is what Settle found.
type Settled struct {
	Fenced   []int   // slots that have another owner: nothing was written for them, nor for any other
	Mismatch []int   // slots whose range holds another number of tasks than was settled: their done stays
	Tell     Outbox  // the events, to be told and then forgotten (Told)
	Moved    []Place // where the exits that stay in the line stand now
}

// Settle makes outcomes durable in one transaction: the tasks that leave their place, the events that tell of it, and the
// done offsets of their slots. It may be repeated after an error whose outcome is unknown.
func (s *Store) Settle(ctx context.Context, done []Done, exits []Exit, events []schemas.Event, now int64) (Settled, error) {
	var out Settled
	err := s.transact(ctx, func(tx *sql.Tx) error {
		out = Settled{}
		if err := s.lockExits(ctx, tx, exits); err != nil {
			return err
		}
		set, epochs := slotSet{}, map[int]int64{}
		for _, d := range done {
			set.add(d.Slot)
			epochs[d.Slot] = d.Epoch
		}
		for _, e := range exits {
			set.add(e.Slot)
			epochs[e.Slot] = e.Epoch
		}
		slots, err := s.lockSlots(ctx, tx, set, lockExclusive)
		if err != nil {
			return err
		}
		for slot, epoch := range epochs {
			if slots[slot].Epoch != epoch {
				out.Fenced = append(out.Fenced, slot)
			}
		}
		if len(out.Fenced) > 0 {
			return ErrFenced
		}
		if out.Moved, err = s.writeExits(ctx, tx, exits, slots, now); err != nil {
			return err
		}
		if out.Mismatch, err = moveDone(ctx, tx, done); err != nil || len(events) == 0 {
			return err
		}
		out.Tell = Outbox{Source: ExitSource, Seq: now<<20 | rand.Int64N(1<<20), Events: events}
		return out.Tell.store(ctx, tx)
	})
	if err != nil && len(out.Fenced) == 0 {
		return Settled{}, fmt.Errorf("settling %d slots, %d exits: %w", len(done), len(exits), err)
	}
	return out, nil
}

// lockExits locks the rows before the slots, as writers do: the other order would lock each other out.
func (s *Store) lockExits(ctx context.Context, tx *sql.Tx, exits []Exit) error {
	if s.lite {
		return nil
	}
	return chunks(exits, func(part []Exit) error {
		_, err := fetch(ctx, tx, func(r *sql.Rows, v *int64) error { return r.Scan(v) },
			"SELECT seq FROM tasks WHERE seq IN ("+marks(len(part))+") ORDER BY seq"+lockExclusive, seqsOf(part)...)
		return err
	})
}

func seqsOf(exits []Exit) []any {
	out := make([]any, len(exits))
	for i, e := range exits {
		out[i] = e.Seq
	}
	return out
}

func (s *Store) writeExits(ctx context.Context, tx *sql.Tx, exits []Exit, slots map[int]Slot, now int64) ([]Place, error) {
	var moved []Place
	var dead []*DeadLetter
	for i := range exits {
		e := &exits[i]
		if e.inLine() {
			e.Pos = max(e.Pos, slots[e.Slot].Claimed+1)
			moved = append(moved, Place{e.Slot, e.Pos, e.Seq, e.Pos})
		} else {
			e.Pos = now
		}
		if e.Dead != nil {
			dead = append(dead, e.Dead)
		}
	}
	err := chunks(exits, func(part []Exit) error {
		var set strings.Builder
		var a []any
		column := func(name string, value func(Exit) any) {
			if set.Len() > 0 {
				set.WriteString(", ")
			}
			set.WriteString(name + " = CASE seq")
			for _, e := range part {
				set.WriteString(" WHEN ? THEN ?")
				a = append(a, e.Seq, value(e))
			}
			set.WriteString(" END")
		}
		column("slot", func(e Exit) any {
			if e.inLine() {
				return e.Slot
			}
			return outOfLine
		})
		column("pos", func(e Exit) any { return e.Pos })
		column("state", func(e Exit) any { return int(e.State) })
		column("lane", func(e Exit) any { return int64(e.Lane) })
		column("attempt", func(e Exit) any { return e.Attempt })
		_, err := tx.ExecContext(ctx, "UPDATE tasks SET "+set.String()+" WHERE seq IN ("+marks(len(part))+")", append(a, seqsOf(part)...)...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("moving %d tasks out of their place: %w", len(exits), err)
	}
	return moved, s.insertDead(ctx, tx, dead)
}

// moveDone moves done where the database counts as many tasks in the range as were settled: a task that was overlooked
// on the way cannot be passed over. The count reads the (slot, pos) index only.
func moveDone(ctx context.Context, tx *sql.Tx, done []Done) (mismatch []int, err error) {
	if len(done) == 0 {
		return nil, nil
	}
	ranges := make([]Range, len(done))
	for i, d := range done {
		ranges[i] = Range{d.Slot, d.From, d.To}
	}
	counts, err := countRanges(ctx, tx, ranges)
	if err != nil {
		return nil, err
	}
	var a, slots []any
	var set strings.Builder
	for _, d := range done {
		if counts[d.Slot] != d.Count {
			mismatch = append(mismatch, d.Slot)
			continue
		}
		set.WriteString(" WHEN ? THEN ?")
		a = append(a, d.Slot, d.To)
		slots = append(slots, d.Slot)
	}
	if len(slots) == 0 {
		return mismatch, nil
	}
	_, err = tx.ExecContext(ctx, "UPDATE slots SET done = CASE slot"+set.String()+" END WHERE slot IN ("+marks(len(slots))+")", append(a, slots...)...)
	if err != nil {
		return nil, fmt.Errorf("moving done: %w", err)
	}
	return mismatch, nil
}
