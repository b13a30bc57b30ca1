package dispatcher

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/test/mysqltest"
)

// A database that is away holds up settling. What Kafka answers meanwhile is in the send log all the same, so a dispatcher that ends, and
// begins again, does not send it once more.
func TestOutcomesAreLoggedWhileTheDatabaseIsAway(t *testing.T) {
	for name, afterwards := range map[string]func(r *running, m *members){
		"stopped": func(r *running, _ *members) { require.NoError(t, r.end()) },
		"killed":  func(r *running, m *members) { r.crash(m) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			orders := f.read("orders")
			dir, m := t.TempDir(), f.elect(5)
			cfg := Config{MemberID: "one", LookAhead: 10 * time.Second, BurstLookAhead: 10 * time.Second, DrainTimeout: time.Second}
			d := f.start(m, dir, cfg)
			due := time.Now().Add(setUpTime)
			f.schedule(ask("orders", "a", due, schemas.HeaderEvents, "none"), ask("orders", "b", due.Add(time.Second), schemas.HeaderEvents, "none"))
			f.eventually("both are staged", func() bool { return d.stagedTasks() == 2 })
			f.sql("ALTER TABLE slots RENAME TO slots_away")
			f.eventually("both are delivered", func() bool { return orders.count() == 2 })
			f.eventually("both are in the send log", func() bool {
				acked, err := d.sent.Acked(t.Context(), due.Add(-time.Minute), func(int64) bool { return true })
				return err == nil && len(acked) == 2
			})
			afterwards(d, m)
			f.sql("ALTER TABLE slots_away RENAME TO slots")

			f.start(f.elect(6), dir, cfg)
			f.eventually("all is settled", func() bool { return f.settledUpTo(due.Add(time.Second)) })
			require.Equal(t, map[string]int{"a": 1, "b": 1}, orders.copies())
		})
	}
}

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
	f.source, err = intake.New(f.store).Source(f.Context(), "intake", [16]byte{7}, 0, 0)
	require.NoError(f, err)
	return db
}

// useServer is useDatabase on the MySQL or MariaDB server under test.
func (f *fixture) useServer() *sql.DB {
	f.Helper()
	dsn := mysqltest.Fresh(f)
	return f.useDatabase("mysql", dsn, dsn)
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
	f.eventually("all is settled", func() bool {
		return f.settledUpTo(due) && d.inside(func(in flight.Figures) int { return in.Claimed }) == 0
	})
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
			f.eventually("all is settled", func() bool {
				return f.settledUpTo(due) && d.inside(func(in flight.Figures) int { return in.Claimed }) == 0
			})
			require.NotZero(t, counted(d.metrics.refusedTransitions))
			v, err := look.New(f.store).Get(t.Context(), "orders", "t17")
			require.NoError(t, err)
			require.Equal(t, c.want, v.State)
			letters, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
			require.NoError(t, err)
			require.Len(t, letters, c.letters)
			if c.want == "pending" {
				var pos int64
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT pos FROM tasks WHERE id = CAST('t17' AS BLOB)").Scan(&pos))
				require.Greater(t, pos, due.Add(time.Hour).UnixMilli()+time.Minute.Milliseconds()-1, "it comes again, and not at once")
			}
		})
	}
}

// Nobody may cancel a task that was sent because the database refuses its dead letter.
func TestRefusedExitOfWhatWasSent(t *testing.T) {
	f := newFixture(t, 1)
	f.sql("CREATE TABLE refused (no INTEGER CHECK (no = 0)); CREATE TRIGGER refuse BEFORE INSERT ON dead_letters BEGIN INSERT INTO refused VALUES (1); END")
	web := f.receive(answering(http.StatusGone))
	f.callsTo(callback.Config{})
	d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
	f.schedule(call(web.URL, "sent", time.Now()))
	f.eventually("it is put back", func() bool {
		return counted(d.metrics.refusedTransitions) == 3 && d.inside(func(in flight.Figures) int { return in.Claimed }) == 0
	})
	require.Equal(t, "waiting_retry", f.state(web.URL, "sent"))
	require.Equal(t, map[string]int{"sent/1": 1}, web.attempts())
}
