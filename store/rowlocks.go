package store

import (
	"context"
	"time"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
)

// Why a database is refused.
var (
	ErrMultiPrimary = dialect.ErrMultiPrimary
	ErrNoRowLocks   = dialect.ErrNoRowLocks
)

// lockProbeAge makes the probe's row one of a service that is gone.
const lockProbeAge = 2 * handle.ServiceLease

// CheckRowLocks refuses a migrated database on which a shared lock on a row does not stop a writer.
func (s *Store) CheckRowLocks(ctx context.Context) error {
	bound, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	probe, err := s.lockProbe(bound)
	if err == nil {
		err = s.dialect.CheckRowLocks(bound, s.db, probe)
	}
	return wrap.Err(err, "checking that the database locks rows")
}

func (s *Store) lockProbe(ctx context.Context) (dialect.Probe, error) {
	now, err := s.h.Time(ctx)
	return dialect.Probe{Seen: now.UnixMilli() - lockProbeAge, Shared: s.h.Locking(handle.LockShared)}, err
}
