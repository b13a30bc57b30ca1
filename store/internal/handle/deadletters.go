package handle

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// The widths of columns with unchecked content: a rejected request's id may be the default id of an
// intake topic with a long name, and a reason may hold a consumer's text.
const (
	MaxReason = 4096
	maxTaskID = 255
)

// InsertDead may be repeated: the second letter of one death is ignored.
func (h *Handle) InsertDead(ctx context.Context, tx *sql.Tx, dead []*task.DeadLetter) error {
	again := h.Dialect.Keep("seq, replay", "seq")
	return tables.Pieces(dead, func(d *task.DeadLetter) int { return len(d.Body) + len(d.Reason) + 100 }, func(part []*task.DeadLetter) error {
		a := make([]any, 0, 12*len(part))
		for _, d := range part {
			a = append(a, d.Seq, []byte(d.Kind), []byte(d.Topic), tables.CutText(d.TaskID, maxTaskID), d.Due, d.Attempt, d.Replay, tables.CutText(d.Reason, MaxReason), d.DiedAt, 0, []byte{}, tables.NonNil(d.Body))
		}
		rows := strings.Repeat(",(?,?,?,?,?,?,?,?,?,?,?,?)", len(part))[1:]
		_, err := tx.ExecContext(ctx, "INSERT INTO dead_letters (seq, kind, topic, task_id, due, attempt, replay, reason, died_at, replayed_at, replayed_by, body) VALUES "+rows+again, a...)
		if err != nil {
			return fmt.Errorf("writing %d dead letters: %w", len(part), err)
		}
		tags, err := tagsOfLetters(ctx, tx, part)
		if err != nil {
			return err
		}
		if err := h.InsertTags(ctx, tx, tags); err != nil {
			return err
		}
		return faultpoint.At(faultpoint.StoreBuried)
	})
}

// tagsOfLetters returns the tags of tasks' letters, under the letters' ids of the database.
func tagsOfLetters(ctx context.Context, tx *sql.Tx, dead []*task.DeadLetter) (rows []Tag, err error) {
	type death struct {
		seq    int64
		replay int
	}
	tags := map[death]string{}
	var seqs []any
	for _, d := range dead {
		if tag := schemas.BodyTag(d.Body); tag != "" {
			tags[death{d.Seq, d.Replay}] = tag
			seqs = append(seqs, d.Seq)
		}
	}
	if len(seqs) == 0 {
		return nil, nil
	}
	type letter struct {
		death
		id int64
	}
	found, err := tables.Fetch(ctx, tx, func(r *sql.Rows, l *letter) error { return r.Scan(&l.id, &l.seq, &l.replay) }, "SELECT id, seq, replay FROM dead_letters WHERE seq IN ("+tables.Marks(len(seqs))+")", seqs...)
	if err != nil {
		return nil, fmt.Errorf("reading the ids of %d dead letters: %w", len(seqs), err)
	}
	for _, l := range found {
		for _, tag := range schemas.Tags(tags[l.death]) {
			rows = append(rows, Tag{[]byte(tag), TagOfLetter, l.id, l.seq})
		}
	}
	return rows, nil
}
