package deadletter

import (
	"context"

	"github.com/notyet/notyet/store/letters"
)

// Purged is the progress of a purge.
type Purged struct {
	Deleted int64 `json:"deleted"`
	Next    int64 `json:"next"    doc:"id to go on after; 0: that was the last page"`
	UpTo    int64 `json:"up_to"   doc:"the last letter when the run began: give it back with the next page"`
	Missing []int `json:"missing,omitempty" doc:"databases that do not answer, by number: what they hold is not in this answer; absent: none"`
}

// Purger deletes the first letters of a filter, at most f.Limit (0: 1000). As for Pager, upTo
// excludes letters written while the purge runs.
type Purger interface {
	PurgePage(ctx context.Context, f letters.Filter, upTo int64) (Purged, error)
}

// PurgePage implements Purger on the database.
func (l *Local) PurgePage(ctx context.Context, f letters.Filter, upTo int64) (Purged, error) {
	upTo, err := l.last(ctx, upTo)
	if err != nil || upTo == 0 {
		return Purged{}, err
	}
	f.UpTo = upTo
	deleted, next, err := letters.New(l.store).Purge(auditing(ctx, "purge", f), f)
	return Purged{Deleted: deleted, Next: next, UpTo: upTo}, err
}

// Purge deletes, page by page, every letter of the filter that exists at the beginning. f.Limit: 0
// means no limit. With an error, Purge returns the number deleted until then.
func Purge(ctx context.Context, p Purger, f letters.Filter, progress func(Progress)) (int64, error) {
	const pageSize = 1000
	var total, upTo int64
	left := f.Limit
	for {
		f.Limit = pageSize
		if left > 0 {
			f.Limit = min(pageSize, left-int(total))
		}
		page, err := p.PurgePage(ctx, f, upTo)
		total += page.Deleted
		if progress != nil {
			progress(Progress{Done: total})
		}
		if err != nil || page.Next == 0 || left > 0 && total >= int64(left) {
			return total, err
		}
		f.After, upTo = page.Next, page.UpTo
	}
}
