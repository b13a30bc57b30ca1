package intake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Replayed is the fate of one dead letter in a replay.
type Replayed struct {
	ID      int64  `json:"id"`
	Topic   string `json:"topic"`
	TaskID  string `json:"task_id"`
	Skipped string `json:"skipped,omitempty"` // why it was not replayed; empty: it was
}

var errRehearsed = errors.New("rehearsed")

// Replay puts dead tasks back into the line, due now, with no attempt made. The same transaction
// marks their letters with the caller, so each letter is replayed once, whatever process dies in
// between. The places are for the index. A rehearsal is rolled back.
func (in Intake) Replay(ctx context.Context, ids []int64, by string, now int64, rehearse bool) (report []Replayed, added []handle.Place, err error) {
	var as *edit
	return as.replay(ctx, in, ids, by, now, rehearse)
}

// ReplayEdited is Replay of one letter, with parts of it replaced. Its task has a number of the
// runs of timers, because no intake record has its content.
func (in Intake) ReplayEdited(ctx context.Context, letter int64, e task.Edit, by string, now int64) (report []Replayed, added []handle.Place, err error) {
	block, err := in.reserveRuns(ctx, 1, now)
	if err != nil {
		return nil, nil, err
	}
	seqs, err := block.take(1)
	if err != nil {
		return nil, nil, err
	}
	return (&edit{e, seqs[0]}).replay(ctx, in, []int64{letter}, by, now, false)
}

// edit is an Edit with the seq of the task that it makes. nil: letters are replayed as they are.
type edit struct {
	task.Edit
	seq int64
}

// topic is where a letter's task is replayed to.
func (e *edit) topic(d task.DeadLetter) string {
	if e == nil || e.Topic == "" {
		return d.Topic
	}
	return e.Topic
}

func (e *edit) replay(ctx context.Context, in Intake, ids []int64, by string, now int64, rehearse bool) (report []Replayed, added []handle.Place, err error) {
	err = in.h.Transact(ctx, func(tx *sql.Tx) error {
		report, added = nil, nil
		if e != nil {
			if err := in.h.CheckMap(ctx, tx, e.Map); err != nil {
				return err
			}
		}
		spread, err := in.h.SpreadIn(ctx, tx)
		if err != nil {
			return err
		}
		elsewhere, err := handle.Elsewhere(ctx, in.h, tx)
		if err != nil {
			return err
		}
		letters, err := tables.Fetch(ctx, tx, tables.ScanDead, "SELECT "+tables.DeadColumns+" FROM dead_letters WHERE id IN ("+tables.Marks(len(ids))+") ORDER BY id"+in.h.Locking(handle.LockExclusive), tables.Args(ids)...)
		if err != nil {
			return err
		}
		w := work{intake: in, tx: tx, now: now, spread: spread, resolving: true}
		batch := Batch{}
		for _, d := range letters {
			batch.Resolve = append(batch.Resolve, task.Ident(d.Topic, d.TaskID), task.Ident(e.topic(d), d.TaskID))
		}
		list, err := w.gather(ctx, batch)
		if err != nil {
			return err
		}
		if err := w.lockSlots(ctx, list); err != nil {
			return err
		}
		byKey := map[[16]byte]*identity{}
		for _, id := range list {
			id.now = id.before
			byKey[id.key] = id
		}
		var marked []int64
		for _, d := range letters {
			r := Replayed{ID: d.ID, Topic: e.topic(d), TaskID: d.TaskID}
			if r.Skipped, err = elsewhere(r.Topic); err != nil {
				return err
			}
			if r.Skipped == "" {
				r.Skipped = e.replayOne(&w, d, byKey)
			}
			if r.Skipped == "" {
				marked = append(marked, d.ID)
			}
			report = append(report, r)
		}
		if err := w.write(ctx, list); err != nil {
			return err
		}
		if err := faultpoint.At(faultpoint.StoreReplaying); err != nil {
			return err
		}
		added = w.applied.Added
		if rehearse {
			added = nil
			return errRehearsed
		}
		if len(marked) == 0 {
			return nil
		}
		if _, err = tx.ExecContext(ctx, "UPDATE dead_letters SET replayed_at = ?, replayed_by = ? WHERE id IN ("+tables.Marks(len(marked))+")", append([]any{now, tables.CutText(by, 255)}, tables.Args(marked)...)...); err != nil {
			return err
		}
		_, err = in.h.Audit(ctx, tx, int64(len(marked)))
		return err
	})
	if err != nil && !errors.Is(err, errRehearsed) {
		return nil, nil, fmt.Errorf("replaying %d dead letters: %w", len(ids), err)
	}
	return report, added, nil
}

// replayOne makes the task of a letter, or returns why not.
func (e *edit) replayOne(w *work, d task.DeadLetter, byKey map[[16]byte]*identity) (skipped string) {
	id, seq := byKey[task.Ident(d.Topic, d.TaskID)], d.Seq
	if e != nil {
		if d, seq = d.Edited(id.now, e.Edit), e.seq; len(d.Body) == 0 && d.Kind != schemas.KindRejected {
			return "its content is gone, or cannot be read, and so cannot be edited"
		}
		if to := e.topic(d); to != d.Topic {
			id = byKey[task.Ident(to, d.TaskID)]
			d.Topic, d.Seq = to, seq // no task there is the letter's
		}
	}
	if skipped = task.NotReplayable(d, id.now, w.phase(id)); skipped == "" {
		d.Seq = seq
		id.now = task.Replayed(d, id.now, w.spread, w.now)
	}
	return skipped
}
