package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/task"
)

// Start is a run of a timer that is due and may not be released while an earlier one is unfinished.
type Start struct {
	SlotEpoch
	Seq   int64
	Topic string
	Timer string // id
}

// StartRuns decides which of the runs may be released, and remembers each of them as the latest of its
// timer. It returns those that may not, by seq. They come in the order in which they are due. ErrFenced:
// a slot has another owner, and nothing was decided. Repeating the call after a lost reply is harmless: a
// run that was started once may be released.
//
// A run that was started is unfinished until its task has ended, also where its timer was deleted, or
// deleted and set again. Where the deleted timer has been forgotten meanwhile, nothing is remembered,
// and it may be released.
func (s *Store) StartRuns(ctx context.Context, starts []Start) (refused map[int64]bool, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		refused = map[int64]bool{}
		return chunks(starts, func(part []Start) error { return s.startRuns(ctx, tx, part, refused) })
	})
	if err != nil {
		return nil, fmt.Errorf("starting %d runs: %w", len(starts), err)
	}
	return refused, nil
}

func (s *Store) startRuns(ctx context.Context, tx *sql.Tx, starts []Start, refused map[int64]bool) error {
	var keys []any
	set := slotSet{}
	for _, r := range starts {
		key := task.Ident(r.Topic, r.Timer)
		keys = append(keys, key[:])
		set.add(r.Slot)
	}
	slices.SortFunc(keys, func(a, b any) int { return slices.Compare(a.([]byte), b.([]byte)) })
	type row struct {
		key     []byte
		running int64
	}
	rows, err := fetch(ctx, tx, func(r *sql.Rows, v *row) error { return r.Scan(&v.key, &v.running) },
		"SELECT ident, running FROM timers WHERE ident IN ("+marks(len(keys))+")"+s.locking(lockExclusive), keys...)
	if err != nil {
		return fmt.Errorf("reading timers: %w", err)
	}
	running := map[[16]byte]int64{}
	var seqs []int64
	for _, r := range rows {
		running[[16]byte(r.key)] = r.running
		seqs = append(seqs, r.running)
	}
	slots, err := s.lockSlots(ctx, tx, set, lockShared) // nobody takes them over meanwhile
	if err != nil {
		return err
	}
	for _, r := range starts {
		if !s.conditions.heldUnder(slots[r.Slot], r.Epoch) {
			return ErrFenced
		}
	}
	unfinished, err := s.unfinished(ctx, tx, seqs)
	if err != nil {
		return err
	}
	for _, r := range starts {
		key := task.Ident(r.Topic, r.Timer)
		before, known := running[key]
		switch {
		case !known || before == r.Seq:
		case unfinished[before]:
			refused[r.Seq] = true
		default:
			if _, err := tx.ExecContext(ctx, "UPDATE timers SET running = ? WHERE ident = ?", r.Seq, key[:]); err != nil {
				return fmt.Errorf("starting a run: %w", err)
			}
			running[key], unfinished[r.Seq] = r.Seq, true
		}
	}
	return nil
}

// unfinished tells which of the tasks have not ended: they are pending, with their owner, or wait for a report or a retry.
func (s *Store) unfinished(ctx context.Context, tx *sql.Tx, seqs []int64) (map[int64]bool, error) {
	out := map[int64]bool{}
	rows, err := fetch(ctx, tx, func(r *sql.Rows, seq *int64) error { return r.Scan(seq) },
		"SELECT t.seq FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.seq IN ("+marks(len(seqs))+") AND t.pos > s.done", args(seqs)...)
	if err != nil {
		return nil, fmt.Errorf("reading the runs before: %w", err)
	}
	for _, seq := range rows {
		out[seq] = true
	}
	return out, nil
}
