package intake

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

func insertQuery(rows int) string {
	return "INSERT INTO tasks (seq, ident, slot, pos, lane, due, state, attempt, replay, version, created, topic, id, body) VALUES " +
		strings.Repeat(",(?,?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)[1:]
}

func insertArgs(key task.LaneKey, tasks []*task.Task) []any {
	a := make([]any, 0, 14*len(tasks))
	for _, t := range tasks {
		ident := task.Ident(t.Topic, t.ID)
		a = append(a, t.Seq, ident[:], t.Slot, t.Pos, int64(key.Lane(t.Topic, t.Class)), t.Due, int(t.State), t.Attempt, t.Replay, t.Version, t.Created, []byte(t.Topic), []byte(t.ID), tables.NonNil(t.Body))
	}
	return a
}

// insertTasks writes tasks in the order of seq, many to a statement, and their tags.
func (w *work) insertTasks(ctx context.Context, tasks []*task.Task) error {
	key, err := w.intake.h.LaneKeyIn(ctx, w.tx)
	if err != nil {
		return err
	}
	slices.SortFunc(tasks, func(a, b *task.Task) int { return cmp.Compare(a.Seq, b.Seq) })
	err = tables.Pieces(tasks, func(t *task.Task) int { return len(t.Body) + 100 }, func(part []*task.Task) error {
		for len(part) > 0 {
			var err error
			n := w.intake.h.Dialect.InsertRows(len(part))
			if w.insert == nil || n < handle.PreparedRows {
				_, err = w.tx.ExecContext(ctx, insertQuery(n), insertArgs(key, part[:n])...)
			} else {
				n = handle.PreparedRows
				_, err = w.tx.StmtContext(ctx, w.insert).ExecContext(ctx, insertArgs(key, part[:n])...)
			}
			if err != nil {
				return fmt.Errorf("storing %d tasks: %w", n, err)
			}
			part = part[n:]
		}
		return nil
	})
	if err != nil {
		return err
	}
	var tags []handle.Tag
	waits := handle.Waits{}
	for _, t := range tasks {
		tags = append(tags, handle.TagsOf(t)...)
		waits.Add(t.Seq, t.Idle, t.Snoozed, t.Failures)
		if t.Unread.At > 0 {
			w.unread.add(t)
		}
	}
	if err := waits.Store(ctx, w.tx); err != nil {
		return err
	}
	return w.intake.h.InsertTags(ctx, w.tx, tags)
}

// unreadReports is notes, by seq, about reports that cannot be read.
type unreadReports map[int64]task.Note

func (u *unreadReports) add(t *task.Task) {
	if *u == nil {
		*u = unreadReports{}
	}
	(*u)[t.Seq] = t.Unread
}

func (u unreadReports) write(ctx context.Context, tx *sql.Tx) error {
	for part := range slices.Chunk(slices.Sorted(maps.Keys(u)), tables.MaxCases) {
		a := make([]any, 0, 3*len(part))
		for _, seq := range part {
			a = append(a, seq, task.EncodeNotes(u[seq]))
		}
		_, err := tx.ExecContext(ctx, "UPDATE tasks SET unread = CASE seq"+strings.Repeat(" WHEN ? THEN ?", len(part))+" END WHERE seq IN ("+tables.Marks(len(part))+")", append(a, tables.Args(part)...)...)
		if err != nil {
			return fmt.Errorf("noting %d reports that cannot be read: %w", len(part), err)
		}
	}
	return nil
}

type move struct {
	slot    int
	pos     int64
	state   task.State
	attempt int
	bare    bool // their bodies are dropped
}

func moveTasks(ctx context.Context, tx *sql.Tx, moves map[move][]int64) error {
	for m, seqs := range moves {
		slices.Sort(seqs)
		drop := ""
		if m.bare {
			drop = ", body = ''"
		}
		if err := tables.ExecIn(ctx, tx, "UPDATE tasks SET slot = ?, pos = ?, state = ?, attempt = ?"+drop+" WHERE seq", seqs, m.slot, m.pos, int(m.state), m.attempt); err != nil {
			return fmt.Errorf("ending %d tasks: %w", len(seqs), err)
		}
	}
	return nil
}

func deleteTasks(ctx context.Context, tx *sql.Tx, seqs []int64) error {
	slices.Sort(seqs)
	return wrap.Err(tables.ExecIn(ctx, tx, "DELETE FROM tasks WHERE seq", seqs), "deleting %d task rows", len(seqs))
}

// keepTaken keeps tasks in flight from becoming pending again: callers were answered "too late".
func keepTaken(ctx context.Context, tx *sql.Tx, seqs []int64) error {
	slices.Sort(seqs)
	err := tables.ExecIn(ctx, tx, "UPDATE tasks SET state = ? WHERE seq", slices.Compact(seqs), int(task.StateRetry))
	return wrap.Err(err, "keeping %d tasks from becoming pending again", len(seqs))
}
