package admin

import (
	"context"
	"database/sql"

	"gorm.io/gorm/clause"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Service is a process that reports that it is alive.
type Service = handle.Service

// ServiceLease is how long, in ms, a service counts as alive after its last Beat.
const ServiceLease = handle.ServiceLease

// serviceMemory is how long, in ms, a silent service is remembered.
const serviceMemory = 3_600_000

// Beat notes that a service is alive, and its figures.
func (a Admin) Beat(ctx context.Context, v Service) error {
	if v.Figures == nil || len(v.Figures) > MaxFigures { // a part of it would be worth nothing
		v.Figures = []byte{}
	}
	now, err := a.h.Time(ctx)
	if err != nil {
		return err
	}
	v.Seen = now.UnixMilli()
	row := struct {
		Service
		Spreads int // it knows that the number of slots can change
	}{v, 1}
	again := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"owner", "seen", "http", "figures", "spreads"})}
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		if err := a.h.ColdIn(ctx, tx, "services").Where("seen < ?", v.Seen-serviceMemory).Delete(nil).Error; err != nil {
			return err
		}
		return a.h.ColdIn(ctx, tx, "services").Clauses(again).Create(&row).Error
	})
	return wrap.Err(err, "noting that the service %s is alive", v.ID)
}

// Leave notes that a service has ended. After the last one, services may start with another kind of
// index at once, and after the last scanner with other targets of intake topics.
func (a Admin) Leave(ctx context.Context, id string) error {
	now, err := a.h.Time(ctx)
	if err == nil {
		err = a.h.Cold(ctx, "services").Where("id = ?", tables.CutText(id, 255)).Delete(nil).Error
	}
	if err == nil {
		_, err = a.h.Exec(ctx, "UPDATE meta SET value = 0 WHERE name = ? AND NOT EXISTS (SELECT 1 FROM services WHERE seen > ?)", []byte(indexKind.name), now.UnixMilli()-ServiceLease)
	}
	if err == nil {
		_, err = a.h.Exec(ctx, "UPDATE meta SET value = 0 WHERE name > ? AND name < ? AND NOT EXISTS (SELECT 1 FROM services WHERE "+readsIntakes+" AND seen > ?)",
			[]byte(intakeTargets), []byte(intakeTargets+"~"), now.UnixMilli()-ServiceLease)
	}
	return wrap.Err(err, "noting that the service %s has ended", id)
}
