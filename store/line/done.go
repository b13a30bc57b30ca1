package line

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Done closes (From, To] of a slot: all of it was delivered, in Count tasks that are still in the line.
type Done struct {
	Slot     int
	Epoch    int64
	From, To int64
	Count    int
}

// moveDone moves done where the database counts as many tasks in the range as were settled. So done
// cannot pass a task that was overlooked. The count reads the (slot, pos) index only. A range must
// begin at done, and must not reach beyond claimed, where writers still put tasks. A range that is
// settled already is ignored.
func moveDone(ctx context.Context, tx *sql.Tx, done []Done, at map[int]handle.Slot) (mismatch []int, stands map[int]int64, err error) {
	if len(done) == 0 {
		return nil, nil, nil
	}
	stands = map[int]int64{}
	ranges := make([]Range, len(done))
	for i, d := range done {
		ranges[i] = Range{d.Slot, d.From, d.To}
	}
	counts, err := countRanges(ctx, tx, ranges)
	if err != nil {
		return nil, nil, err
	}
	var fit []Done
	for _, d := range done {
		s := at[d.Slot]
		if d.To <= s.Done {
			continue
		}
		if d.From < s.Done {
			stands[d.Slot] = s.Done
			continue
		}
		if d.From > s.Done || d.To > s.Claimed || counts[d.Slot] != d.Count {
			mismatch = append(mismatch, d.Slot)
			continue
		}
		fit = append(fit, d)
	}
	for part := range slices.Chunk(fit, tables.MaxCases) {
		var a, slots []any
		for _, d := range part {
			a = append(a, d.Slot, d.To)
			slots = append(slots, d.Slot)
		}
		_, err := tx.ExecContext(ctx, "UPDATE slots SET done = CASE slot"+strings.Repeat(" WHEN ? THEN ?", len(part))+" END WHERE slot IN ("+tables.Marks(len(part))+")", append(a, slots...)...)
		if err != nil {
			return nil, nil, fmt.Errorf("moving done: %w", err)
		}
	}
	return mismatch, stands, nil
}
