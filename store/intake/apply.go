package intake

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Apply stores a batch in one transaction: the intake offsets, the tasks, the events. ErrFenced:
// the offsets are not where the batch begins, so at least a part of it is stored already; read the
// source again. ErrMap: the rules have another version than Batch.Map. ErrOneOfSeveral: a batch
// without one is of all records, and the database is one of several. After any other error the
// batch may be stored or not. Apply the same batch again: the offsets make sure that it is stored
// once.
//
// The order inside keeps a task from slipping between a writer and the owner of its slot. First
// come known rows and most new ones. Then a shared lock on their slots fixes every claimed offset.
// Then comes all that depends on claimed, then the commit. An owner that moves claimed waits for
// the lock and reads afterwards. Cancels of many take the lock last: see listedCancels.
//
// now tells the time in Unix ms, once the batch has its locks: an effect of another process's
// report counts from after that report.
func (in Intake) Apply(ctx context.Context, b Batch, now func() int64) (Applied, error) {
	if err := b.check(); err != nil {
		return Applied{}, fmt.Errorf("applying %d requests: %w", len(b.Changes), err)
	}
	out, err := in.apply(ctx, b, now, false)
	return out, wrap.Err(err, "applying %d requests", len(b.Changes))
}

func (in Intake) apply(ctx context.Context, b Batch, now func() int64, reconciling bool) (Applied, error) {
	var out Applied
	insert := in.h.Prepare(ctx, insertQuery(handle.PreparedRows))
	tries := 0
	err := in.h.Transact(ctx, func(tx *sql.Tx) error {
		tries++
		spread, err := in.h.SpreadIn(ctx, tx)
		if err != nil {
			return err
		}
		if err := in.h.CheckMap(ctx, tx, b.Map); err != nil {
			return err
		}
		if err := in.advance(ctx, tx, b); err != nil {
			return err
		}
		w := work{intake: in, tx: tx, insert: insert, clock: now, spread: spread, resolving: len(b.Resolve) > 0,
			mode: mode{reconciling: reconciling, first: tries == 1, oneOfMany: b.Map > 0, several: len(b.Changes) > 1 || len(b.Resolve) > 1 && !reconciling}}
		if err := w.run(ctx, b); err != nil {
			return err
		}
		out = w.applied
		_, err = in.h.Audit(ctx, tx, b.offsets()) // an operator's change: scanners have no actor
		return err
	})
	return out, err
}

func (w *work) run(ctx context.Context, b Batch) error {
	if err := w.intake.known.readAdvanced(ctx, w.tx, b.Advance); err != nil {
		return err
	}
	if len(b.Changes) == 1 && b.Changes[0].Cancels != nil {
		return (&listedCancels{work: w, Cancels: *b.Changes[0].Cancels, seq: b.Changes[0].Seq}).apply(ctx, b.Kept)
	}
	changes, err := w.boundUnknown(ctx, b)
	if err != nil {
		return err
	}
	b.Changes = changes
	w.now = w.clock()
	if err := w.decideTimers(ctx, b.Changes); err != nil {
		return err
	}
	list, err := w.gather(ctx, b)
	if err != nil {
		return err
	}
	if err := w.timers.apart(list); err != nil {
		return err
	}
	if err := w.splitFresh(&list); err != nil {
		return err
	}
	if err := w.insertTasks(ctx, w.fresh); err != nil {
		return err
	}
	if err := w.lockSlots(ctx, list); err != nil {
		return err
	}
	if err := w.placeFresh(ctx); err != nil {
		return err
	}
	if err := w.readWaiting(ctx, list); err != nil {
		return err
	}
	if err := w.knowSources(ctx, list); err != nil {
		return err
	}
	w.now = w.clock()
	for _, id := range list {
		if err := w.decideAll(id); err != nil {
			return err
		}
	}
	if err := w.write(ctx, list); err != nil {
		return err
	}
	if err := w.writeTimers(ctx); err != nil {
		return err
	}
	if err := w.writeWaiting(ctx, list); err != nil {
		return err
	}
	return w.finish(ctx)
}

func (w *work) finish(ctx context.Context) error {
	if err := w.intake.h.InsertDead(ctx, w.tx, w.dead); err != nil {
		return err
	}
	for _, d := range w.dead {
		if w.applied.Dead == nil {
			w.applied.Dead = map[string]int{}
		}
		w.applied.Dead[d.Kind]++
	}
	for _, box := range w.events {
		w.full = append(w.full, box)
	}
	for _, box := range handle.EventBoxes(w.proven, w.now) {
		w.full = append(w.full, &eventBox{Box: box})
	}
	for _, box := range w.full {
		if err := box.Store(ctx, w.tx); err != nil {
			return err
		}
		w.applied.Events = append(w.applied.Events, box.Box)
	}
	return nil
}

// advance moves the stored offsets, in the transaction with the tasks. ErrFenced: an offset is not
// at Advance.From, or a source is retired. So the records are stored already, another reader has
// them, or the partition was restarted.
func (in Intake) advance(ctx context.Context, tx *sql.Tx, b Batch) error {
	return tables.Chunks(b.Advance, func(part []Advance) error {
		var to, from, sources []any
		for _, a := range part {
			to = append(to, a.Source, a.To)
			from = append(from, a.Source, a.From)
			sources = append(sources, a.Source)
		}
		cases := "CASE src" + strings.Repeat(" WHEN ? THEN ?", len(part)) + " END"
		known, values := setKnown(part, b)
		alone := ""
		if b.Map == 0 {
			alone = " AND NOT EXISTS (SELECT 1 FROM meta WHERE name = ?)"
			from = append(from, []byte(handle.ShardNumber))
		}
		res, err := tx.ExecContext(ctx, "UPDATE sources SET next_offset = "+cases+known+" WHERE src IN ("+tables.Marks(len(part))+") AND retired_at = 0 AND next_offset "+in.h.Conditions.Expected+" "+cases+alone, slices.Concat(to, values, sources, from)...)
		if err != nil {
			return fmt.Errorf("moving the offsets of %d sources: %w", len(part), err)
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n != int64(len(part)) {
			if b.Map == 0 {
				if err := handle.CheckAlone(ctx, tx); err != nil {
					return err
				}
			}
			return fmt.Errorf("moving the offsets of sources %v: %w", part, handle.ErrFenced)
		}
		return nil
	})
}

// setKnown returns the part of an update that stores the sources' known epochs and proofs.
func setKnown(part []Advance, b Batch) (set string, values []any) {
	var epochs, proofs [][]any
	for _, a := range part {
		if e, ok := b.Epochs[a.Source]; ok {
			epochs = append(epochs, []any{a.Source, e.Number, e.From, e.To})
		}
		if p, ok := b.Proofs[a.Source]; ok {
			proofs = append(proofs, []any{a.Source, p.At, p.Time, p.Sum})
		}
	}
	add := func(known [][]any, columns ...string) {
		for i, column := range columns {
			if len(known) == 0 {
				return
			}
			set += ", " + column + " = CASE src" + strings.Repeat(" WHEN ? THEN ?", len(known)) + " ELSE " + column + " END"
			for _, of := range known {
				values = append(values, of[0], of[i+1])
			}
		}
	}
	add(epochs, "epoch", "epoch_from", "epoch_to")
	add(proofs, "proof_at", "proof_time", "proof_sum")
	return set, values
}
