package letters

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/tables"
)

// Last is the highest id of a dead letter; 0: there are none. A run over many pages ends there, so
// tasks that die meanwhile are left out.
func (ls Letters) Last(ctx context.Context) (int64, error) {
	var id int64
	if err := ls.h.Cold(ctx, "dead_letters").Select("COALESCE(MAX(id), 0)").Scan(&id).Error; err != nil {
		return 0, fmt.Errorf("looking for the last dead letter: %w", tables.Timely(err))
	}
	return id, nil
}

// Purge deletes the first f.Limit dead letters (0: 1000) of the filter. It returns how many, and
// the id after which the next call goes on; 0: none are left. A letter that is replayed meanwhile
// stays, unless f.Replayed. The rows of dead tasks stay too: as long as they are remembered, a
// cancel gets the answer "dead".
func (ls Letters) Purge(ctx context.Context, f Filter) (deleted, next int64, err error) {
	if f.Limit <= 0 {
		f.Limit = tables.MaxRows
	}
	page, err := ls.Select(ctx, f)
	if err != nil {
		return 0, 0, err
	}
	var entry int64 // in the audit log
	err = tables.Chunks(page.IDs, func(part []int64) error {
		var n, written int64
		err := ls.h.Transact(ctx, func(tx *sql.Tx) (err error) {
			if n, err = ls.purgeIDs(ctx, tx, part, f.Replayed); err == nil {
				written, err = ls.h.AuditMore(ctx, tx, entry, n)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("purging %d dead letters: %w", len(part), err)
		}
		deleted, entry = deleted+n, written
		return nil
	})
	if err != nil {
		return deleted, 0, err
	}
	return deleted, page.Next, nil
}

// purgeIDs deletes letters, and spares those replayed meanwhile unless replayed is true.
func (ls Letters) purgeIDs(ctx context.Context, tx *sql.Tx, ids []int64, replayed bool) (int64, error) {
	these := ls.h.ColdIn(ctx, tx, "dead_letters").Where("id IN ?", ids)
	if !replayed {
		these = these.Where("replayed_at = 0")
	}
	gone := these.Delete(nil)
	return gone.RowsAffected, gone.Error
}

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
