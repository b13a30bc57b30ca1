package line

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// TagPlace is where a sweep of the tags stands.
type TagPlace struct{ at handle.Tag }

// SweepTags looks at the next rows of tags behind a place (nil: from the beginning), and deletes
// rows of tasks or dead letters that are gone. It returns how many, and where to go on; nil: these
// were the last. So nobody who forgets a task needs to know its tags.
func (l Line) SweepTags(ctx context.Context, after *TagPlace) (n int, next *TagPlace, err error) {
	type row struct {
		handle.Tag
		there int
	}
	where, a := "1 = 1", []any(nil)
	if after != nil {
		t := after.at
		where = "tag > ? OR tag = ? AND (kind > ? OR kind = ? AND (pos > ? OR pos = ? AND seq > ?))"
		a = []any{t.Tag, t.Tag, t.Kind, t.Kind, t.Pos, t.Pos, t.Seq}
	}
	rows, err := tables.Fetch(ctx, l.h.Reads(), func(r *sql.Rows, t *row) error { return r.Scan(&t.Tag.Tag, &t.Kind, &t.Pos, &t.Seq, &t.there) },
		"SELECT tag, kind, pos, seq, CASE WHEN kind = ? THEN (SELECT COUNT(*) FROM tasks WHERE tasks.seq = g.seq) ELSE (SELECT COUNT(*) FROM dead_letters WHERE dead_letters.id = g.pos) END"+
			" FROM (SELECT tag, kind, pos, seq FROM tags WHERE "+where+" ORDER BY tag, kind, pos, seq LIMIT ?) AS g", append(append([]any{handle.TagOfTask}, a...), tables.MaxRows)...)
	if err != nil {
		return 0, nil, fmt.Errorf("looking for tags without a task: %w", err)
	}
	var gone []handle.Tag
	for _, r := range rows {
		if r.there == 0 {
			gone = append(gone, r.Tag)
		}
	}
	if len(rows) == tables.MaxRows {
		next = &TagPlace{rows[len(rows)-1].Tag}
	}
	return len(gone), next, handle.DeleteTags(ctx, l.h.Exec, gone)
}
