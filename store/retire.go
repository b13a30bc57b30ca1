package store

import (
	"context"
	"database/sql"
	"fmt"
)

// OutOfLine is the slot of tasks that were ended by hand: cancelled, reported, dead. Their place is when they ended.
const OutOfLine = outOfLine

// Retire forgets at most limit ended tasks of a slot, the oldest first: those that stand at or before the given place (in
// Unix ms) and are settled. It answers how many there were; fewer than limit means that none is left. What is forgotten
// takes its version with it, so the place must lie further back than any request can be late.
func (s *Store) Retire(ctx context.Context, slot int, before int64, limit int) (int, error) {
	if slot != OutOfLine {
		var done int64
		if err := s.db.QueryRowContext(ctx, "SELECT done FROM slots WHERE slot = ?", slot).Scan(&done); err != nil {
			return 0, fmt.Errorf("reading how far slot %d is settled: %w", slot, err)
		}
		before = min(before, done)
	}
	limit = min(limit, maxRows)
	seqs, err := fetch(ctx, s.db, func(r *sql.Rows, seq *int64) error { return r.Scan(seq) },
		"SELECT seq FROM tasks WHERE slot = ? AND pos <= ? ORDER BY pos LIMIT ?", slot, before, limit)
	if err != nil {
		return 0, fmt.Errorf("looking for ended tasks of slot %d: %w", slot, err)
	}
	if len(seqs) == 0 {
		return 0, nil
	}
	// The place is asked again: a tombstone may have been renewed meanwhile.
	if _, err := s.exec(ctx, "DELETE FROM tasks WHERE seq IN ("+marks(len(seqs))+") AND slot = ? AND pos <= ?", append(args(seqs), slot, before)...); err != nil {
		return 0, fmt.Errorf("retiring %d tasks of slot %d: %w", len(seqs), slot, err)
	}
	return len(seqs), nil
}
