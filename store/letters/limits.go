package letters

import (
	"context"
	"fmt"
)

// Bite is how many dead letters Retire deletes at most: each may hold megabytes.
const Bite = 200

// Retire deletes dead letters that died before the given time (Unix ms), the oldest first, at
// most Bite of them. more says that there may be others.
func (ls Letters) Retire(ctx context.Context, before int64) (n int, more bool, err error) {
	if n, more, err = ls.h.Retire(ctx, "dead_letters", "died_at", before, Bite); err != nil {
		return 0, false, fmt.Errorf("deleting old dead letters: %w", err)
	}
	return n, more, nil
}

// Measure returns the server's estimates of how many dead letters there are and how many bytes
// they take. Counting them would read them all.
func (ls Letters) Measure(ctx context.Context) (count, bytes int64, err error) {
	if err := ls.h.Reads().QueryRowContext(ctx, ls.h.Dialect.Measure("dead_letters", "LENGTH(body) + LENGTH(reason) + 200")).Scan(&count, &bytes); err != nil {
		return 0, 0, fmt.Errorf("measuring the dead letters: %w", err)
	}
	return count, bytes, nil
}
