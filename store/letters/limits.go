package letters

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/store/internal/tables"
)

// Bite is how many dead letters Retire deletes at most: each may hold megabytes.
const Bite = 200

// Retire deletes dead letters that died before the given time (Unix ms), the oldest first, at
// most Bite of them. more says that there may be others.
func (ls Letters) Retire(ctx context.Context, before int64) (n int, more bool, err error) {
	var ids []int64
	err = ls.h.Gorm.WithContext(ctx).Table("dead_letters").Where("died_at < ?", before).Order("died_at").Limit(Bite).Pluck("id", &ids).Error
	if err != nil {
		return 0, false, fmt.Errorf("looking for old dead letters: %w", err)
	}
	if len(ids) == 0 {
		return 0, false, nil
	}
	if _, err := ls.h.Exec(ctx, "DELETE FROM dead_letters WHERE id IN ("+tables.Marks(len(ids))+")", tables.Args(ids)...); err != nil {
		return 0, false, fmt.Errorf("deleting %d old dead letters: %w", len(ids), err)
	}
	return len(ids), len(ids) == Bite, nil
}

// Measure returns the server's estimates of how many dead letters there are and how many bytes
// they take. Counting them would read them all.
func (ls Letters) Measure(ctx context.Context) (count, bytes int64, err error) {
	if err := ls.h.Reads().QueryRowContext(ctx, ls.h.Dialect.Measure("dead_letters", "LENGTH(body) + LENGTH(reason) + 200")).Scan(&count, &bytes); err != nil {
		return 0, 0, fmt.Errorf("measuring the dead letters: %w", err)
	}
	return count, bytes, nil
}
