package look

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Services returns the services alive with their figures, in the order of kinds and ids.
func (r Reader) Services(ctx context.Context) (out []handle.Service, err error) {
	now, err := r.h.Time(ctx)
	if err != nil {
		return nil, err
	}
	alive := r.h.Cold(ctx, "services").Where("seen > ?", now.UnixMilli()-handle.ServiceLease).Order("kind, id").Limit(handle.MaxServices)
	if err := alive.Find(&out).Error; err != nil {
		return nil, fmt.Errorf("reading the services: %w", tables.Timely(err))
	}
	return out, nil
}
