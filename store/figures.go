package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/store/internal/tables"
)

// MaxFigures and MaxMinute limit what a service says of its work, in bytes: with its name on the
// list of services, and of a minute.
const (
	MaxFigures = 4096
	MaxMinute  = 2048
)

// FiguresMemory is how many minutes of figures are kept.
const FiguresMemory = 360

// figuresBite is how many rows are forgotten at a time, once a minute by each process: more than
// as many processes as are listed write.
const figuresBite = maxServices

// Reporting returns the services that are alive with what they say of their work.
func (s *Store) Reporting(ctx context.Context) ([]Service, error) {
	now, err := s.Time(ctx)
	if err != nil {
		return nil, err
	}
	out, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, v *Service) error {
		return r.Scan(&v.ID, &v.Kind, &v.Member, &v.Seen, &v.Figures)
	}, "SELECT id, kind, owner, seen, figures FROM services WHERE seen > ? ORDER BY kind, id LIMIT ?", now.UnixMilli()-ServiceLease, maxServices)
	if err != nil {
		return nil, fmt.Errorf("reading the services' figures: %w", err)
	}
	return out, nil
}

// SaveMinute keeps what a process did in a minute (since 1970) in place of what was kept of it, and
// forgets old minutes of all processes.
func (s *Store) SaveMinute(ctx context.Context, process string, minute int64, data []byte) error {
	if len(data) > MaxMinute {
		return fmt.Errorf("saving the figures of a minute: %d bytes are more than the %d that a minute may have", len(data), MaxMinute)
	}
	again, old := s.dialect.Upsert("minute, process", "data"), s.dialect.DeleteOldest("figures", "minute", "minute, process")
	if _, err := s.exec(ctx, "INSERT INTO figures (minute, process, data) VALUES (?, ?, ?)"+again, minute, tables.CutText(process, 255), data); err != nil {
		return fmt.Errorf("saving the figures of a minute: %w", err)
	}
	// Others forget the same rows at the same time. It is enough if one of them succeeds.
	if _, err := s.exec(ctx, old, minute-FiguresMemory, figuresBite); err != nil && !contended(err) {
		return fmt.Errorf("forgetting old figures: %w", err)
	}
	return nil
}

// MinuteFigures is what one process did in one minute.
type MinuteFigures struct {
	Minute int64 // since 1970
	Data   []byte
}

// Minutes returns what all processes did from one minute to another, the latter included, in the
// order of the minutes. Ask for few at a time: each has up to as many rows as there are processes.
func (s *Store) Minutes(ctx context.Context, from, to int64) ([]MinuteFigures, error) {
	out, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, v *MinuteFigures) error { return r.Scan(&v.Minute, &v.Data) },
		"SELECT minute, data FROM figures WHERE minute >= ? AND minute <= ? ORDER BY minute LIMIT ?", from, to, (to-from+1)*maxServices)
	if err != nil {
		return nil, fmt.Errorf("reading the figures of minutes: %w", err)
	}
	return out, nil
}

// Bounded is a number that was counted up to a limit.
type Bounded struct {
	N    int64
	More bool // there are more than N
}

func upTo(most, n int64) Bounded { return Bounded{min(n, most), n > most} }

// CountOverdue counts the tasks that were to come before the given time, Unix ms, and are not
// settled, up to a limit. oldest is the place of the first of them, 0 if there is none. Held tasks
// are not among them. It reads the index of the line only.
func (s *Store) CountOverdue(ctx context.Context, before, most int64) (found Bounded, oldest int64, err error) {
	all, err := s.Slots(ctx)
	if err != nil {
		return Bounded{}, 0, err
	}
	done, places := make(map[int]int64, len(all)), make([]SlotPos, len(all))
	for i, slot := range all {
		done[slot.Slot], places[i] = slot.Done, SlotPos{Slot: slot.Slot, Pos: slot.Done}
	}
	first, err := s.Beyond(ctx, places)
	if err != nil {
		return Bounded{}, 0, err
	}
	var total int64
	for _, p := range first {
		if p.Pos >= before {
			continue
		}
		if oldest == 0 || p.Pos < oldest {
			oldest = p.Pos
		}
		if total > most {
			continue
		}
		var n int64
		err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM tasks WHERE slot = ? AND pos > ? AND pos < ? LIMIT ?) AS overdue",
			p.Slot, done[p.Slot], before, most+1-total).Scan(&n)
		if err != nil {
			return Bounded{}, 0, fmt.Errorf("counting overdue tasks: %w", err)
		}
		total += n
	}
	return upTo(most, total), oldest, nil
}

// CountKinds counts the dead letters of each kind that were not replayed, each up to a limit. It
// reads an index only.
func (s *Store) CountKinds(ctx context.Context, kinds []string, most int64) (map[string]Bounded, error) {
	table := s.dialect.Use("dead_letters", "kind")
	out := make(map[string]Bounded, len(kinds))
	for _, kind := range kinds {
		var n int64
		err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" WHERE kind = ? AND replayed_at = 0 LIMIT ?) AS letters", []byte(kind), most+1).Scan(&n)
		if err != nil {
			return nil, fmt.Errorf("counting the dead letters of kind %s: %w", kind, err)
		}
		out[kind] = upTo(most, n)
	}
	return out, nil
}
