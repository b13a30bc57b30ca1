// Package lettertest reads dead letters for tests.
package lettertest

import (
	"cmp"
	"context"

	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

// All returns the first f.Limit dead letters (0: 100) that the filter selects, in the order in which
// they were written, however many others it has to look at.
func All(ctx context.Context, from letters.Letters, f letters.Filter) ([]task.DeadLetter, error) {
	var out []task.DeadLetter
	for left := cmp.Or(f.Limit, 100); ; {
		f.Limit = left
		page, err := from.Select(ctx, f)
		if err != nil {
			return nil, err
		}
		found, err := from.Read(ctx, page.IDs, true)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
		if left -= len(page.IDs); left <= 0 || page.Next == 0 {
			return out, nil
		}
		f.After = page.Next
	}
}
