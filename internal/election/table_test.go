package election

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/election/roll"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/mysqltest"
)

// testTable is a database of a test's own.
type testTable struct {
	db     *sql.DB // the test's own connection
	store  *store.Store
	server *mysql.Config    // nil: SQLite
	lines  map[string]*wire // by name; SQLite has no network
}

// onTable runs a test's members on a database.
func onTable(t *testing.T, tt *testTable) *ensemble {
	e := &ensemble{t: t, table: tt, epochs: &countingEpochs{}}
	e.slots.Store(10)
	return e
}

func opened(t *testing.T, cfg store.Config) *store.Store {
	s, err := store.Open(t.Context(), cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// embedded makes a database in a file.
func embedded(t *testing.T) *testTable {
	path := filepath.Join(t.TempDir(), "notyet.db")
	s := opened(t, store.Config{DSN: "sqlite:" + path})
	require.NoError(t, s.Migrate(t.Context(), 1))
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return &testTable{db: db, store: s, lines: map[string]*wire{}}
}

// onServer makes a database on a server.
func onServer(t *testing.T) *testTable {
	server, err := mysql.ParseDSN(os.Getenv("NOTYET_MYSQL_DSN"))
	require.NoError(t, err)
	db, err := sql.Open("mysql", server.FormatDSN())
	require.NoError(t, err)
	name := "notyet_election_" + rand.Text()
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name)
		require.NoError(t, err)
		require.NoError(t, db.Close())
	})
	server.DBName = name
	own, err := sql.Open("mysql", server.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	require.NoError(t, opened(t, store.Config{DSN: mysqltest.Patient(t, server.FormatDSN())}).Migrate(t.Context(), 1))
	s := opened(t, store.Config{DSN: server.FormatDSN()})
	return &testTable{db: own, store: s, server: server}
}

func (tt *testTable) exec(t *testing.T, query string, args ...any) {
	_, err := tt.db.Exec(query, args...)
	require.NoError(t, err)
}

func (tt *testTable) wipe() bool {
	tx, err := tt.db.Begin()
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback() }()
	for _, query := range []string{"DELETE FROM members", "DELETE FROM assignment"} {
		if _, err := tx.Exec(query); err != nil {
			return false
		}
	}
	return tx.Commit() == nil
}

func (tt *testTable) page(t *testing.T) roll.Page {
	r := tt.store.Roll()
	defer r.Close()
	page, err := r.Read(t.Context())
	require.NoError(t, err)
	return page
}

// candidates shows a candidate's beat as its owner: it changes while the process lives.
func (tt *testTable) candidates(t *testing.T) (all []candidate) {
	for _, c := range tt.page(t).Candidates {
		one := candidateOf(c)
		one.owner = c.Beat
		all = append(all, one)
	}
	return all
}

func (tt *testTable) published(t *testing.T) sharing {
	s, err := decodeSharing(tt.page(t).Data)
	require.NoError(t, err)
	return s
}

// line makes one: to the server as any, and in front of SQLite one that stands for it.
func (tt *testTable) line(t *testing.T) line {
	if tt.server != nil {
		return startProxy(t, tt.server.Addr)
	}
	w := &wire{name: rand.Text()}
	w.moved = sync.NewCond(&w.mu)
	tt.lines[w.name] = w
	t.Cleanup(w.close)
	return w
}

// member makes one whose way to the database is Servers, where a test has set it.
func (tt *testTable) member(e *ensemble, cfg Config) *Member {
	var r Roll
	switch through := append(cfg.Servers, "")[0]; {
	case through == "":
		own := tt.store.Roll()
		e.t.Cleanup(own.Close)
		r = own
	case tt.server != nil:
		server := *tt.server
		server.Addr = through
		s := opened(e.t, store.Config{DSN: server.FormatDSN()})
		own := s.Roll()
		e.t.Cleanup(own.Close)
		r = own
	default:
		w := tt.lines[through]
		w.Roll = tt.store.Roll()
		r = w
	}
	m, err := NewDatabase(cfg, r, e.epochs, zaptest.NewLogger(e.t, zaptest.Level(zap.InfoLevel)))
	require.NoError(e.t, err)
	return m
}

var errWire = errors.New("the connection is gone")

// wire is a Roll behind a network that breaks.
type wire struct {
	Roll
	name    string
	running sync.WaitGroup

	mu     sync.Mutex
	moved  *sync.Cond
	frozen int
	cut    bool
	broken bool // a call has had no answer: the next one needs a connection
}

func (w *wire) addr() string { return w.name }

func (w *wire) sever(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	w.moved.Broadcast()
}

func (w *wire) freeze(directions int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen, w.broken = directions, false
	w.moved.Broadcast()
}

func (w *wire) close() {
	w.sever(false)
	w.freeze(0)
	w.running.Wait()
}

// passes waits until the directions are free.
func (w *wire) passes(directions int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.frozen&directions != 0 && !w.cut {
		w.moved.Wait()
	}
	if w.cut {
		return errWire
	}
	return nil
}

// over makes a call. What is held back on its way to the database arrives when the line is well, whether or not somebody waits.
func over[T any](ctx context.Context, w *wire, call func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	w.mu.Lock()
	before := toServer
	if w.broken {
		before |= toMember
	}
	w.mu.Unlock()
	w.running.Go(func() {
		var a answer
		if a.err = w.passes(before); a.err == nil {
			if a.value, a.err = call(context.WithoutCancel(ctx)); a.err == nil {
				a.err = w.passes(toMember)
			}
		}
		answers <- a
	})
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.broken = w.frozen != 0
		var none T
		return none, ctx.Err()
	}
}

func (w *wire) Join(ctx context.Context, c roll.Candidate) error {
	_, err := over(ctx, w, func(ctx context.Context) (bool, error) { return true, w.Roll.Join(ctx, c) })
	return err
}

func (w *wire) Beat(ctx context.Context, c roll.Candidate) (bool, error) {
	return over(ctx, w, func(ctx context.Context) (bool, error) { return w.Roll.Beat(ctx, c) })
}

func (w *wire) Read(ctx context.Context) (roll.Page, error) {
	return over(ctx, w, func(ctx context.Context) (roll.Page, error) { return w.Roll.Read(ctx) })
}

func (w *wire) Remove(ctx context.Context, c roll.Candidate) (bool, error) {
	return over(ctx, w, func(ctx context.Context) (bool, error) { return w.Roll.Remove(ctx, c) })
}

func (w *wire) Leave(ctx context.Context, c roll.Candidate) error {
	_, err := over(ctx, w, func(ctx context.Context) (bool, error) { return true, w.Roll.Leave(ctx, c) })
	return err
}

func (w *wire) Publish(ctx context.Context, by roll.Candidate, before, epoch int64, data []byte) (bool, error) {
	return over(ctx, w, func(ctx context.Context) (bool, error) { return w.Roll.Publish(ctx, by, before, epoch, data) })
}
