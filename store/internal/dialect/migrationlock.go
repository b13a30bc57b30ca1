package dialect

import (
	"context"
	"database/sql"
	"errors"
)

// migrationLock lets one process migrate a database at a time. It ends with the connection.
type migrationLock struct{}

// lockName has at most 64 bytes, for all servers. All have SHA2, too: MySQL 9.6 has dropped MD5.
const lockName = "CONCAT('notyet.migrate.', LEFT(SHA2(DATABASE(), 256), 32))"

func (migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", 50)").Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = errors.New("another process has been migrating the database for 50 s")
	}
	return err
}

func (migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+lockName+")")
	return err
}

// underLock runs f on a connection that holds migrationLock.
func underLock(ctx context.Context, db *sql.DB, f func(conn *sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var lock migrationLock
	if err := lock.SessionLock(ctx, conn); err != nil {
		return err
	}
	defer func() { _ = lock.SessionUnlock(context.WithoutCancel(ctx), conn) }()
	return f(conn)
}
