package admin

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Service is a process that says that it is alive.
type Service = handle.Service

// ServiceLease is how long, in ms, a service counts as alive after it has last said so.
const ServiceLease = handle.ServiceLease

// serviceMemory is how long, in ms, a service that says nothing is remembered.
const serviceMemory = 3_600_000

// Beat notes that a service is alive, and what it says of its work.
func (a Admin) Beat(ctx context.Context, v Service) error {
	again := a.h.Dialect.Upsert("id", "owner", "seen", "http", "figures", "spreads")
	if v.Figures == nil || len(v.Figures) > MaxFigures { // a part of it would be worth nothing
		v.Figures = []byte{}
	}
	now, err := a.h.Time(ctx)
	if err != nil {
		return err
	}
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM services WHERE seen < ?", now.UnixMilli()-serviceMemory); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO services (id, kind, owner, version, http, started, seen, figures, spreads) VALUES (?,?,?,?,?,?,?,?,1)"+again,
			tables.CutText(v.ID, 255), tables.CutText(v.Kind, 16), tables.CutText(v.Member, 255), tables.CutText(v.Version, 64), tables.CutText(v.HTTP, 255), v.Started, now.UnixMilli(), v.Figures)
		return err
	})
	if err != nil {
		return fmt.Errorf("noting that the service %s is alive: %w", v.ID, err)
	}
	return nil
}

// Leave notes that a service has ended. After the last one, services may start with another kind of index at once, and
// after the last scanner with other targets of intake topics.
func (a Admin) Leave(ctx context.Context, id string) error {
	now, err := a.h.Time(ctx)
	if err == nil {
		_, err = a.h.Exec(ctx, "DELETE FROM services WHERE id = ?", tables.CutText(id, 255))
	}
	if err == nil {
		_, err = a.h.Exec(ctx, "UPDATE meta SET value = 0 WHERE name = ? AND NOT EXISTS (SELECT 1 FROM services WHERE seen > ?)", []byte(indexKind.name), now.UnixMilli()-ServiceLease)
	}
	if err == nil {
		_, err = a.h.Exec(ctx, "UPDATE meta SET value = 0 WHERE name > ? AND name < ? AND NOT EXISTS (SELECT 1 FROM services WHERE "+readsIntakes+" AND seen > ?)",
			[]byte(intakeTargets), []byte(intakeTargets+"~"), now.UnixMilli()-ServiceLease)
	}
	if err != nil {
		return fmt.Errorf("noting that the service %s has ended: %w", id, err)
	}
	return nil
}
