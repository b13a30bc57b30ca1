package intake

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// TakeOutLetters has dead letters leave that can be replayed, and returns how many left. Others
// stay as history.
func (in Moves) TakeOutLetters(ctx context.Context, f Following, arrived int64, ids []int64) (n int, err error) {
	pieces, err := in.pieces(ctx, ids, "SELECT id, LENGTH(body) + LENGTH(reason) FROM dead_letters WHERE id")
	if err != nil {
		return 0, fmt.Errorf("reading how large %d dead letters are: %w", len(ids), err)
	}
	n, err = leaveIn(ctx, in, f, arrived, pieces, (*leaving).takeOutLetters)
	return n, wrap.Err(err, "having dead letters leave")
}

func (l *leaving) takeOutLetters(ctx context.Context, ids []int64) (int, error) {
	slices.Sort(ids)
	letters, err := tables.FetchIn(ctx, l.tx, tables.ScanDead, "SELECT "+tables.DeadColumns+" FROM dead_letters WHERE id", ids, " ORDER BY id"+l.h.Locking(handle.LockExclusive))
	if err != nil {
		return 0, err
	}
	letters = slices.DeleteFunc(letters, func(d task.DeadLetter) bool { return !Follows(d) })
	var gone []int64
	for _, d := range letters {
		gone = append(gone, d.ID)
	}
	keys := tables.Idents(letters, func(d task.DeadLetter) [16]byte { return task.Ident(d.Topic, d.TaskID) })
	slices.SortFunc(keys, compareKeys)
	rows, err := tables.FetchIn(ctx, l.tx, func(r *sql.Rows, t *task.Task) error { return tables.ScanTaskNotes(r, t) },
		"SELECT "+tables.TaskColumns+tables.TaskNotes+" FROM tasks WHERE ident", keys,
		" AND slot = ? AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.seq = tasks.seq AND d.replayed_at = 0 AND LENGTH(d.body) = 0)"+l.h.Locking(handle.LockExclusive), task.OutOfLine)
	if err != nil {
		return 0, err
	}
	latest := map[[16]byte]*task.Task{} // it may be a later one, and say that nothing comes after it
	for i := range rows {
		latest[task.Ident(rows[i].Topic, rows[i].ID)] = &rows[i]
	}
	for i := range letters {
		key := task.Ident(letters[i].Topic, letters[i].TaskID)
		l.left = append(l.left, leaver{Letter: &letters[i], Task: latest[key]})
		delete(latest, key)
	}
	if err := tables.ExecIn(ctx, l.tx, "DELETE FROM dead_letters WHERE id", gone); err != nil {
		return 0, err
	}
	return len(gone), l.write(ctx, nil)
}

// insertEnded stores dead letters, and the rows of ended tasks, unless a task of the id is here.
func (w arrival) insertEnded(ctx context.Context, all []leaver) error {
	var dead []*task.DeadLetter
	var rows []*task.Task
	for _, l := range all {
		if l.Letter != nil {
			dead = append(dead, l.Letter)
		}
		if l.Task != nil {
			rows = append(rows, l.Task)
		}
	}
	if err := w.intake.h.InsertDead(ctx, w.tx, dead); err != nil {
		return err
	}
	keys := tables.Idents(rows, func(t *task.Task) [16]byte { return task.Ident(t.Topic, t.ID) })
	slices.SortFunc(keys, compareKeys)
	here := map[[16]byte]bool{}
	found, err := tables.FetchIn(ctx, w.tx, func(r *sql.Rows, key *[]byte) error { return r.Scan(key) }, "SELECT ident FROM tasks WHERE ident", keys, w.intake.h.Locking(handle.LockExclusive))
	if err != nil {
		return fmt.Errorf("looking for ended tasks that follow: %w", err)
	}
	for _, key := range found {
		here[[16]byte(key)] = true
	}
	same, err := w.sameSeqs(ctx, rows)
	if err != nil {
		return err
	}
	return w.insertTasks(ctx, slices.DeleteFunc(rows, func(t *task.Task) bool { return same[t.Seq] != nil || here[task.Ident(t.Topic, t.ID)] }))
}

// Follows tells whether a dead letter follows its target. One whose content only its task's row has
// stays with the row.
func Follows(d task.DeadLetter) bool {
	return d.ReplayedAt == 0 && d.Kind != schemas.KindRejected && len(d.Body) > 0
}
