package intake

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/tables"
)

const pendingPatience = time.Minute

// PendingSize counts the unsettled tasks of some sources, in one state of the database: pending,
// being delivered, or waiting for a report. It reads the index of the lines, of all sources, from
// where they are settled. With bodies, it also reads the sources' rows, and sums up the bytes.
func (in Intake) PendingSize(ctx context.Context, sources []int, bodies bool) (map[int]Size, error) {
	out := make(map[int]Size, len(sources))
	if len(sources) == 0 {
		return out, nil
	}
	type row struct {
		source int
		Size
	}
	bytes := "0"
	if bodies {
		bytes = "SUM(LENGTH(body))"
	}
	query := "SELECT seq >> 48 AS src, COUNT(*), " + bytes + " FROM " + in.h.Dialect.Use("tasks", "line") + " WHERE slot = ? AND pos > ? AND seq >> 48 IN (" + tables.Marks(len(sources)) + ") GROUP BY src"
	err := in.h.View(ctx, func(q dialect.Querier) error {
		slots, err := in.h.Slots(ctx, q)
		if err != nil {
			return err
		}
		for _, slot := range slots {
			bound, cancel := context.WithTimeout(ctx, pendingPatience)
			rows, err := tables.Ask(bound, q, func(r *sql.Rows, v *row) error { return r.Scan(&v.source, &v.Tasks, &v.Bytes) },
				query, append([]any{slot.Slot, slot.Done}, tables.Args(sources)...)...)
			cancel()
			if err != nil {
				return fmt.Errorf("counting the pending tasks of slot %d: %w", slot.Slot, err)
			}
			for _, v := range rows {
				out[v.source] = out[v.source].Plus(v.Size)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
