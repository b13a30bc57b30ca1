package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
)

// A request about a task that is being delivered waits in its own table until the outcome is known: it can neither be
// dropped nor take effect beside the delivery. Whoever next looks at the identity takes it from there.

type held struct {
	ident  []byte
	change Change
}

func scanHeld(r *sql.Rows, h *held) error {
	var data []byte
	if err := r.Scan(&h.ident, &data); err != nil {
		return err
	}
	return json.Unmarshal(data, &h.change)
}

// hold fetches the requests that wait for the identities of this batch, in the order in which they came.
func (w *work) hold(ctx context.Context, list []*identity) error {
	byKey := make(map[[16]byte]*identity)
	var keys []any
	for _, id := range list {
		if id.before != nil && id.before.phase(w.slots[id.before.Slot]) != pending || w.resolving {
			byKey[id.key] = id
			keys = append(keys, id.key[:])
		}
	}
	var seqs []int64
	err := chunks(keys, func(part []any) error {
		rows, err := fetch(ctx, w.tx, scanHeld, "SELECT ident, request FROM waiting WHERE ident IN ("+marks(len(part))+") ORDER BY seq"+w.store.locking(lockExclusive), part...)
		if err != nil {
			return fmt.Errorf("reading waiting requests: %w", err)
		}
		for _, h := range rows {
			id := byKey[[16]byte(h.ident)]
			id.held = append(id.held, h.change)
			seqs = append(seqs, h.change.Seq)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return chunks(seqs, func(part []int64) error {
		_, err := w.tx.ExecContext(ctx, "DELETE FROM waiting WHERE seq IN ("+marks(len(part))+")", args(part)...)
		return err
	})
}

// keepWaiting stores what must (still) wait.
func (w *work) keepWaiting(ctx context.Context, list []*identity) error {
	var a []any
	for _, id := range list {
		for _, c := range id.wait {
			data, err := json.Marshal(c)
			if err != nil {
				return fmt.Errorf("encoding a waiting request: %w", err)
			}
			a = append(a, c.Seq, id.key[:], c.Report != nil, data)
		}
	}
	w.applied.Waiting = len(a) / 4
	for len(a) > 0 {
		n := min(len(a), 4*100)
		if _, err := w.tx.ExecContext(ctx, "INSERT INTO waiting (seq, ident, report, request) VALUES "+strings.Repeat(",(?,?,?,?)", n/4)[1:], a[:n]...); err != nil {
			return fmt.Errorf("storing waiting requests: %w", err)
		}
		a = a[n:]
	}
	return nil
}

// Resolvable answers identities for which requests wait that can be decided by now: a report as soon as its task is not
// in flight any more, anything else once the task has ended. Put them into Batch.Resolve.
func (s *Store) Resolvable(ctx context.Context, limit int) ([][16]byte, error) {
	out, err := fetch(ctx, s.db, func(r *sql.Rows, k *[16]byte) error {
		var b []byte
		err := r.Scan(&b)
		copy(k[:], b)
		return err
	}, "SELECT DISTINCT w.ident FROM waiting w LEFT JOIN tasks t ON t.ident = w.ident LEFT JOIN slots s ON s.slot = t.slot"+
		" WHERE t.seq IS NULL OR t.slot < 0 OR t.pos <= s.done OR (t.pos > s.claimed AND (w.report OR t.state = 0)) LIMIT ?", limit)
	if err != nil {
		return nil, fmt.Errorf("looking for requests whose wait is over: %w", err)
	}
	return out, nil
}

func (s *Store) cachedSlotCount(ctx context.Context) (int, error) {
	if n := s.slotCount.Load(); n > 0 {
		return int(n), nil
	}
	n, err := s.SlotCount(ctx)
	if err == nil && n == 0 {
		err = ErrNotMigrated
	}
	s.slotCount.Store(int64(n))
	return n, err
}
