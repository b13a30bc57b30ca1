package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/store/internal/tables"
)

// Service is a process that says that it is alive.
type Service struct {
	ID      string // names this start of the process
	Kind    string // scanner, dispatcher, all, dev
	Member  string // of a dispatcher: its name as the owner of slots
	Version string
	HTTP    string // where it serves
	Started int64  // Unix ms
	Seen    int64  // Unix ms, by the database's clock
	Figures []byte // what it says of its work, at most MaxFigures bytes; empty: nothing. Services leaves it out
}

// ServiceLease is how long, in ms, a service counts as alive after it has last said so. It says so three
// times in this time.
const ServiceLease = 15_000

// What is kept of services: those that have said nothing for this long, in ms, are forgotten, and
// no more than this many are listed.
const (
	serviceMemory = 3_600_000
	maxServices   = 1000
)

// Beat notes that a service is alive, and what it says of its work.
func (s *Store) Beat(ctx context.Context, v Service) error {
	again := s.dialect.Upsert("id", "seen", "http", "figures")
	if v.Figures == nil || len(v.Figures) > MaxFigures { // a part of it would be worth nothing
		v.Figures = []byte{}
	}
	now, err := s.Time(ctx)
	if err != nil {
		return err
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM services WHERE seen < ?", now.UnixMilli()-serviceMemory); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO services (id, kind, owner, version, http, started, seen, figures) VALUES (?,?,?,?,?,?,?,?)"+again,
			tables.CutText(v.ID, 255), tables.CutText(v.Kind, 16), tables.CutText(v.Member, 255), tables.CutText(v.Version, 64), tables.CutText(v.HTTP, 255), v.Started, now.UnixMilli(), v.Figures)
		return err
	})
	if err != nil {
		return fmt.Errorf("noting that the service %s is alive: %w", v.ID, err)
	}
	return nil
}

// Leave notes that a service has ended.
func (s *Store) Leave(ctx context.Context, id string) error {
	if _, err := s.exec(ctx, "DELETE FROM services WHERE id = ?", tables.CutText(id, 255)); err != nil {
		return fmt.Errorf("noting that the service %s has ended: %w", id, err)
	}
	return nil
}

// Services returns the services that are alive, in the order of their kinds and ids.
func (s *Store) Services(ctx context.Context) ([]Service, error) {
	now, err := s.Time(ctx)
	if err != nil {
		return nil, err
	}
	out, err := tables.Fetch(ctx, s.db, func(r *sql.Rows, v *Service) error {
		return r.Scan(&v.ID, &v.Kind, &v.Member, &v.Version, &v.HTTP, &v.Started, &v.Seen)
	}, "SELECT id, kind, owner, version, http, started, seen FROM services WHERE seen > ? ORDER BY kind, id LIMIT ?", now.UnixMilli()-ServiceLease, maxServices)
	if err != nil {
		return nil, fmt.Errorf("reading the services: %w", err)
	}
	return out, nil
}
