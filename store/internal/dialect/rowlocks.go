package dialect

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// ErrNoRowLocks: the database accepts a lock on a row and does not hold it. A task could slip
// behind its slot's owner and never be delivered.
var ErrNoRowLocks = errors.New("the database does not hold locks on rows, on which notyet's promises rest")

// Lock clauses.
const (
	LockShared    = " LOCK IN SHARE MODE"
	LockExclusive = " FOR UPDATE"
)

// Probe is what a probe of the locks on rows needs.
type Probe struct {
	// Seen is when the probe's row, as one of the services, was last seen, Unix ms: long ago.
	// Nobody lists such a row, and a heartbeat deletes it if this process dies before.
	Seen   int64
	Shared string
}

// CheckRowLocks refuses a migrated database on which a shared lock on a row does not stop a writer:
// a table of another engine than InnoDB, a server that ignores LOCK IN SHARE MODE (TiDB with
// tidb_enable_noop_functions), a proxy that sends the two statements to two servers.
func (MySQL) CheckRowLocks(ctx context.Context, db *sql.DB, probe Probe) error {
	if err := checkEngines(ctx, db); err != nil {
		return err
	}
	return probe.RowLock(ctx, db)
}

func checkEngines(ctx context.Context, db *sql.DB) error {
	var table, engine string
	err := db.QueryRowContext(ctx, "SELECT table_name, COALESCE(engine, '') FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND COALESCE(engine, '') <> 'InnoDB' AND table_name IN ('tasks','slots','sources','waiting','outbox','timers','tags','dead_letters','meta','services','members','assignment') ORDER BY table_name LIMIT 1").Scan(&table, &engine)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: table %s has the engine %s: stop notyet, and run ALTER TABLE %s ENGINE=InnoDB", ErrNoRowLocks, table, engine, table)
}

// probes is how often a probe begins anew whose connection was lost, and its lock with it.
const probes = 5

// RowLock holds a shared lock on a row of its own, which no other connection must be able to lock.
func (p Probe) RowLock(ctx context.Context, db *sql.DB) (err error) {
	for range probes {
		if err = p.rowLock(ctx, db); !errors.Is(err, driver.ErrBadConn) && !errors.Is(err, mysql.ErrInvalidConn) {
			return err
		}
	}
	return err
}

func (p Probe) rowLock(ctx context.Context, db *sql.DB) error {
	id := "lock-probe-" + rand.Text()
	if _, err := db.ExecContext(ctx, "INSERT INTO services (id, kind, owner, version, http, started, seen, figures) VALUES (?,?,?,?,?,?,?,?)",
		id, "probe", "", "", "", p.Seen, p.Seen, []byte{}); err != nil {
		return err
	}
	defer func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveProbe)
		defer cancel()
		_, _ = db.ExecContext(bound, "DELETE FROM services WHERE id = ?", id)
	}()
	holder, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = holder.Rollback() }()
	var kind string
	if err := holder.QueryRowContext(ctx, "SELECT kind FROM services WHERE id = ?"+p.Shared, id).Scan(&kind); err != nil {
		return err
	}
	refused, err := writerIsRefused(ctx, db, id)
	if err == nil && !refused {
		err = holder.QueryRowContext(ctx, "SELECT kind FROM services WHERE id = ?", id).Scan(&kind)
	}
	switch {
	case err != nil:
		return err
	case !refused:
		return fmt.Errorf("%w: one connection held %s on a row, and another got the same row%s: connect notyet to one MySQL or MariaDB server with InnoDB, without a proxy that spreads statements",
			ErrNoRowLocks, LockShared[1:], LockExclusive)
	}
	return nil
}

// leaveProbe limits the wait for the removal of the probe's row.
const leaveProbe = 2 * time.Second

// Numbers of the errors with which servers refuse a lock.
const (
	lockWaitTimeout = 1205 // MariaDB, for NOWAIT too
	lockNoWait      = 3572 // MySQL
	syntaxError     = 1064 // MySQL before 8.0 and MariaDB before 10.3 do not know NOWAIT
)

// writerIsRefused reports whether a second connection is refused a lock on the row.
func writerIsRefused(ctx context.Context, db *sql.DB, id string) (bool, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // its settings are the probe's alone
		_ = conn.Close()
	}()
	try := func(clause string) error {
		if _, err := conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
			return err
		}
		var kind string
		return conn.QueryRowContext(ctx, "SELECT kind FROM services WHERE id = ?"+LockExclusive+clause, id).Scan(&kind)
	}
	err = try(" NOWAIT")
	if answered(err, syntaxError) {
		if _, err := conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
			return false, err
		}
		err = try("")
	}
	switch {
	case err == nil, errors.Is(err, sql.ErrNoRows): // without the row: it looks at another server
		return false, nil
	case answered(err, lockWaitTimeout, lockNoWait):
		return true, nil
	}
	return false, err
}

// answered tells whether the server returned one of the errors of these numbers.
func answered(err error, numbers ...uint16) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && slices.Contains(numbers, my.Number)
}

// ErrMultiPrimary: several servers accept writes at the same time. They do not certify shared
// locks, so the lock on a slot's row stops only writers on the same server. A task could slip
// behind its slot's owner and never be delivered.
var ErrMultiPrimary = errors.New("the database accepts writes on several servers at once, and notyet's row locks hold on one only")

func (MySQL) CheckPrimary(ctx context.Context, q Querier) error {
	rows, err := readVariables(ctx, q, "wsrep_on", "group_replication_single_primary_mode")
	if err != nil {
		return fmt.Errorf("asking the database how it replicates: %w", err)
	}
	for _, v := range rows {
		if err := singlePrimary(v.name, v.value); err != nil {
			return fmt.Errorf("checking the database: %w", err)
		}
	}
	return nil
}

func singlePrimary(variable, value string) error {
	on := strings.EqualFold(value, "ON") || value == "1"
	switch {
	case variable == "wsrep_on" && on:
		return fmt.Errorf("%w: wsrep_on is %s (Galera): use a server with replicas, or Group Replication in single-primary mode", ErrMultiPrimary, value)
	case variable == "group_replication_single_primary_mode" && !on:
		return fmt.Errorf("%w: group_replication_single_primary_mode is %s: set it to ON", ErrMultiPrimary, value)
	}
	return nil
}
