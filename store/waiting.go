package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/schemas"
)

// A request about a task that is being delivered waits in its own table until the outcome is known: it can neither be
// dropped nor take effect beside the delivery. Whoever next looks at the identity takes it from there.

type held struct {
	ident  []byte
	change Change
}

// stored is a change as JSON, but for what callers fill with any bytes: JSON would change a header's name that is not UTF-8.
type stored struct {
	Change
	Body []byte // schemas.EncodeBody of the request
}

func encodeChange(c Change) ([]byte, error) {
	s := stored{Change: c}
	if c.Request != nil {
		r := *c.Request
		s.Body = schemas.EncodeBody(nil, r.Key, r.Value, r.Headers, r.Settings)
		r.Key, r.Value, r.Headers = nil, nil, nil
		s.Request = &r
	}
	return json.Marshal(s)
}

func decodeChange(data []byte) (Change, error) {
	var s stored
	if err := json.Unmarshal(data, &s); err != nil || s.Request == nil {
		return s.Change, err
	}
	body, err := schemas.DecodeBody(s.Body)
	s.Request.Key, s.Request.Value, s.Request.Headers = body.Key, body.Value, body.Headers
	return s.Change, err
}

func scanHeld(r *sql.Rows, h *held) error {
	var data []byte
	err := r.Scan(&h.ident, &data)
	if err == nil {
		h.change, err = decodeChange(data)
	}
	return err
}

// hold fetches the requests that wait for the identities of this batch and whose time has come, in the order in which they
// came: where the task has ended (or is pending: it was put back into the line before anybody looked at them), and where a
// report may end it. Else nothing is fetched: what is new only goes behind what waits, so a long wait under many requests
// costs each of them once.
func (w *work) hold(ctx context.Context, list []*identity) error {
	var over, busy []*identity
	for _, id := range list {
		id.now = id.before
		switch ph := w.phase(id); {
		case ph == inFlight, ph == waiting && !w.resolving && !slices.ContainsFunc(id.changes, func(c Change) bool { return c.Report != nil }):
			busy = append(busy, id)
		default:
			over = append(over, id)
		}
	}
	err := chunks(busy, func(part []*identity) error {
		byKey, keys := keysOf(part)
		type kind struct {
			ident  []byte
			report bool
		}
		kinds, err := fetch(ctx, w.tx, func(r *sql.Rows, k *kind) error { return r.Scan(&k.ident, &k.report) },
			"SELECT DISTINCT ident, report FROM waiting WHERE ident IN ("+marks(len(keys))+") ORDER BY ident, report DESC", keys...)
		if err != nil {
			return fmt.Errorf("looking for waiting requests: %w", err)
		}
		for _, k := range kinds { // a report comes before the requests of its identity
			switch id := byKey[[16]byte(k.ident)]; {
			case !k.report:
				id.queued = !slices.Contains(over, id)
			case w.phase(id) == waiting:
				over = append(over, id)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.take(ctx, over)
}

func keysOf(list []*identity) (map[[16]byte]*identity, []any) {
	byKey, keys := make(map[[16]byte]*identity, len(list)), make([]any, len(list))
	for i, id := range list {
		byKey[id.key], keys[i] = id, id.key[:]
	}
	return byKey, keys
}

// maxHeld and maxHeldBytes bound what one transaction takes of the requests that wait, however many there are. A task may be between
// attempts for hours, and a caller may send requests about it all the while.
const (
	maxHeld      = 1000
	maxHeldBytes = 8 << 20
)

// take moves waiting requests from their table into the identities: all of them, or the reports and the oldest of the others. What is
// too much for one transaction waits on, and what is new goes behind it.
func (w *work) take(ctx context.Context, list []*identity) error {
	type row struct{ seq, size int64 }
	rows, bytes := maxHeld, int64(maxHeldBytes)
	return chunks(list, func(part []*identity) error {
		byKey, keys := keysOf(part)
		queue, err := fetch(ctx, w.tx, func(r *sql.Rows, v *row) error { return r.Scan(&v.seq, &v.size) },
			"SELECT seq, LENGTH(request) FROM waiting WHERE ident IN ("+marks(len(keys))+") ORDER BY report DESC, seq LIMIT ?"+w.store.locking(lockExclusive), append(keys, rows+1)...)
		if err != nil {
			return fmt.Errorf("looking for waiting requests: %w", err)
		}
		var seqs []int64
		for rows > 0 && bytes > 0 && len(seqs) < len(queue) {
			rows, bytes = rows-1, bytes-queue[len(seqs)].size
			seqs = append(seqs, queue[len(seqs)].seq)
		}
		slices.Sort(seqs)
		if err := w.takeThese(ctx, byKey, seqs); err != nil || len(seqs) == len(queue) {
			return err
		}
		left, err := fetch(ctx, w.tx, func(r *sql.Rows, ident *[]byte) error { return r.Scan(ident) },
			"SELECT DISTINCT ident FROM waiting WHERE ident IN ("+marks(len(part))+")", keys[:len(part)]...)
		if err != nil {
			return fmt.Errorf("looking for requests that wait on: %w", err)
		}
		for _, ident := range left {
			byKey[[16]byte(ident)].queued = true
		}
		return nil
	})
}

func (w *work) takeThese(ctx context.Context, byKey map[[16]byte]*identity, seqs []int64) error {
	return chunks(seqs, func(part []int64) error {
		rows, err := fetch(ctx, w.tx, scanHeld, "SELECT ident, request FROM waiting WHERE seq IN ("+marks(len(part))+") ORDER BY seq", args(part)...)
		if err != nil {
			return fmt.Errorf("reading waiting requests: %w", err)
		}
		for _, h := range rows {
			id := byKey[[16]byte(h.ident)]
			id.held = append(id.held, h.change)
		}
		_, err = w.tx.ExecContext(ctx, "DELETE FROM waiting WHERE seq IN ("+marks(len(part))+")", args(part)...)
		return err
	})
}

// keepWaiting stores what must (still) wait.
func (w *work) keepWaiting(ctx context.Context, list []*identity) error {
	type row struct {
		seq    int64
		ident  []byte
		report bool
		data   []byte
	}
	var rows []row
	for _, id := range list {
		for _, c := range id.wait {
			data, err := encodeChange(c)
			if err != nil {
				return fmt.Errorf("encoding a waiting request: %w", err)
			}
			rows = append(rows, row{c.Seq, id.key[:], c.Report != nil, data})
		}
	}
	w.applied.Waiting = len(rows)
	return pieces(rows, func(r row) int { return len(r.data) }, func(part []row) error {
		a := make([]any, 0, 4*len(part))
		for _, r := range part {
			a = append(a, r.seq, r.ident, r.report, r.data)
		}
		_, err := w.tx.ExecContext(ctx, "INSERT INTO waiting (seq, ident, report, request) VALUES "+strings.Repeat(",(?,?,?,?)", len(part))[1:], a...)
		if err != nil {
			return fmt.Errorf("storing %d waiting requests: %w", len(part), err)
		}
		return nil
	})
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
