package dispatcher

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// useDatabase lets the fixture work on another database, which is empty, and returns a connection of the test's own to it.
func (f *fixture) useDatabase(driver, dsn, cfg string) *sql.DB {
	f.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(f, err)
	f.Cleanup(func() { _ = db.Close() })
	f.store, err = store.Open(f.Context(), store.Config{DSN: cfg}, zap.NewNop())
	require.NoError(f, err)
	f.Cleanup(func() { _ = f.store.Close() })
	require.NoError(f, f.store.Migrate(f.Context(), len(f.slots)))
	f.source, err = f.store.Source(f.Context(), "intake", [16]byte{7}, 0, 0)
	require.NoError(f, err)
	return db
}

// useServer is useDatabase on the MySQL or MariaDB server under test.
func (f *fixture) useServer() *sql.DB {
	f.Helper()
	dsn := os.Getenv("NOTYET_MYSQL_DSN")
	if dsn == "" {
		f.Skip("NOTYET_MYSQL_DSN names no server")
	}
	name := fmt.Sprintf("notyet_dispatcher_%d", time.Now().UnixNano())
	db, err := sql.Open("mysql", dsn)
	require.NoError(f, err)
	_, err = db.ExecContext(f.Context(), "CREATE DATABASE "+name)
	require.NoError(f, err)
	f.Cleanup(func() { _, _ = db.Exec("DROP DATABASE " + name); _ = db.Close() })
	own := dsn[:strings.LastIndexByte(dsn, '/')+1] + name
	return f.useDatabase("mysql", own, own)
}

// All of a backlog expires at once, with events that take more than a row of the outbox holds.
func TestManyExitsAtOnce(t *testing.T) {
	const n = 12_000
	f := newFixture(t, 8, "orders")
	f.useServer()
	due := time.Now().Add(-time.Hour)
	id := strings.Repeat("<", 240) // each takes six bytes in JSON
	for i := 0; i < n; i += 2000 {
		f.schedule(askMany(2000, "orders", fmt.Sprint(id, i, "-"), due, schemas.HeaderMaxLateness, "1m")...)
	}
	events := f.read(results)
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.eventually("all is settled", func() bool { return f.settledUpTo(due) && d.inside(func() int { return d.flight.entries }) == 0 })
	f.eventually("all is told", func() bool { return events.count() >= n })
	require.Len(t, events.events(t, schemas.StateDead), n)
	require.Zero(t, counted(d.metrics.refusedTransitions))
}

// One task's dead letter cannot be stored: the others end, and it is neither lost nor in their way.
func TestRefusedExitStandsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		refused string // of the dead letter
		want    string
		letters int
	}{
		"its reason": {"instr(NEW.reason, 'notyet-max-lateness') > 0", "dead", 40},
		"its body":   {"length(NEW.body) > 0", "dead", 40},
		"all of it":  {"1 = 1", "pending", 39},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 4, "orders")
			path := t.TempDir() + "/notyet.db"
			db := f.useDatabase("sqlite", path, "sqlite:"+path)
			_, err := db.ExecContext(t.Context(), "CREATE TABLE refused (no INTEGER CHECK (no = 0)); CREATE TRIGGER refuse BEFORE INSERT ON dead_letters WHEN NEW.task_id = CAST('t17' AS BLOB) AND "+c.refused+
				" BEGIN INSERT INTO refused VALUES (1); END")
			require.NoError(t, err)
			due := time.Now().Add(-time.Hour)
			f.schedule(askMany(40, "orders", "t", due, schemas.HeaderMaxLateness, "1m")...)
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
			f.eventually("all is settled", func() bool { return f.settledUpTo(due) && d.inside(func() int { return d.flight.entries }) == 0 })
			require.NotZero(t, counted(d.metrics.refusedTransitions))
			v, err := f.store.Get(t.Context(), "orders", "t17")
			require.NoError(t, err)
			require.Equal(t, c.want, v.State)
			letters, err := f.store.DeadLetters(t.Context(), store.DeadFilter{})
			require.NoError(t, err)
			require.Len(t, letters, c.letters)
			if c.want == "pending" {
				var pos int64
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT pos FROM tasks WHERE id = CAST('t17' AS BLOB)").Scan(&pos))
				require.Greater(t, pos, due.Add(time.Hour).UnixMilli()+refusedPause.Milliseconds()-1, "it comes again, and not at once")
			}
		})
	}
}

func TestPieceOf(t *testing.T) {
	small := transition{}
	large := transition{Transition: store.Transition{Dead: &task.DeadLetter{Body: make([]byte, pieceBytes/2)}}}
	huge := transition{Transition: store.Transition{Dead: &task.DeadLetter{Body: make([]byte, 2*pieceBytes)}}}
	for name, c := range map[string]struct {
		transitions []transition
		want        int
	}{
		"one":             {[]transition{small}, 1},
		"as many as fit":  {make([]transition, pieceTasks), pieceTasks},
		"too many":        {make([]transition, pieceTasks+1), pieceTasks},
		"too many bytes":  {[]transition{large, small, large, small}, 2},
		"one is too much": {[]transition{huge, small}, 1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, pieceOf(c.transitions)) })
	}
}

func TestReduce(t *testing.T) {
	odd := strings.Repeat("\xff\u00e4", 1000)
	dead := &task.DeadLetter{Reason: odd, Body: []byte("body")}
	e := transition{Transition: store.Transition{State: task.StateDead, Dead: dead}, events: []schemas.Event{{State: schemas.StateDead, Reason: odd}}}
	events := e.events
	require.True(t, e.reduce(t0))
	require.Equal(t, strings.Repeat("?", shortReason), e.Dead.Reason)
	require.Equal(t, strings.Repeat("?", shortReason), e.events[0].Reason)
	require.Equal(t, odd, dead.Reason, "another try may still hold it")
	require.Equal(t, odd, events[0].Reason)
	require.True(t, e.reduce(t0))
	require.Empty(t, e.Dead.Body)
	require.Empty(t, e.events[0].Reason)
	require.True(t, e.reduce(t0))
	require.Equal(t, transition{Transition: store.Transition{State: task.StateLine, Pos: t0 + refusedPause.Milliseconds()}, reduced: 3}, e)
	require.False(t, e.reduce(t0))

	e = transition{Transition: store.Transition{State: task.StateSucceeded}} // it is delivered: it must not become pending
	require.True(t, e.reduce(t0))
	require.True(t, e.reduce(t0))
	require.False(t, e.reduce(t0))
	require.Equal(t, task.StateSucceeded, e.State)
}

const t0 = 1_700_000_000_000
