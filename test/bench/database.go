package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/notyet/notyet/internal/kafka"
)

// database is the installation's, seen from outside: what is stored, what is settled, and the bench's own rows.
type database struct{ db *sql.DB }

func openDatabase(ctx context.Context, dsn string, before func(context.Context, *mysql.Config) error) (*database, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("reading mysql.dsn (want user:password@tcp(host:port)/database): %w", err)
	}
	cfg.InterpolateParams = true // as the store does it
	if before != nil {
		_ = cfg.Apply(mysql.BeforeConnect(before)) // this option has no error
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("reading mysql.dsn: %w", err)
	}
	d := &database{db: sql.OpenDB(connector)}
	d.db.SetMaxIdleConns(rawWriters)
	if err := d.db.PingContext(ctx); err != nil {
		d.close()
		return nil, fmt.Errorf("reaching the database (mysql.dsn): %w", err)
	}
	return d, nil
}

func (d *database) close() { _ = d.db.Close() }

// source is how far one intake partition is stored: its next offset moves in the transaction that stores the tasks.
type source struct {
	id   int64
	next int64
}

// sources are those of a topic by partition. An earlier topic of the same name has another id.
func (b *Bench) sources(ctx context.Context, topic string) (map[int32]source, error) {
	ids, err := kafka.TopicIDs(ctx, b.intake, topic)
	if err != nil {
		return nil, err
	}
	id := ids[topic]
	rows, err := b.db.db.QueryContext(ctx, "SELECT part, src, next_offset FROM sources WHERE topic = ? AND topic_id = ? AND retired_at = 0", []byte(topic), id[:])
	if err != nil {
		return nil, fmt.Errorf("reading the sources: %w", err)
	}
	defer rows.Close()
	out := map[int32]source{}
	for rows.Next() {
		var part int32
		var s source
		if err := rows.Scan(&part, &s.id, &s.next); err != nil {
			return nil, fmt.Errorf("reading the sources: %w", err)
		}
		out[part] = s
	}
	return out, rows.Err()
}

// taken counts what has been stored of a topic so far.
func (b *Bench) taken(ctx context.Context, topic string) (int, error) {
	sources, err := b.sources(ctx, topic)
	n := int64(0)
	for _, s := range sources {
		n += s.next
	}
	return int(n), err
}

// stored waits until every request of a load is in the database, and answers when it was.
func (b *Bench) stored(ctx context.Context, l *load) (time.Time, error) {
	l.mu.Lock()
	places, first := l.ends, l.first
	l.mu.Unlock()
	all := places.since(first)
	n, err := b.grow(ctx, all, time.Now(), 10*time.Millisecond, func() (int, error) {
		sources, err := b.sources(ctx, b.cfg.Intake)
		n := int64(0)
		for p, end := range places {
			n += max(min(sources[p].next, end)-first[p], 0)
		}
		return int(n), err
	})
	if err == nil && n < all {
		err = fmt.Errorf("%d of %d requests are stored, and none for %s: is a scanner running?", n, all, b.cfg.IdleTimeout)
	}
	return time.Now(), err
}

// storedBy is stored, or the zero time when that was not so at the given instant or where there is no database to look at.
func (b *Bench) storedBy(ctx context.Context, l *load, at time.Time) (time.Time, error) {
	if b.db == nil {
		return time.Time{}, nil
	}
	bound, cancel := context.WithDeadline(ctx, at)
	defer cancel()
	stored, err := b.stored(bound, l)
	if bound.Err() != nil && ctx.Err() == nil {
		return time.Time{}, nil
	}
	return stored, err
}

// open counts the tasks of the near future that are behind no slot's done: all that a load has stored and that are not
// settled, but not what is pending for tomorrow.
func (d *database) open(ctx context.Context) (int, error) {
	n := 0
	near := time.Now().Add(time.Minute).UnixMilli()
	err := d.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM slots s STRAIGHT_JOIN tasks t ON t.slot = s.slot WHERE t.pos > s.done AND t.pos <= ?", near).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("counting what is not settled: %w", err)
	}
	return n, nil
}

// rows counts the table of tasks.
func (d *database) rows(ctx context.Context) (int, error) {
	n := 0
	if err := d.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&n); err != nil {
		return 0, fmt.Errorf("counting the stored tasks: %w", err)
	}
	return n, nil
}

// each runs a query for the rows of a load, which lie together in each source.
func (b *Bench) each(ctx context.Context, l *load, f func(from, to int64) error) error {
	sources, err := b.sources(ctx, b.cfg.Intake)
	if err != nil {
		return err
	}
	for p, end := range l.ends {
		if err := f(sources[p].id<<offsetBits|l.first[p], sources[p].id<<offsetBits|(end-1)); err != nil {
			return err
		}
	}
	return nil
}

// offsetBits: a task's seq is its source << 48 | its intake offset.
const offsetBits = 48

// visible counts the rows of a load.
func (b *Bench) visible(ctx context.Context, l *load) (int, error) {
	sum := 0
	err := b.each(ctx, l, func(from, to int64) error {
		n := 0
		err := b.db.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE seq BETWEEN ? AND ? AND topic = ?", from, to, []byte(b.cfg.Topic)).Scan(&n)
		sum += n
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("counting the stored tasks: %w", err)
	}
	return sum, nil
}

// purgeRows is how many rows one statement takes away: a short lock.
const purgeRows = 5000

// purge deletes the rows of a load, pending ones without a trace: cancelling them would be a request and an event each.
func (b *Bench) purge(ctx context.Context, l *load) error {
	err := b.each(ctx, l, func(from, to int64) error {
		for ; from <= to; from += purgeRows {
			if _, err := b.db.db.ExecContext(ctx, "DELETE FROM tasks WHERE seq BETWEEN ? AND ? AND topic = ?", from, min(to, from+purgeRows-1), []byte(b.cfg.Topic)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("purging the bench's tasks: %w", err)
	}
	return nil
}

var errNoDatabase = errors.New("this needs the installation's database: set mysql.dsn (NOTYET_MYSQL_DSN) to a MySQL or MariaDB")

// done is up to where each slot is settled, Unix ms.
func (d *database) done(ctx context.Context) ([]int64, error) {
	rows, err := d.db.QueryContext(ctx, "SELECT done FROM slots ORDER BY slot")
	if err != nil {
		return nil, fmt.Errorf("reading the slots: %w", err)
	}
	defer rows.Close()
	var out []int64
	for rows.Next() {
		var at int64
		if err := rows.Scan(&at); err != nil {
			return nil, fmt.Errorf("reading the slots: %w", err)
		}
		out = append(out, at)
	}
	return out, rows.Err()
}

// forget deletes what past has inserted.
func (b *Bench) forget(ctx context.Context, n int) error {
	for from := int64(historySource) << offsetBits; n > 0; from, n = from+purgeRows, n-purgeRows {
		if _, err := b.db.db.ExecContext(ctx, "DELETE FROM tasks WHERE seq BETWEEN ? AND ?", from, from+purgeRows-1); err != nil {
			return fmt.Errorf("deleting the history: %w", err)
		}
	}
	return nil
}
