package store

import (
	"context"
	"database/sql"
	"fmt"
)

// MaxDeadPageBytes limits the bodies of a page of dead letters. The last letter may exceed it.
const MaxDeadPageBytes = 16 << 20

// DeadPage returns the ids of the first letters that a filter selects: at most f.Limit (0: 100), and no more than hold
// MaxDeadPageBytes. more says that there are others behind them.
func (s *Store) DeadPage(ctx context.Context, f DeadFilter) (ids []int64, more bool, err error) {
	if f, err = s.skipOld(ctx, f); err != nil {
		return nil, false, err
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	type letter struct {
		id    int64
		bytes int
	}
	where, a := f.where()
	found, err := fetch(ctx, s.db, func(r *sql.Rows, l *letter) error { return r.Scan(&l.id, &l.bytes) },
		"SELECT id, LENGTH(body) FROM dead_letters WHERE "+where+" ORDER BY id LIMIT ?", append(a, f.Limit+1)...)
	if err != nil {
		return nil, false, fmt.Errorf("selecting a page of dead letters: %w", err)
	}
	bytes := 0
	for _, l := range found {
		if len(ids) == f.Limit || bytes >= MaxDeadPageBytes {
			return ids, true, nil
		}
		ids, bytes = append(ids, l.id), bytes+l.bytes
	}
	return ids, false, nil
}
