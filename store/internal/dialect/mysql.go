package dialect

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/notyet/notyet/internal/machine"
	"github.com/notyet/notyet/internal/wrap"
)

// MySQL is a server of MySQL or MariaDB.
type MySQL struct{}

func (MySQL) Lock(clause string) string { return clause }

func (MySQL) Use(table, index string) string { return table + " FORCE INDEX (" + index + ")" }

func (MySQL) Upsert(_ string, columns ...string) string {
	set := make([]string, len(columns))
	for i, c := range columns {
		set[i] = c + " = VALUES(" + c + ")"
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
}

func (MySQL) Keep(_, column string) string {
	return " ON DUPLICATE KEY UPDATE " + column + " = " + column
}

func (MySQL) Quotient(a, b string) string { return a + " DIV " + b }

func (MySQL) DeleteOldest(table, column, _ string) string {
	return "DELETE FROM " + table + " WHERE " + column + " < ? LIMIT ?"
}

func (MySQL) Measure(table, _ string) string {
	return "SELECT COALESCE(table_rows, 0), COALESCE(data_length + index_length, 0) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '" + table + "'"
}

// micros is the server's time in Unix µs.
const micros = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

func (MySQL) Millis(context.Context, Clock) (string, []any, error) {
	return micros + " DIV 1000", nil, nil
}

func (MySQL) InsertRows(n int) int { return n }

func (MySQL) Prepares() bool { return true }

func (MySQL) Done(_ context.Context, err error) error { return err }

func (MySQL) Time(ctx context.Context, q Querier) (time.Time, error) {
	var now int64
	err := q.QueryRowContext(ctx, "SELECT "+micros).Scan(&now)
	return time.UnixMicro(now), wrap.Err(err, "asking the database for the time")
}

func (MySQL) Moment(look func() machine.Instant) machine.Instant { return look() }

func (MySQL) Pool(db *sql.DB, most int, idle time.Duration) {
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	db.SetConnMaxLifetime(30 * time.Minute)
	db.SetConnMaxIdleTime(idle)
}
