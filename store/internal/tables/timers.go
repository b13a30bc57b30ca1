package tables

import (
	"database/sql"
	"encoding/json"

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
		t.Definition, t.Kept = stored.Definition, stored.Kept
	}
	return err
}

// StoredDefinition is the column definition.
type StoredDefinition struct {
	timer.Definition
	Kept []task.Kept `json:"kept,omitempty"`
}

// MaxDefinition is the width of the column.
const MaxDefinition = 2048

// EncodeDefinition leaves out kept runs, the oldest first, for which the column is too small.
func EncodeDefinition(t *task.Timer) (text []byte, err error) {
	for kept := t.Kept; ; kept = kept[1:] {
		text, err = json.Marshal(StoredDefinition{t.Definition, kept})
		if err != nil || len(text) <= MaxDefinition || len(kept) == 0 {
			return text, err
		}
	}
}
