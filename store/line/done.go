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

// Done closes (From, To] of a slot: all was delivered. The Tally is of the tasks still in the line.
type Done struct {
	Slot     int
	Epoch    int64
	From, To int64
	Tally
}

// Tally tells tasks from others: their number, and a sum over the seqs, which name the contents.
type Tally struct {
	Count int
	Sum   int64
}

// tallied is the modulus of seqs: the sum over a slot's claimed tasks stays far below 1<<63.
const tallied = 1<<31 - 1

// Add counts a task.
func (t *Tally) Add(seq int64) {
	t.Count++
	t.Sum += seq % tallied
}

// moveDone moves done where the range has the very tasks that were settled. So done cannot pass an
// overlooked or replaced task. The look reads the (slot, pos) index only. A range must begin at
// done, and end at claimed at most: writers still put tasks beyond. A settled range is ignored.
func moveDone(ctx context.Context, tx *sql.Tx, done []Done, at map[int]handle.Slot) (mismatch []int, stands map[int]int64, err error) {
	if len(done) == 0 {
		return nil, nil, nil
	}
	stands = map[int]int64{}
	ranges := make([]Range, len(done))
	for i, d := range done {
		ranges[i] = Range{d.Slot, d.From, d.To}
	}
	there, err := tallies(ctx, tx, ranges, fmt.Sprintf("SUM(seq %% %d)", tallied))
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
		if d.From > s.Done || d.To > s.Claimed || there[d.Slot] != d.Tally {
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
