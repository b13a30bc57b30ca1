package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/dialect"
	"github.com/notyet/notyet/store/internal/handle"
)

// Examined is a database's description of itself.
type Examined = dialect.Examined

// Examine asks the database about itself, and changes nothing.
func (s *Store) Examine(ctx context.Context) (Examined, error) {
	var out Examined
	var err error
	if out.Schema, out.Wanted, err = s.schema(ctx); err == nil {
		err = s.dialect.Examine(ctx, s.db, s.h.Time, &out)
	}
	return out, wrap.Err(err, "examining the database")
}

// Address returns where a DSN's database is, without user and password; "" for an unreadable DSN.
func Address(dsn string) string {
	if strings.HasPrefix(dsn, sqlitePrefix) {
		return dsn
	}
	parsed, err := mysql.ParseDSN(dsn)
	if err != nil || parsed.Net != "tcp" && parsed.Net != "unix" {
		return ""
	}
	return parsed.Addr + "/" + parsed.DBName
}

// Credentials splits a DSN into user, password, and the rest. The error does not contain the DSN.
func Credentials(dsn string) (user, password, rest string, err error) {
	parsed, err := mysql.ParseDSN(dsn)
	if err != nil || strings.HasPrefix(dsn, sqlitePrefix) {
		return "", "", "", errors.New("this is no DSN of a server: want user:password@tcp(host:port)/database")
	}
	user, password = parsed.User, parsed.Passwd
	parsed.User, parsed.Passwd = "", ""
	return user, password, parsed.FormatDSN(), nil
}

// Collector returns the metrics of the connections to the database: go_sql_*.
func (s *Store) Collector() prometheus.Collector {
	return collectors.NewDBStatsCollector(s.db, "notyet")
}

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
