package intake

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/notyet/notyet/store/internal/handle"
)

// Epoch is the leader epoch of the last record that was stored of a source. Kafka numbers the
// leaders of a partition: in one log, an offset and an epoch name one record.
type Epoch struct {
	Number int32 // -1: not known
	From   int64 // where the records of that epoch begin
	To     int64 // behind the last stored record of it; a scanner of an older version moves Source.Next without it
}

// Next is the epoch once the record at offset is stored too.
func (e Epoch) Next(number int32, offset int64) Epoch {
	switch {
	case number < 0: // the broker or the batch does not say
	case number == e.Number:
		e.To = offset + 1
	default:
		e = Epoch{number, offset, offset + 1}
	}
	return e
}

// setEpochs returns the part of an update that stores the sources' epochs, as far as they are known.
func setEpochs(part []Advance, epochs map[int]Epoch) (string, []any) {
	var numbers, from, to []any
	for _, a := range part {
		if e, ok := epochs[a.Source]; ok {
			numbers = append(numbers, a.Source, e.Number)
			from = append(from, a.Source, e.From)
			to = append(to, a.Source, e.To)
		}
	}
	if len(numbers) == 0 {
		return "", nil
	}
	var set strings.Builder
	for _, column := range []string{"epoch", "epoch_from", "epoch_to"} {
		set.WriteString(", " + column + " = CASE src" + strings.Repeat(" WHEN ? THEN ?", len(numbers)/2) + " ELSE " + column + " END")
	}
	return set.String(), append(append(numbers, from...), to...)
}

// Restart retires a source whose log has lost records, and begins another one for its partition at
// offset from. What was stored stays: its tasks are delivered and its events published. The new
// source has numbers of its own, so a record at an offset that was used before makes another task.
// ErrFenced: the source has changed since it was read, because a scanner stored more or somebody
// restarted it already.
func (in Intake) Restart(ctx context.Context, src Source, from int64) (Source, error) {
	now, err := in.h.Time(ctx)
	if err != nil {
		return Source{}, err
	}
	next := src
	next.Next, next.Generation, next.Epoch = from, src.Generation+1, Epoch{Number: -1}
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE sources SET retired_at = ? WHERE src = ? AND next_offset = ? AND retired_at = 0", now.UnixMilli(), src.ID, src.Next)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n != 1 {
			return handle.ErrFenced
		}
		if err := insertSource(ctx, tx, &next); err != nil {
			return err
		}
		_, err = in.h.Audit(ctx, tx, 1)
		return err
	})
	if err != nil {
		return Source{}, fmt.Errorf("restarting %s/%d at offset %d: %w", src.Topic, src.Partition, from, err)
	}
	return next, nil
}
