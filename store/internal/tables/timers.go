package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// TimerColumns are those of timers that ScanTimer reads.
const TimerColumns = "slot, next, open, placed, state, seq, version, created, topic, id, definition, body"

// ScanTimer reads a timer.
func ScanTimer(r *sql.Rows, t *task.Timer) error {
	var definition []byte
	err := r.Scan(&t.Slot, &t.Next, &t.Open, &t.Placed, &t.State, &t.Seq, &t.Version, &t.Created, &t.Topic, &t.ID, &definition, &t.Body)
	stored := StoredDefinition{}
	if err == nil && json.Unmarshal(definition, &stored) == nil { // a definition that cannot be read is empty, and other timers go on
		t.Definition, t.Kept, t.Gaps = stored.Definition, stored.Kept, stored.Gaps
	}
	return err
}

// StoredDefinition is the column definition.
type StoredDefinition struct {
	timer.Definition
	Kept []task.Kept `json:"kept,omitempty"`
	Gaps []task.Gap  `json:"gaps,omitempty"`
}

// MaxDefinition is the width of the column.
const MaxDefinition = 2048

// EncodeDefinition leaves out gaps, and then kept runs, the oldest first, for which the column is too small.
func EncodeDefinition(t *task.Timer) (text []byte, err error) {
	for kept, gaps := t.Kept, t.Gaps; ; {
		text, err = json.Marshal(StoredDefinition{t.Definition, kept, gaps})
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
	if _, err = tx.ExecContext(ctx, "UPDATE timers SET definition = ? WHERE ident = ?", text, key[:]); err != nil {
		return fmt.Errorf("noting runs that were missed: %w", err)
	}
	return nil
}
