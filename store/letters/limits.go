package letters

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/internal/wrap"
)

// Bite is how many dead letters Retire deletes at most: each may hold megabytes.
const Bite = 200

// Retire deletes dead letters from before the given time (Unix ms), the oldest first, at most Bite.
// more: there may be others.
func (ls Letters) Retire(ctx context.Context, before int64) (n int, more bool, err error) {
	if n, more, err = ls.h.Retire(ctx, "dead_letters", "died_at", before, Bite); err != nil {
		return 0, false, fmt.Errorf("deleting old dead letters: %w", err)
	}
	return n, more, nil
}

// Measure estimates the number of dead letters and of their bytes. Counting would read all.
func (ls Letters) Measure(ctx context.Context) (count, bytes int64, err error) {
	err = ls.h.Reads().QueryRowContext(ctx, ls.h.Dialect.Measure("dead_letters", "LENGTH(body) + LENGTH(reason) + 200")).Scan(&count, &bytes)
	return count, bytes, wrap.Err(err, "measuring the dead letters")
}
