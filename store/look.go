package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// look is fetch for a question of a caller, whose ctx has a deadline. The server itself ends the
// statement then. The end of ctx alone only closes the connection, and the server works on.
func look[T any](ctx context.Context, s *Store, scan func(*sql.Rows, *T) error, query string, args ...any) ([]T, error) {
	out, err := fetch(ctx, s.db, scan, limited(ctx, query), args...)
	var my *mysql.MySQLError
	if errors.As(err, &my) && (my.Number == 1969 || my.Number == 3024) { // ER_STATEMENT_TIMEOUT of MariaDB, ER_QUERY_TIMEOUT of MySQL
		return nil, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return out, err
}

// limited adds to a query, which begins with SELECT, how long the server may take. MariaDB reads the
// first comment, MySQL the second, and SQLite, whose driver ends a statement with its context, none.
func limited(ctx context.Context, query string) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return query
	}
	left := max(time.Until(deadline), time.Millisecond)
	return fmt.Sprintf("/*M! SET STATEMENT max_statement_time=%.3f FOR */ SELECT /*+ MAX_EXECUTION_TIME(%d) */", left.Seconds(), left.Milliseconds()) + strings.TrimPrefix(query, "SELECT")
}
