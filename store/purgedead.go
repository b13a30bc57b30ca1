package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
)

// where is the filter as a condition with its arguments.
func (f DeadFilter) where() (string, []any) {
	cond, a := []string{"id > ?"}, []any{f.After}
	add := func(set bool, c string, values ...any) {
		if set {
			cond, a = append(cond, c), append(a, values...)
		}
	}
	add(len(f.IDs) > 0, "id IN ("+marks(len(f.IDs))+")", args(f.IDs)...)
	add(f.Kind != "", "kind = ?", []byte(f.Kind))
	add(f.Topic != "", "topic = ?", []byte(f.Topic))
	add(f.TaskID != "", "task_id = ?", []byte(f.TaskID))
	like := "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(f.Reason) + "%"
	add(f.Reason != "", "CAST(reason AS CHAR) LIKE ? ESCAPE '!'", like)
	// Without the index on died_at: with it, the server would sort all that died since, for each
	// page. skipOld has used it.
	add(f.Since > 0, "died_at + 0 >= ?", f.Since)
	add(f.Until > 0, "died_at + 0 < ?", f.Until)
	add(!f.Replayed, "replayed_at = 0")
	return strings.Join(cond, " AND "), a
}

// firstSince reads the index on died_at, and only that: for a bare MIN(id), SQLite would walk the table.
const firstSince = "SELECT COALESCE(MIN(+id), ?) FROM dead_letters WHERE died_at >= ?"

// skipOld makes a run begin at the first letter that died at or after f.Since. Otherwise it would
// read all older ones. Only the first page needs this.
func (s *Store) skipOld(ctx context.Context, f DeadFilter) (DeadFilter, error) {
	if f.Since <= 0 || f.After > 0 {
		return f, nil
	}
	var first int64
	err := s.db.QueryRowContext(ctx, firstSince, int64(math.MaxInt64), f.Since).Scan(&first)
	if err != nil {
		return f, fmt.Errorf("looking for the first letter that died since: %w", err)
	}
	f.After = first - 1
	return f, nil
}

// CountDead is the number of dead letters that the filter selects, whatever its Limit.
func (s *Store) CountDead(ctx context.Context, f DeadFilter) (int64, error) {
	f, err := s.skipOld(ctx, f)
	if err != nil {
		return 0, err
	}
	where, a := f.where()
	var n int64
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM dead_letters WHERE "+where, a...).Scan(&n); err != nil {
		return 0, fmt.Errorf("counting dead letters: %w", err)
	}
	return n, nil
}

// LastDead is the highest id of a dead letter; 0: there are none. A run over many pages ends at
// that id, so it does not meet tasks that die while it runs.
func (s *Store) LastDead(ctx context.Context) (int64, error) {
	var id sql.NullInt64
	if err := s.db.QueryRowContext(ctx, "SELECT MAX(id) FROM dead_letters").Scan(&id); err != nil {
		return 0, fmt.Errorf("looking for the last dead letter: %w", err)
	}
	return id.Int64, nil
}

// PurgeDead deletes the first f.Limit dead letters (0: 1000) that the filter selects, and returns
// how many those were and the id after which the next call goes on; 0 says that none are left. A
// letter that is replayed meanwhile stays, unless f.Replayed. The rows of dead tasks stay too: a
// cancel is still told that they are dead, as long as they are remembered.
func (s *Store) PurgeDead(ctx context.Context, f DeadFilter) (deleted, next int64, err error) {
	return s.PurgeDeadUpTo(ctx, f, math.MaxInt64)
}

// PurgeDeadUpTo is PurgeDead for letters with an id up to upTo only: see LastDead.
func (s *Store) PurgeDeadUpTo(ctx context.Context, f DeadFilter, upTo int64) (deleted, next int64, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = maxRows
	}
	if f, err = s.skipOld(ctx, f); err != nil {
		return 0, 0, err
	}
	where, a := f.where()
	ids, err := fetch(ctx, s.db, func(r *sql.Rows, id *int64) error { return r.Scan(id) },
		"SELECT id FROM dead_letters WHERE "+where+" AND id <= ? ORDER BY id LIMIT ?", append(a, upTo, limit)...)
	if err != nil {
		return 0, 0, fmt.Errorf("selecting dead letters to purge: %w", err)
	}
	var entry int64 // in the audit log
	err = chunks(ids, func(part []int64) error {
		var n int64
		var written int64
		err := s.transact(ctx, func(tx *sql.Tx) (err error) {
			if n, err = purgeIDs(ctx, tx, part, f.Replayed); err != nil || n == 0 {
				return err
			}
			if entry > 0 {
				return auditMore(ctx, tx, entry, n)
			}
			written, err = s.audit(ctx, tx, n)
			return err
		})
		if err != nil {
			return fmt.Errorf("purging %d dead letters: %w", len(part), err)
		}
		deleted += n
		entry = max(entry, written)
		return nil
	})
	if err == nil && len(ids) == limit {
		next = ids[len(ids)-1]
	}
	return deleted, next, err
}

// purgeIDs deletes letters, and spares those that were replayed meanwhile unless replayed is true.
func purgeIDs(ctx context.Context, tx *sql.Tx, ids []int64, replayed bool) (int64, error) {
	spared := ""
	if !replayed {
		spared = " AND replayed_at = 0"
	}
	res, err := tx.ExecContext(ctx, "DELETE FROM dead_letters WHERE id IN ("+marks(len(ids))+")"+spared, args(ids)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
