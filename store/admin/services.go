package admin

import (
	"context"
	"database/sql"
	"fmt"

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
	v.Databases = max(1, v.Databases)
	again := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"owner", "seen", "http", "figures", "spreads"})}
	err = a.h.Transact(ctx, func(tx *sql.Tx) error {
		if err := a.h.ColdIn(ctx, tx, "services").Where("seen < ?", v.Seen-serviceMemory).Delete(nil).Error; err != nil {
			return err
		}
		return a.h.ColdIn(ctx, tx, "services").Clauses(again).Create(&v).Error
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

// MaxFigures and MaxMinute limit a service's figures, in bytes: on the list, and of a minute.
const (
	MaxFigures = 4096
	MaxMinute  = 2048
)

// FiguresMemory is how many minutes of figures are kept.
const FiguresMemory = 360

// figuresBite is how many rows each process forgets once a minute: more than all listed ones write.
const figuresBite = handle.MaxServices

// SaveMinute replaces a process's figures of a minute (since 1970), and forgets old ones of all.
func (a Admin) SaveMinute(ctx context.Context, process string, minute int64, data []byte) error {
	if len(data) > MaxMinute {
		return fmt.Errorf("saving the figures of a minute: %d bytes are more than the %d that a minute may have", len(data), MaxMinute)
	}
	row := struct {
		Minute  int64  `gorm:"primaryKey"`
		Process string `gorm:"primaryKey;size:255;serializer:text"`
		Data    []byte
	}{minute, process, data}
	if err := a.h.Cold(ctx, "figures").Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error; err != nil {
		return fmt.Errorf("saving the figures of a minute: %w", err)
	}
	// Others forget the same rows at the same time. One success is enough.
	old := a.h.Dialect.DeleteOldest("figures", "minute", "minute, process")
	if _, err := a.h.Exec(ctx, old, minute-FiguresMemory, figuresBite); err != nil && !handle.Contended(err) {
		return fmt.Errorf("forgetting old figures: %w", err)
	}
	return nil
}
