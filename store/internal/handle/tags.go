package handle

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Tag is a row of tags: one of the tags of a task, or of a dead letter.
type Tag struct {
	Tag  []byte
	Kind int
	Pos  int64
	Seq  int64
}

// Kinds of rows of tags.
const (
	TagOfTask   = 0
	TagOfLetter = 1
)

// TagPos is the place of a task in tags. It never changes with the row of a task.
func TagPos(due int64) int64 { return task.HeldSince(task.Held(due)) }

// TagsOf returns the rows of a task.
func TagsOf(t *task.Task) (out []Tag) {
	for _, tag := range schemas.Tags(schemas.BodyTag(t.Body)) {
		out = append(out, Tag{[]byte(tag), TagOfTask, TagPos(t.Due), t.Seq})
	}
	return out
}

func (t Tag) compare(o Tag) int {
	return cmp.Or(bytes.Compare(t.Tag, o.Tag), cmp.Compare(t.Kind, o.Kind), cmp.Compare(t.Pos, o.Pos), cmp.Compare(t.Seq, o.Seq))
}

// InsertTags writes rows, in one order for all writers. An existing row stays.
func (h *Handle) InsertTags(ctx context.Context, tx *sql.Tx, rows []Tag) error {
	slices.SortFunc(rows, Tag.compare)
	again := h.Dialect.Keep("tag, kind, pos, seq", "seq")
	return tables.Chunks(rows, func(part []Tag) error {
		a := make([]any, 0, 4*len(part))
		for _, t := range part {
			a = append(a, t.Tag, t.Kind, t.Pos, t.Seq)
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO tags (tag, kind, pos, seq) VALUES "+strings.Repeat(",(?,?,?,?)", len(part))[1:]+again, a...)
		return wrap.Err(err, "writing %d tags", len(part))
	})
}

// DeleteTags deletes rows with statements of a transaction, or each with one of its own.
func DeleteTags(ctx context.Context, exec func(ctx context.Context, query string, args ...any) (sql.Result, error), rows []Tag) error {
	slices.SortFunc(rows, Tag.compare)
	for part := range slices.Chunk(rows, tables.MaxRanges) {
		a := make([]any, 0, 4*len(part))
		for _, t := range part {
			a = append(a, t.Tag, t.Kind, t.Pos, t.Seq)
		}
		if _, err := exec(ctx, "DELETE FROM tags WHERE "+strings.Repeat(" OR (tag = ? AND kind = ? AND pos = ? AND seq = ?)", len(part))[4:], a...); err != nil {
			return fmt.Errorf("deleting %d tags: %w", len(part), err)
		}
	}
	return nil
}
