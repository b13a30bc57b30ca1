package deadletter

import (
	"context"

	"github.com/notyet/notyet/store"
)

// Purger deletes the first letters that a filter selects, and answers how many and the id to go on after (0: no more).
type Purger interface {
	PurgePage(ctx context.Context, f store.DeadFilter) (deleted, next int64, err error)
}

// PurgePage implements Purger on the database itself.
func (l *Local) PurgePage(ctx context.Context, f store.DeadFilter) (deleted, next int64, err error) {
	return l.store.PurgeDead(ctx, f)
}

// Purge deletes every letter that the filter selects, page by page; f.Limit bounds them, 0 does not. On an error it
// answers what was deleted until then.
func Purge(ctx context.Context, p Purger, f store.DeadFilter, progress func(Progress)) (int64, error) {
	const pageSize = 1000
	var total int64
	left := f.Limit
	for {
		f.Limit = pageSize
		if left > 0 {
			f.Limit = min(pageSize, left-int(total))
		}
		deleted, next, err := p.PurgePage(ctx, f)
		total += deleted
		if progress != nil {
			progress(Progress{Done: total})
		}
		if err != nil || next == 0 || left > 0 && total >= int64(left) {
			return total, err
		}
		f.After = next
	}
}

// Letters implements Source.
func (l *Local) Letters(ctx context.Context, f store.DeadFilter, content bool) ([]Letter, error) {
	return List(ctx, l.store, f, content)
}
