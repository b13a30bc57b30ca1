package tables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/notyet/notyet/store/internal/dialect"
)

// Fetch runs a query and scans every row.
func Fetch[T any](ctx context.Context, q dialect.Querier, scan func(*sql.Rows, *T) error, query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		var empty T
		out = append(out, empty)
		if err := scan(rows, &out[len(out)-1]); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// FetchIn is Fetch of the rows with one of the values, a run of values at a time. The query ends
// with the column's name; rest follows the values, with arguments of its own.
func FetchIn[T, V any](ctx context.Context, q dialect.Querier, scan func(*sql.Rows, *T) error, query string, values []V, rest string, args ...any) (out []T, err error) {
	err = Chunks(values, func(part []V) error {
		list, values := listed(part)
		rows, err := Fetch(ctx, q, scan, query+" IN ("+list+")"+rest, append(values, args...)...)
		out = append(out, rows...)
		return err
	})
	return out, err
}

// Column is Fetch of a single column.
func Column[T any](ctx context.Context, q dialect.Querier, query string, args ...any) ([]T, error) {
	return Fetch(ctx, q, func(r *sql.Rows, v *T) error { return r.Scan(v) }, query, args...)
}

// One is Column of one row at most. False: there is none.
func One[T any](ctx context.Context, q dialect.Querier, query string, args ...any) (v T, there bool, err error) {
	rows, err := Column[T](ctx, q, query, args...)
	if err != nil || len(rows) == 0 {
		return v, false, err
	}
	return rows[0], true, nil
}

// Ask is Fetch for a caller's question, whose ctx has a deadline. Then the server itself ends the
// statement. The end of ctx alone only closes the connection, and the server works on.
func Ask[T any](ctx context.Context, q dialect.Querier, scan func(*sql.Rows, *T) error, query string, args ...any) ([]T, error) {
	out, err := Fetch(ctx, q, scan, Limited(ctx, query), args...)
	return out, Timely(err)
}

// Timely makes the error of a statement that ran out of time a context.DeadlineExceeded.
func Timely(err error) error {
	var my *mysql.MySQLError
	if errors.As(err, &my) && (my.Number == 1969 || my.Number == 3024) { // ER_STATEMENT_TIMEOUT of MariaDB, ER_QUERY_TIMEOUT of MySQL
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// Limited adds to a query, which begins with SELECT, how long the server may take. MariaDB reads
// the first comment, MySQL the second, SQLite none: its driver ends a statement with the context.
func Limited(ctx context.Context, query string) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return query
	}
	left := max(time.Until(deadline), time.Millisecond)
	return fmt.Sprintf("/*M! SET STATEMENT max_statement_time=%.3f FOR */ SELECT /*+ MAX_EXECUTION_TIME(%d) */", left.Seconds(), left.Milliseconds()) + strings.TrimPrefix(query, "SELECT")
}

// ReadMeta returns nothing for a name without data.
func ReadMeta(ctx context.Context, q dialect.Querier, name string) ([]byte, error) {
	data, _, err := One[[]byte](ctx, q, "SELECT data FROM meta WHERE name = ?", []byte(name))
	return data, err
}
