package tables

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// TimerColumns are those of timers that ScanTimer reads.
const TimerColumns = "slot, next, open, placed, state, seq, version, created, topic, id, definition, body"

// ScanTimer reads a timer.
func ScanTimer(r *sql.Rows, t *task.Timer) error { return ScanTimerAnd(r, t) }

// ScanTimerAnd also scans further columns.
func ScanTimerAnd(r *sql.Rows, t *task.Timer, more ...any) error {
	var definition []byte
	err := r.Scan(append([]any{&t.Slot, &t.Next, &t.Open, &t.Placed, &t.State, &t.Seq, &t.Version, &t.Created, &t.Topic, &t.ID, &definition, &t.Body}, more...)...)
	stored := StoredDefinition{}
	if err == nil && json.Unmarshal(definition, &stored) == nil { // a definition that cannot be read is empty, and other timers go on
		t.Definition, t.Kept, t.Gaps, t.Moved, t.Elsewhere = stored.Definition, stored.Kept, stored.Gaps, stored.Moved, stored.Elsewhere
	}
	return err
}

// TimerSeqs reads the seqs of timers' definitions, by the timers' identities.
func TimerSeqs(ctx context.Context, q dialect.Querier, timers [][16]byte) (map[[16]byte]int64, error) {
	out := map[[16]byte]int64{}
	err := pairs(ctx, q, func(key []byte, seq int64) { out[[16]byte(key)] = seq },
		"SELECT ident, seq FROM timers WHERE ident", Idents(timers, func(key [16]byte) [16]byte { return key }))
	return out, err
}

// Offsets reads how far sources are stored, but for retired ones.
func Offsets(ctx context.Context, q dialect.Querier, sources []int) (map[int]int64, error) {
	out := map[int]int64{}
	err := pairs(ctx, q, func(source int, next int64) { out[source] = next },
		"SELECT src, next_offset FROM sources WHERE retired_at = 0 AND src", Args(sources))
	return out, err
}

func pairs[K any](ctx context.Context, q dialect.Querier, note func(K, int64), query string, values []any) error {
	type row struct {
		key   K
		value int64
	}
	rows, err := FetchIn(ctx, q, func(r *sql.Rows, v *row) error { return r.Scan(&v.key, &v.value) }, query, values, "")
	for _, v := range rows {
		note(v.key, v.value)
	}
	return err
}

// StoredDefinition is the column definition.
type StoredDefinition struct {
	timer.Definition
	Kept []task.Kept `json:"kept,omitempty"`
	Gaps []task.Gap  `json:"gaps,omitempty"`

	Moved     int64   `json:"moved,omitempty"`
	Elsewhere []int64 `json:"elsewhere,omitempty"`
}

// MaxDefinition is the width of the column.
const MaxDefinition = 2048

// EncodeDefinition leaves out gaps, and then kept runs, the oldest first, if the column is full.
func EncodeDefinition(t *task.Timer) (text []byte, err error) {
	for kept, gaps := t.Kept, t.Gaps; ; {
		text, err = json.Marshal(StoredDefinition{t.Definition, kept, gaps, t.Moved, t.Elsewhere})
		switch {
		case err != nil || len(text) <= MaxDefinition || len(gaps)+len(kept) == 0:
			return text, err
		case len(gaps) > 0:
			gaps = gaps[1:]
		default:
			kept = kept[1:]
		}
	}
}

// WriteDefinition stores what has changed in a timer's definition.
func WriteDefinition(ctx context.Context, tx *sql.Tx, t *task.Timer) error {
	text, err := EncodeDefinition(t)
	if err != nil {
		return err
	}
	key := task.Ident(t.Topic, t.ID)
	_, err = tx.ExecContext(ctx, "UPDATE timers SET definition = ? WHERE ident = ?", text, key[:])
	return wrap.Err(err, "noting runs that were missed")
}
