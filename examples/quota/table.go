package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/glebarez/go-sqlite"
	_ "github.com/go-sql-driver/mysql"

	"github.com/notyet/notyet/consumer"
)

// table is the quota table: one row per user.
type table struct {
	db    *sql.DB
	guard *consumer.SQLGuard
	add   string
	close func()
}

const create = `CREATE TABLE IF NOT EXISTS example_quota (user_name VARCHAR(100) NOT NULL PRIMARY KEY,
	used_bytes BIGINT NOT NULL, chunks BIGINT NOT NULL, updates BIGINT NOT NULL)`

const insert = `INSERT INTO example_quota (user_name, used_bytes, chunks, updates) VALUES (?, ?, ?, 1) `

// openTable opens MySQL, or without a DSN an SQLite file that is removed at the end.
func openTable(ctx context.Context, dsn string) (*table, error) {
	driver, dialect, dir := "mysql", consumer.MySQL, ""
	t := &table{add: insert + `ON DUPLICATE KEY UPDATE used_bytes = used_bytes + VALUES(used_bytes), chunks = chunks + VALUES(chunks), updates = updates + 1`}
	if dsn == "" {
		var err error
		if dir, err = os.MkdirTemp("", "quota-"); err != nil {
			return nil, fmt.Errorf("making a directory for the quota table: %w", err)
		}
		driver, dialect = "sqlite", consumer.SQLite
		dsn = filepath.Join(dir, "quota.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)"
		t.add = insert + `ON CONFLICT (user_name) DO UPDATE SET used_bytes = used_bytes + excluded.used_bytes, chunks = chunks + excluded.chunks, updates = updates + 1`
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("opening the quota table: %w", err)
	}
	t.db = db
	t.close = func() {
		_ = db.Close()
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	if err := t.create(ctx, dialect); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *table) create(ctx context.Context, dialect consumer.Dialect) (err error) {
	if _, err = t.db.ExecContext(ctx, create); err != nil {
		return fmt.Errorf("creating the quota table: %w", err)
	}
	if t.guard, err = consumer.NewSQLGuard(t.db, consumer.SQLGuardConfig{Dialect: dialect, Table: "example_quota_handled"}); err != nil {
		return err
	}
	return t.guard.Create(ctx)
}

// handler adds a delivery to its user's account. It marks the delivery in the same transaction, so
// that a second copy is not added again.
func (t *table) handler() consumer.Handler {
	return t.guard.InTx(func(ctx context.Context, tx *sql.Tx, m consumer.Message) error {
		var sum usage
		if err := json.Unmarshal(m.Record.Value, &sum); err != nil {
			return consumer.Fail(fmt.Errorf("reading an update: %w", err))
		}
		if _, err := tx.ExecContext(ctx, t.add, string(m.Record.Key), sum.Bytes, sum.Chunks); err != nil {
			return fmt.Errorf("writing the account of %s: %w", m.Record.Key, err)
		}
		return nil
	})
}

// read reads the users' accounts.
func (t *table) read(ctx context.Context, users map[string]usage) (map[string]usage, error) {
	accounts := map[string]usage{}
	for user := range users {
		var u usage
		row := t.db.QueryRowContext(ctx, "SELECT used_bytes, chunks, updates FROM example_quota WHERE user_name = ?", user)
		switch err := row.Scan(&u.Bytes, &u.Chunks, &u.updates); err {
		case nil:
			accounts[user] = u
		case sql.ErrNoRows:
		default:
			return accounts, fmt.Errorf("reading the account of %s: %w", user, err)
		}
	}
	return accounts, nil
}
