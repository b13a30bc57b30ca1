package letters

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/store/internal/tables"
)

// MaxPageBytes limits the bodies of a page of dead letters. The last letter may exceed it.
const MaxPageBytes = 16 << 20

// SelectWithBodies is Select for letters with their bodies: MaxPageBytes bounds a page.
func (ls Letters) SelectWithBodies(ctx context.Context, f Filter) (Page, error) {
	page, err := ls.Select(ctx, f)
	if err != nil || len(page.IDs) == 0 {
		return page, err
	}
	var found []struct {
		ID    int64
		Bytes int
	}
	if err := ls.h.Cold(ctx, "dead_letters").Select("id, LENGTH(body) AS bytes").Where("id IN ?", page.IDs).Find(&found).Error; err != nil {
		return Page{}, fmt.Errorf("measuring %d dead letters: %w", len(page.IDs), tables.Timely(err))
	}
	sizes := make(map[int64]int, len(found))
	for _, l := range found {
		sizes[l.ID] = l.Bytes
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
