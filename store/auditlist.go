package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/notyet/notyet/store/internal/tables"
)

// AuditFilter selects entries of the audit log. The zero value selects all.
type AuditFilter struct {
	Who, What, Topic, TaskID string
	From, To                 int64 // Unix ms; To is not included, 0: no bound
	Limit                    int   // 0: 100
	After                    *AuditPlace
	// Allowed tells whether an entry about the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

// AuditPlace is where a page ends.
type AuditPlace struct{ At, ID int64 }

// AuditPage is one page, the newest entries first. More is where the next one begins; nil: this was
// the last. A page can be short or empty without being the last, because looking at entries that
// the filter excludes is limited too.
type AuditPage struct {
	Entries []AuditEntry
	More    *AuditPlace
}

// What one page may cost: entries that it looks at, and how many of them it reads at once.
const (
	auditExamined = 5000
	auditAtOnce   = 500
)

// ListAudit reads one page of the audit log. It walks the index of times, or that of task ids where
// the filter names a task.
func (s *Store) ListAudit(ctx context.Context, f AuditFilter) (AuditPage, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	page := AuditPage{Entries: []AuditEntry{}}
	for looked := 0; ; {
		n := min(auditAtOnce, auditExamined-looked)
		found, err := s.readAudit(ctx, f, n)
		if err != nil {
			return AuditPage{}, fmt.Errorf("listing the audit log: %w", err)
		}
		for _, e := range found {
			f.After = &AuditPlace{e.At, e.ID}
			if !f.wants(e) {
				continue
			}
			if page.Entries = append(page.Entries, e); len(page.Entries) == f.Limit {
				page.More = f.After
				return page, nil
			}
		}
		if len(found) < n {
			return page, nil
		}
		if looked += n; looked >= auditExamined {
			page.More = f.After
			return page, nil
		}
	}
}

func (f *AuditFilter) wants(e AuditEntry) bool {
	return (f.Who == "" || e.Who == f.Who) && (f.What == "" || e.What == f.What) && (f.Topic == "" || e.Topic == f.Topic) && (f.Allowed == nil || f.Allowed(e.Topic))
}

// readAudit reads the next n entries in the order of time, the newest first.
func (s *Store) readAudit(ctx context.Context, f AuditFilter, n int) ([]AuditEntry, error) {
	last := AuditPlace{math.MaxInt64, math.MaxInt64}
	if f.To > 0 {
		last.At = f.To - 1
	}
	if f.After != nil && f.After.At <= last.At {
		last = *f.After
	}
	where, a := "at >= ? AND at <= ? AND (at < ? OR id < ?)", []any{f.From, last.At, last.At, last.ID}
	if f.TaskID != "" {
		where, a = "task_id = ? AND "+where, append([]any{[]byte(f.TaskID)}, a...)
	}
	return tables.Ask(ctx, s.db, scanAudit, "SELECT id, at, who, via, os_user, what, topic, task_id, detail, amount FROM audit WHERE "+where+" ORDER BY at DESC, id DESC LIMIT ?", append(a, n)...)
}

func scanAudit(r *sql.Rows, e *AuditEntry) error {
	return r.Scan(&e.ID, &e.At, &e.Who, &e.Via, &e.User, &e.What, &e.Topic, &e.TaskID, &e.Detail, &e.Count)
}

// RetireAudit deletes entries that were written before the given time (Unix ms), the oldest first
// and a piece at a time. more says that there may be others.
func (s *Store) RetireAudit(ctx context.Context, before int64) (n int, more bool, err error) {
	ids, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, id *int64) error { return r.Scan(id) }, "SELECT id FROM audit WHERE at < ? ORDER BY at LIMIT ?", before, tables.MaxRows)
	if err != nil {
		return 0, false, fmt.Errorf("looking for old entries of the audit log: %w", err)
	}
	if len(ids) == 0 {
		return 0, false, nil
	}
	if _, err := s.exec(ctx, "DELETE FROM audit WHERE id IN ("+tables.Marks(len(ids))+")", tables.Args(ids)...); err != nil {
		return 0, false, fmt.Errorf("deleting %d old entries of the audit log: %w", len(ids), err)
	}
	return len(ids), len(ids) == tables.MaxRows, nil
}
