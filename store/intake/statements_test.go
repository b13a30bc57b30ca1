package intake

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// costs are the statements of transactions, and the rows that these have written.
type costs struct{ statements, rows atomic.Int64 }

// counted makes connections that count what their transactions cost.
type counted struct {
	real driver.Driver
	dsn  string
	n    *costs
}

func (d counted) Connect(context.Context) (driver.Conn, error) {
	c, err := d.real.Open(d.dsn)
	if err != nil {
		return nil, err
	}
	return countedConn{c.(sqliteConn), d.n}, nil
}

func (d counted) Driver() driver.Driver { return d.real }

// sqliteConn is what database/sql uses of a connection.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type countedConn struct {
	sqliteConn
	n *costs
}

func (c countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.n.statements.Add(1)
	res, err := c.sqliteConn.ExecContext(ctx, query, args)
	if err == nil {
		if n, err := res.RowsAffected(); err == nil {
			c.n.rows.Add(n)
		}
	}
	return res, err
}

func (c countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.n.statements.Add(1)
	return c.sqliteConn.QueryContext(ctx, query, args)
}

func countStatements(t *testing.T) (*fixture, *costs) {
	n := new(costs)
	path := t.TempDir() + "/notyet.db"
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	s, err := store.Open(t.Context(), store.Config{Connector: counted{db.Driver(), path + "?_txlock=immediate&_pragma=journal_mode(WAL)", n}}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Migrate(t.Context(), testSlots))
	return newFixture(t, s), n
}

// deliverMany schedules n tasks that want reports, claims them, and returns the transitions of their deliveries.
func deliverMany(s *fixture, n int) (exits []line.Transition) {
	requests := make([]any, n)
	for i := range requests {
		requests[i] = s.schedule(fmt.Sprint(s.offset, "-", i), wantReport)
	}
	s.do(requests...)
	s.now += 1000
	s.claim(s.now)
	entries, err := s.Entries(s.ctx, []line.Range{{Slot: 0, From: 0, To: s.now}, {Slot: 1, From: 0, To: s.now}, {Slot: 2, From: 0, To: s.now}, {Slot: 3, From: 0, To: s.now}})
	require.NoError(s.t, err)
	for i, e := range entries {
		exits = append(exits, line.Transition{Seq: e.Seq, Slot: e.Slot, Epoch: s.epoch, From: e.Pos, State: task.StateReport, Pos: s.now + 60_000 + int64(i), Attempt: 1, Lane: e.Lane})
	}
	require.Len(s.t, exits, n)
	return exits
}

// reportAll stores a report of ok on each.
func reportAll(s *fixture, exits []line.Transition) {
	seqs := make([]any, len(exits))
	for i, e := range exits {
		seqs[i] = e.Seq
	}
	ids, err := tables.Fetch(s.ctx, s.db, func(r *sql.Rows, id *string) error { return r.Scan(id) }, "SELECT id FROM tasks WHERE seq IN ("+tables.Marks(len(seqs))+")", seqs...)
	require.NoError(s.t, err)
	reports := make([]any, len(ids))
	for i, id := range ids {
		reports[i] = says(id, 1, schemas.StatusOK)
	}
	s.do(reports...)
}

// What a settlement, and a look at what waits, cost does not grow by a statement with each task.
func TestStatementsForManyTasks(t *testing.T) {
	const tasks = tables.MaxRows
	steps := map[string]struct {
		prepare func(s *fixture) func()
		most    int64
	}{
		"deliveries that wait for reports": {func(s *fixture) func() {
			exits := deliverMany(s, tasks)
			return func() { s.settle(s.now, exits...) }
		}, 25},
		"deliveries to many targets": {func(s *fixture) func() {
			exits, lanes := deliverMany(s, tasks), make([]task.Lane, tasks)
			for i := range exits {
				lane := task.LaneKey{}.Lane(fmt.Sprint(i), task.ClassNormal)
				_, err := s.db.ExecContext(s.ctx, "UPDATE tasks SET lane = ? WHERE seq = ?", int64(lane), exits[i].Seq)
				require.NoError(t, err)
				lanes[i] = lane.In(task.ClassRetried)
				exits[i].Lane = lanes[i]
			}
			slices.Sort(lanes)
			return func() {
				s.settle(s.now, exits...)
				require.Equal(t, slices.Compact(lanes), s.lanesOf(target), "each keeps its target")
			}
		}, 26},
		"deliveries whose reports are there": {func(s *fixture) func() {
			exits := deliverMany(s, tasks)
			reportAll(s, exits)
			return func() {
				s.settle(s.now, exits...)
				require.Equal(t, 0, s.count("waiting"))
			}
		}, 25},
		"reports that scanners decide": {func(s *fixture) func() {
			exits := deliverMany(s, tasks)
			reportAll(s, exits)
			for i := range exits {
				exits[i].State, exits[i].Attempt = task.StateRetry, 1
			}
			s.settle(s.now, exits...)
			require.Equal(t, tasks, s.count("waiting"))
			keys, _, err := s.Resolvable(s.ctx, [16]byte{}, tasks)
			require.NoError(t, err)
			require.Len(t, keys, tasks)
			return func() {
				s.apply(Batch{Resolve: keys})
				require.Equal(t, 0, s.count("waiting"))
			}
		}, 25},
	}
	for name, c := range steps {
		t.Run(name, func(t *testing.T) {
			s, n := countStatements(t)
			do := c.prepare(s)
			before := n.statements.Load()
			do()
			t.Logf("%d statements for %d tasks", n.statements.Load()-before, tasks)
			require.LessOrEqual(t, n.statements.Load()-before, c.most)
		})
	}
}

// BenchmarkReports settles deliveries and decides their reports on each database, 900 at a time: those that come after the settlement
// (a scanner decides them), those that come before it, and those that a scanner finds when the wait of their tasks is over.
func BenchmarkReports(b *testing.B) {
	for _, backend := range backends() {
		for _, when := range []string{"settled alone", "before the settlement", "found by a scanner"} {
			b.Run(backend.name+"/"+when, func(b *testing.B) {
				s := backend.fixture(b)
				tasks, took := 0, time.Duration(0)
				for b.Loop() {
					exits := deliverMany(s, tables.MaxRows)
					if when != "settled alone" {
						reportAll(s, exits)
					}
					settle := func() {
						_, err := s.Settle(s.ctx, nil, exits, store.At(s.now))
						require.NoError(b, err)
					}
					began := time.Now()
					if when == "found by a scanner" {
						for i := range exits {
							exits[i].State = task.StateRetry
						}
						settle()
						began = time.Now()
						for s.count("waiting") > 0 {
							keys, _, err := s.Resolvable(s.ctx, [16]byte{}, tables.MaxRows)
							require.NoError(b, err)
							s.apply(Batch{Resolve: keys})
						}
					} else {
						settle()
					}
					took += time.Since(began)
					tasks += len(exits)
					s.now += 3_600_000
					s.claim(s.now)
					_, err := s.db.ExecContext(s.ctx, "DELETE FROM tasks")
					require.NoError(b, err)
				}
				b.ReportMetric(float64(tasks)/took.Seconds(), "tasks/s")
			})
		}
	}
}
