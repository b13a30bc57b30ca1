package bench

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	rawWriters   = 4   // connections
	rawRows      = 500 // per statement
	rawInsertMax = 200_000
)

// insertRate inserts the rows of a load again, at most rawInsertMax of them, into an empty table of
// the same shape on the same server. It returns rows a second: what the database can do without
// other work.
func (b *Bench) insertRate(ctx context.Context, l *load) (float64, error) {
	b.cfg.Say("measuring how fast the database alone takes the same rows")
	columns, rows, err := b.rows(ctx, l)
	if err != nil {
		return 0, fmt.Errorf("reading the stored tasks back: %w", err)
	}
	table := "`" + strings.NewReplacer("-", "_", ".", "_", "`", "").Replace(b.cfg.Topic) + "`"
	if _, err := b.db.db.ExecContext(ctx, "CREATE TABLE "+table+" LIKE tasks"); err != nil {
		return 0, fmt.Errorf("making a table to compare with: %w", err)
	}
	defer func() { _, _ = b.db.db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+table) }()
	began := time.Now()
	if err := b.insertAll(ctx, table, columns, len(rows), func(i int) []any { return rows[i] }); err != nil {
		return 0, fmt.Errorf("inserting to compare: %w", err)
	}
	return float64(len(rows)) / time.Since(began).Seconds(), nil
}

// insertAll inserts n rows, many per statement, over several connections.
func (b *Bench) insertAll(ctx context.Context, table, columns string, n int, row func(i int) []any) error {
	statement := "INSERT INTO " + table + " (" + columns + ") VALUES "
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(rawWriters)
	for from := 0; from < n; from += rawRows {
		work.Go(func() error {
			part := make([][]any, min(rawRows, n-from))
			for i := range part {
				part[i] = row(from + i)
			}
			return insert(ctx, b.db.db, statement, part)
		})
	}
	return work.Wait()
}

func insert(ctx context.Context, db *sql.DB, statement string, rows [][]any) error {
	row := ",(" + strings.Repeat("?,", len(rows[0])-1) + "?)"
	args := make([]any, 0, len(rows)*len(rows[0]))
	for _, r := range rows {
		args = append(args, r...)
	}
	_, err := db.ExecContext(ctx, statement+strings.Repeat(row, len(rows))[1:], args...)
	return err
}

// rows reads rows of a load with all their columns.
func (b *Bench) rows(ctx context.Context, l *load) (columns string, out [][]any, err error) {
	err = b.each(ctx, l, func(from, to int64) error {
		rows, err := b.db.db.QueryContext(ctx, "SELECT * FROM tasks WHERE seq BETWEEN ? AND ? AND topic = ? LIMIT ?", from, to, []byte(b.cfg.Topic), rawInsertMax-len(out))
		if err != nil {
			return err
		}
		defer rows.Close()
		types, err := rows.ColumnTypes()
		if err != nil {
			return err
		}
		names, _ := rows.Columns()
		columns = strings.Join(names, ", ")
		for rows.Next() {
			row := make([]any, len(types))
			for i, t := range types {
				row[i] = reflect.New(t.ScanType()).Interface()
			}
			if err := rows.Scan(row...); err != nil {
				return err
			}
			for i := range row {
				row[i] = reflect.ValueOf(row[i]).Elem().Interface()
			}
			out = append(out, row)
		}
		return rows.Err()
	})
	return columns, out, err
}
