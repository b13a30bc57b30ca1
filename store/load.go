package store

import (
	"context"
	"fmt"
)

// Cursor is how far into a claimed range its tasks have been read: up to and including (Pos, Seq).
type Cursor struct {
	Pos int64
	Seq int64
}

// Page bounds what one Load may bring into memory. A page ends early, never late: after Rows tasks, or with the task
// whose body reaches Bytes.
type Page struct {
	Rows  int
	Bytes int
}

// Load reads claimed tasks with their bodies: those of the slots that lie beyond the cursor and not beyond to, ordered by
// slot, pos and seq. more says that the page ended before they did: then all slots before the last task's are complete,
// that slot goes on behind the last task, and those after it have not been read.
//
// Within a claimed range nothing appears or disappears but by the owner's hand, so pages add up to the whole.
func (s *Store) Load(ctx context.Context, slots []int, after Cursor, to int64, page Page) (tasks []Task, more bool, err error) {
	if len(slots) == 0 || to < after.Pos {
		return nil, false, nil
	}
	a := append(args(slots), after.Pos, to, after.Pos, after.Seq, page.Rows+1)
	rows, err := s.db.QueryContext(ctx, "SELECT "+taskColumns+" FROM tasks WHERE slot IN ("+marks(len(slots))+
		") AND pos >= ? AND pos <= ? AND (pos > ? OR seq > ?) ORDER BY slot, pos, seq LIMIT ?", a...)
	if err != nil {
		return nil, false, fmt.Errorf("loading claimed tasks: %w", err)
	}
	defer rows.Close()
	bytes := 0
	for rows.Next() {
		if len(tasks) == page.Rows || len(tasks) > 0 && bytes >= page.Bytes {
			return tasks, true, nil
		}
		var t Task
		if err := scanTask(rows, &t); err != nil {
			return nil, false, fmt.Errorf("loading claimed tasks: %w", err)
		}
		bytes += len(t.Body)
		tasks = append(tasks, t)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("loading claimed tasks: %w", err)
	}
	return tasks, false, nil
}
