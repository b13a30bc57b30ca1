package admin

import (
	"context"
	"fmt"

	"gorm.io/gorm/clause"

	"github.com/notyet/notyet/store/internal/handle"
)

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
