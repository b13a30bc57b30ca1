package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// The widths of columns whose content nobody has checked before: the id of a rejected request may
// be the default id of an intake topic with a long name, and a reason may hold a consumer's text.
const (
	maxReason = 4096
	maxTaskID = 255
)

// insertDead may be repeated: the second letter of one death is ignored.
func (s *Store) insertDead(ctx context.Context, tx *sql.Tx, dead []*task.DeadLetter) error {
	again := s.dialect.Keep("seq, replay", "seq")
	return tables.Pieces(dead, func(d *task.DeadLetter) int { return len(d.Body) + len(d.Reason) + 100 }, func(part []*task.DeadLetter) error {
		a := make([]any, 0, 12*len(part))
		for _, d := range part {
			a = append(a, d.Seq, []byte(d.Kind), []byte(d.Topic), tables.CutText(d.TaskID, maxTaskID), d.Due, d.Attempt, d.Replay, tables.CutText(d.Reason, maxReason), d.DiedAt, 0, []byte{}, tables.NonNil(d.Body))
		}
		rows := strings.Repeat(",(?,?,?,?,?,?,?,?,?,?,?,?)", len(part))[1:]
		_, err := tx.ExecContext(ctx, "INSERT INTO dead_letters (seq, kind, topic, task_id, due, attempt, replay, reason, died_at, replayed_at, replayed_by, body) VALUES "+rows+again, a...)
		if err != nil {
			return fmt.Errorf("writing %d dead letters: %w", len(part), err)
		}
		return faultpoint.At(faultpoint.StoreBuried)
	})
}

// DeadFilter selects dead letters; the zero value selects all that were not replayed.
type DeadFilter struct {
	IDs      []int64
	Kind     string
	Topic    string
	TaskID   string
	Reason   string // a part of the reason
	Since    int64  // died at or after, Unix ms
	Until    int64  // died before, Unix ms; 0: no bound
	Replayed bool   // also those that were replayed
	After    int64  // only ids above it: pages go in the order of ids
	UpTo     int64  // only ids up to it, see LastDead; 0: no bound
	Limit    int    // 0: 100
	// Allowed tells whether a letter of the topic may be seen. nil: all.
	Allowed func(topic string) bool
}

// DeadLetters returns the first f.Limit dead letters that the filter selects, in the order in which
// they were written, however many others it has to look at.
func (s *Store) DeadLetters(ctx context.Context, f DeadFilter) ([]task.DeadLetter, error) {
	var out []task.DeadLetter
	for left := cmp.Or(f.Limit, 100); ; {
		f.Limit = left
		page, err := s.SelectDead(ctx, f)
		if err != nil {
			return nil, err
		}
		found, err := s.ReadDead(ctx, page.IDs, true)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
		if left -= len(page.IDs); left <= 0 || page.Next == 0 {
			return out, nil
		}
		f.After = page.Next
	}
}

// ReadDead returns the letters with the given ids that are still there, in the order of their ids.
func (s *Store) ReadDead(ctx context.Context, ids []int64, body bool) ([]task.DeadLetter, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	columns := tables.DeadColumns
	if !body {
		columns = strings.TrimSuffix(tables.DeadColumns, "body") + "''"
	}
	rows, err := s.gorm.WithContext(ctx).Table("dead_letters").Where("id IN ?", ids).Select(columns).Order("id").Rows()
	if err != nil {
		return nil, fmt.Errorf("reading %d dead letters: %w", len(ids), err)
	}
	defer rows.Close()
	var out []task.DeadLetter
	for rows.Next() {
		var d task.DeadLetter
		if err := tables.ScanDead(rows, &d); err != nil {
			return nil, fmt.Errorf("reading %d dead letters: %w", len(ids), err)
		}
		out = append(out, d)
	}
	return out, rows.Err()
}
