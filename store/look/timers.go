package look

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// ErrNoTimer means that no timer of this topic and id is known.
var ErrNoTimer = errors.New("no timer of this topic and id is known")

// GetTimer reads a timer.
func (r Reader) GetTimer(ctx context.Context, topic, id string) (task.Timer, error) {
	key := task.Ident(topic, id)
	rows, err := tables.Fetch(ctx, r.h.Reads(), tables.ScanTimer, "SELECT "+tables.TimerColumns+" FROM timers WHERE ident = ?", key[:])
	if err != nil {
		return task.Timer{}, fmt.Errorf("reading the timer: %w", err)
	}
	if len(rows) == 0 || rows[0].State == task.TimerDeleted || rows[0].Topic != topic || rows[0].ID != id {
		return task.Timer{}, ErrNoTimer
	}
	return rows[0], nil
}

// TimerFilter selects timers to list, in the order of their topics and ids.
type TimerFilter struct {
	Topic    string
	IDPrefix string
	Limit    int // 0: 100
	After    *TimerName
	Deleted  bool // also deleted ones whose version is remembered
	// Allowed tells whether a timer of the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

// TimerName is where a page of timers ends.
type TimerName struct{ Topic, ID string }

// TimerPage is one page, without bodies. The next one begins at More; nil: this was the last. A
// page can be short or empty without being the last.
type TimerPage struct {
	Timers []task.Timer
	More   *TimerName
}

// These bound the rows of one page, and of one statement. A row without its body has up to 3 kB.
const (
	TimersExamined = 5000
	timersAtOnce   = 500
)

// afterAllIDs is behind every id of a timer.
var afterAllIDs = strings.Repeat("\xff", schemas.MaxTimerIDLen+1)

// ListTimers reads one page of timers, from the index on their names.
func (r Reader) ListTimers(ctx context.Context, f TimerFilter) (TimerPage, error) {
	at := TimerName{Topic: f.Topic}
	if f.After != nil {
		at = *f.After
	}
	timers, more, err := gather(f.Limit, TimersExamined, timersAtOnce, func(int) ([]task.Timer, error) { return r.timersAfter(ctx, f, at) },
		func(t task.Timer) bool {
			at = TimerName{t.Topic, t.ID}
			if f.Allowed != nil && !f.Allowed(t.Topic) {
				at.ID = afterAllIDs // the rest of the topic is not read
				return false
			}
			return (f.Deleted || t.State != task.TimerDeleted) && strings.HasPrefix(t.ID, f.IDPrefix)
		})
	if err != nil {
		return TimerPage{}, fmt.Errorf("listing timers: %w", err)
	}
	page := TimerPage{Timers: timers}
	if more {
		page.More = &at
	}
	return page, nil
}

// timersAfter reads the next rows: the rest of the topic, then other topics unless one is named.
func (r Reader) timersAfter(ctx context.Context, f TimerFilter, at TimerName) ([]task.Timer, error) {
	const columns = "SELECT slot, next, open, placed, state, seq, version, created, topic, id, definition, '' FROM timers WHERE "
	where, a := "topic = ? AND id > ?", []any{[]byte(at.Topic), []byte(at.ID)}
	if f.Topic != "" && f.IDPrefix > at.ID {
		where, a = "topic = ? AND id >= ?", []any{[]byte(at.Topic), []byte(f.IDPrefix)}
	}
	rows, err := tables.Ask(ctx, r.h.Reads(), tables.ScanTimer, columns+where+" ORDER BY topic, id LIMIT ?", append(a, timersAtOnce)...)
	if err != nil || f.Topic != "" || len(rows) == timersAtOnce {
		return rows, err
	}
	more, err := tables.Ask(ctx, r.h.Reads(), tables.ScanTimer, columns+"topic > ? ORDER BY topic, id LIMIT ?", []byte(at.Topic), timersAtOnce-len(rows))
	return append(rows, more...), err
}

// Run is what the task of a timer's run says.
type Run struct {
	View
	Place   int64  // in line, or when it ended out of the line, Unix ms
	Dead    string // the kind of its dead letter; "": it has none
	Dropped bool   // it was never sent, and has no dead letter
}

// GetRuns reads the tasks of a topic with these ids, without their bodies.
func (r Reader) GetRuns(ctx context.Context, topic string, ids []string) (map[string]Run, error) {
	runs, err := r.runs(ctx, tables.Idents(ids, func(id string) [16]byte { return task.Ident(topic, id) }))
	out := make(map[string]Run, len(ids))
	for _, v := range runs {
		out[v.ID] = v
	}
	return out, wrap.Err(err, "reading %d runs", len(ids))
}

func (r Reader) runs(ctx context.Context, idents []any) ([]Run, error) {
	return tables.FetchIn(ctx, r.h.Reads(), func(r *sql.Rows, v *Run) error {
		var t task.Task
		var slot handle.Slot
		var kind sql.NullString
		err := tables.ScanTaskAnd(r, &t, &slot.Claimed, &slot.Done, &kind)
		*v = Run{View: viewOf(&t, slot), Place: t.Pos, Dead: kind.String, Dropped: t.WasDropped() && !kind.Valid}
		return err
	},
		"SELECT "+tables.TaskHead+"'', COALESCE((SELECT claimed FROM slots s WHERE s.slot = tasks.slot), 0), COALESCE((SELECT done FROM slots s WHERE s.slot = tasks.slot), 0),"+
			" (SELECT d.kind FROM dead_letters d WHERE d.seq = tasks.seq ORDER BY d.replay DESC LIMIT 1) FROM tasks WHERE ident", idents, "")
}
