package look

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Services returns the services that are alive with what they say of their work, in the order of their kinds and ids.
func (r Reader) Services(ctx context.Context) ([]handle.Service, error) {
	now, err := r.h.Time(ctx)
	if err != nil {
		return nil, err
	}
	out, err := tables.Fetch(ctx, r.h.Reads(), func(r *sql.Rows, v *handle.Service) error {
		return r.Scan(&v.ID, &v.Kind, &v.Member, &v.Version, &v.HTTP, &v.Started, &v.Seen, &v.Figures)
	}, "SELECT id, kind, owner, version, http, started, seen, figures FROM services WHERE seen > ? ORDER BY kind, id LIMIT ?", now.UnixMilli()-handle.ServiceLease, handle.MaxServices)
	if err != nil {
		return nil, fmt.Errorf("reading the services: %w", err)
	}
	return out, nil
}
