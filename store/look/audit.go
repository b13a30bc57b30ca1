package look

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// AuditFilter selects entries of the audit log. The zero value selects all.
type AuditFilter struct {
	Who, What, Topic, TaskID string
	From, To                 int64 // Unix ms; To is not included, 0: no bound
	Limit                    int   // 0: 100
	OfTask                   bool  // without changes of the timer with the same name
	After                    *AuditPlace
	// Allowed tells whether an entry about the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

// AuditPlace is where a page ends.
type AuditPlace struct{ At, ID int64 }

// AuditPage is one page, the newest entries first. The next one begins at More; nil: this was the
// last. A page can be short or empty before the last: looking at excluded entries is limited too.
type AuditPage struct {
	Entries []handle.AuditEntry
	More    *AuditPlace
}

// These bound the entries that one page looks at, and those that it reads at once.
const (
	AuditExamined = 5000
	auditAtOnce   = 500
)

// ListAudit reads one page of the audit log, by the index of times, or of a named task's id.
func (r Reader) ListAudit(ctx context.Context, f AuditFilter) (AuditPage, error) {
	entries, more, err := gather(f.Limit, AuditExamined, auditAtOnce, func(n int) ([]handle.AuditEntry, error) { return r.readAudit(ctx, f, n) },
		func(e handle.AuditEntry) bool {
			f.After = &AuditPlace{e.At, e.ID}
			return f.wants(e)
		})
	if err != nil {
		return AuditPage{}, fmt.Errorf("listing the audit log: %w", err)
	}
	page := AuditPage{Entries: entries}
	if more {
		page.More = f.After
	}
	return page, nil
}

func (f *AuditFilter) wants(e handle.AuditEntry) bool {
	return (f.Who == "" || e.Who == f.Who) && (f.What == "" || e.What == f.What) && (f.Topic == "" || e.Topic == f.Topic) && !(f.OfTask && strings.HasPrefix(e.What, "timer")) && (f.Allowed == nil || f.Allowed(e.Topic))
}

// readAudit reads the next n entries in the order of time, the newest first.
func (r Reader) readAudit(ctx context.Context, f AuditFilter, n int) (out []handle.AuditEntry, err error) {
	last := AuditPlace{math.MaxInt64, math.MaxInt64}
	if f.To > 0 {
		last.At = f.To - 1
	}
	if f.After != nil && f.After.At <= last.At {
		last = *f.After
	}
	query := r.h.Cold(ctx, "audit").Where("at >= ? AND at <= ? AND (at < ? OR id < ?)", f.From, last.At, last.At, last.ID)
	if f.TaskID != "" {
		query = query.Where("task_id = ?", []byte(f.TaskID))
	}
	err = query.Order("at DESC, id DESC").Limit(n).Find(&out).Error
	return out, tables.Timely(err)
}
