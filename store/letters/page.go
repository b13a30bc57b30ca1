package letters

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/store/internal/tables"
)

// MaxPageBytes limits the bodies of a page of dead letters. The last letter may exceed it.
const MaxPageBytes = 16 << 20

// SelectWithBodies is Select for letters that are read with their bodies: the page holds no more
// than MaxPageBytes of them.
func (ls Letters) SelectWithBodies(ctx context.Context, f Filter) (Page, error) {
	page, err := ls.Select(ctx, f)
	if err != nil || len(page.IDs) == 0 {
		return page, err
	}
	type letter struct {
		id    int64
		bytes int
	}
	found, err := tables.Ask(ctx, ls.h.Reads(), func(r *sql.Rows, l *letter) error { return r.Scan(&l.id, &l.bytes) },
		"SELECT id, LENGTH(body) FROM dead_letters WHERE id IN ("+tables.Marks(len(page.IDs))+")", tables.Args(page.IDs)...)
	if err != nil {
		return Page{}, fmt.Errorf("measuring %d dead letters: %w", len(page.IDs), err)
	}
	sizes := make(map[int64]int, len(found))
	for _, l := range found {
		sizes[l.id] = l.bytes
	}
	bytes := 0
	for i, id := range page.IDs {
		if bytes >= MaxPageBytes {
			return Page{IDs: page.IDs[:i], Next: page.IDs[i-1]}, nil
		}
		bytes += sizes[id]
	}
	return page, nil
}
