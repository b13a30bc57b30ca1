package line

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// RetireBite is how many tasks Retire forgets at most. It keeps the statement short.
const RetireBite = tables.MaxRows

// Retire forgets ended tasks of a piece of a slot's line, the oldest first and at most RetireBite.
// It returns how many, and the rest of the piece: go on until that is empty. The rest begins behind
// the forgotten tasks, because the server still walks over deleted rows for a while. A forgotten
// task takes its version with it, so the piece must lie further back than any request can be late.
func (l Line) Retire(ctx context.Context, r Range) (n int, rest Range, err error) {
	to := r.To
	if r.Slot != task.OutOfLine {
		var done int64
		if err := l.h.DB.QueryRowContext(ctx, "SELECT done FROM slots WHERE slot = ?", r.Slot).Scan(&done); err != nil {
			return 0, r, fmt.Errorf("reading how far slot %d is settled: %w", r.Slot, err)
		}
		to = min(to, done) // what lies beyond it has not ended
	}
	var last int64
	seqs, err := tables.Fetch(ctx, l.h.DB, func(rows *sql.Rows, seq *int64) error { return rows.Scan(seq, &last) },
		"SELECT seq, pos FROM tasks WHERE slot = ? AND pos > ? AND pos <= ? ORDER BY pos LIMIT ?", r.Slot, r.From, to, RetireBite)
	if err != nil {
		return 0, r, fmt.Errorf("looking for ended tasks of slot %d: %w", r.Slot, err)
	}
	if len(seqs) > 0 {
		// The place is asked again: a tombstone may have been renewed meanwhile.
		if _, err := l.h.Exec(ctx, "DELETE FROM tasks WHERE seq IN ("+tables.Marks(len(seqs))+") AND slot = ? AND pos <= ?", append(tables.Args(seqs), r.Slot, to)...); err != nil {
			return 0, r, fmt.Errorf("retiring %d tasks of slot %d: %w", len(seqs), r.Slot, err)
		}
	}
	rest = Range{Slot: r.Slot, From: r.To, To: r.To}
	if len(seqs) == RetireBite {
		rest.From = last - 1 // more may have ended at that very place
	}
	return len(seqs), rest, nil
}

// NextEnded returns when the first task after the given time (Unix ms) ended out of the line.
func (l Line) NextEnded(ctx context.Context, after int64) (pos int64, ok bool, err error) {
	next, err := l.h.Beyond(ctx, l.h.Reads(), []handle.SlotPos{{Slot: task.OutOfLine, Pos: after}})
	if err != nil || len(next) == 0 {
		return 0, false, err
	}
	return next[0].Pos, true, nil
}
