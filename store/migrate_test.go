package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/test/mysqltest"
)

func TestMigrate(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			ctx, s := t.Context(), open(t, b.fresh(t))

			require.ErrorIs(t, s.CheckMigrated(ctx), ErrNotMigrated, "no tables yet")
			pending, slots, err := s.Pending(ctx)
			require.NoError(t, err)
			require.False(t, slots)
			require.Contains(t, pending[0].SQL, "CREATE TABLE tasks")
			require.NotContains(t, pending[0].SQL, "goose")
			var table string
			require.True(t, s.dialect.NoTable(s.db.QueryRowContext(ctx, "SELECT 1 FROM goose_db_version").Scan(&table)), "nothing was made")
			for _, n := range []int{-1, 0, 4097} {
				require.ErrorContains(t, s.Migrate(ctx, n), "slots must be 1 to 4096")
			}
			require.NoError(t, s.Migrate(ctx, 5))
			require.NoError(t, s.CheckMigrated(ctx))
			all := pending
			pending, slots, err = s.Pending(ctx)
			require.NoError(t, err)
			require.Empty(t, pending)
			require.True(t, slots)
			_, err = s.db.ExecContext(ctx, "DELETE FROM goose_db_version WHERE version_id = ?", len(all))
			require.NoError(t, err)
			pending, slots, err = s.Pending(ctx)
			require.NoError(t, err)
			require.Equal(t, all[len(all)-1:], pending, "an older version's database")
			require.True(t, slots)
			_, err = s.db.ExecContext(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, 1)", len(all))
			require.NoError(t, err)

			require.NoError(t, s.Migrate(ctx, 9), "again, with another wish")
			rows, err := s.h.Slots(ctx, s.h.Reads())
			require.NoError(t, err)
			require.Len(t, rows, 5, "the number of slots is fixed by the first migration")
			for i, slot := range rows {
				require.Equal(t, Slot{Slot: i, Change: unchanging(5)}, slot)
			}
		})
	}
}

// Tables without slots are what a migration leaves that died half-way.
func TestMigrateFinishesAHalfDoneMigration(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		_, err := s.db.ExecContext(s.ctx, "DELETE FROM slots")
		require.NoError(t, err)
		require.ErrorIs(t, s.CheckMigrated(s.ctx), ErrNotMigrated)
		_, err = intake.New(s).Apply(s.ctx, intake.Batch{}, At(0))
		require.ErrorIs(t, err, ErrNotMigrated)

		require.NoError(t, s.Migrate(s.ctx, 3))
		require.NoError(t, s.CheckMigrated(s.ctx))
		n, err := s.SlotCount(s.ctx)
		require.NoError(t, err)
		require.Equal(t, 3, n)
	})
}

// MySQL creates a table at once. A migration that was killed behind that has left goose's table without its first row.
func TestMigrateAfterAKillAtItsBegin(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			ctx, s := t.Context(), open(t, b.fresh(t))
			versions, err := s.versions()
			require.NoError(t, err)
			if !b.sqlite {
				require.NoError(t, versions.CreateVersionTable(ctx, s.db))
			}
			require.ErrorIs(t, s.CheckMigrated(ctx), ErrNotMigrated)
			if b.sqlite {
				_, err := versions.GetLatestVersion(ctx, s.db)
				require.Error(t, err, "the check has created nothing")
			}
			require.NoError(t, s.Migrate(ctx, 2))
			require.NoError(t, s.CheckMigrated(ctx))
			applied, err := versions.ListMigrations(ctx, s.db)
			require.NoError(t, err)
			zero := 0
			for _, a := range applied {
				if a.Version == 0 {
					zero++
				}
			}
			require.Equal(t, 1, zero)
		})
	}
}

// held holds up changes of a table, as whoever reads it does, until it is called.
func (f *fixture) held(table string) func() {
	reader, err := f.db.BeginTx(f.ctx, nil)
	require.NoError(f.t, err)
	_, err = reader.ExecContext(f.ctx, "SELECT COUNT(*) FROM "+table)
	require.NoError(f.t, err)
	return func() { _ = reader.Rollback() }
}

// undone has a migration made again.
func (f *fixture) undone(version int, undo string) {
	_, err := f.db.ExecContext(f.ctx, undo)
	require.NoError(f.t, err)
	_, err = f.db.ExecContext(f.ctx, "DELETE FROM goose_db_version WHERE version_id = ?", version)
	require.NoError(f.t, err)
}

// undoneFrom21 has all migrations from the 21st on made again.
func (f *fixture) undoneFrom21() {
	f.undone(42, "ALTER TABLE slots DROP COLUMN sent")
	f.undone(41, "DROP TABLE leaving")
	f.undone(40, "ALTER TABLE homes DROP COLUMN followed, DROP COLUMN taken, DROP COLUMN arrived")
	f.undone(39, "DROP TABLE operations")
	f.undone(38, "ALTER TABLE targets DROP COLUMN paused_until")
	f.undone(37, "DROP TABLE cuts")
	f.undone(36, "DROP TABLE homes")
	f.undone(35, "ALTER TABLE sources DROP COLUMN proof_at, DROP COLUMN proof_time, DROP COLUMN proof_sum")
	f.undone(34, "ALTER TABLE tasks DROP COLUMN failures")
	f.undone(33, "DROP TABLE unknown_targets")
	f.undone(32, "ALTER TABLE tasks DROP COLUMN unread")
	f.undone(31, "ALTER TABLE tasks DROP COLUMN idle, DROP COLUMN snoozed")
	f.undone(30, "DROP TABLE tags")
	f.undone(29, "ALTER TABLE slots DROP COLUMN doubt, DROP COLUMN doubt_epoch")
	f.undone(28, "ALTER TABLE services DROP COLUMN spreads")
	f.undone(27, "UPDATE slots SET base = 0, spread = 0, target = 0")
	f.undone(26, "ALTER TABLE slots DROP COLUMN base, DROP COLUMN spread, DROP COLUMN target, DROP COLUMN moved, DROP COLUMN moved_held, DROP COLUMN turn")
	f.undone(25, "DROP TABLE assignment")
	f.undone(24, "DROP TABLE members")
	f.undone(23, "ALTER TABLE slots DROP COLUMN life, DROP COLUMN life_epoch")
	f.undone(22, "ALTER TABLE meta DROP COLUMN data")
	f.undone(21, "DROP INDEX kind ON dead_letters")
}

// A server goes on with a long statement whose client has left, and nobody notes that it was done.
func TestMigrateAfterAStatementThatOutlivedItsConnection(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		f := b.fixture(t)
		f.undoneFrom21()
		free := f.held("dead_letters")
		short, cancel := context.WithTimeout(f.ctx, time.Second)
		defer cancel()
		require.Error(t, open(t, f.config).Migrate(short, testSlots))
		require.ErrorIs(t, f.CheckMigrated(f.ctx), ErrNotMigrated)
		free()
		require.NoError(t, f.Migrate(f.ctx, testSlots))
		require.NoError(t, f.CheckMigrated(f.ctx))
	}
}

// Each migration may have been made and not noted.
func TestMigrateNotesWhatIsMade(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		for version, last := int64(1), int64(1); version <= last; version++ {
			s := open(t, b.fresh(t))
			versions, err := s.versions()
			require.NoError(t, err)
			require.NoError(t, s.dialect.MakeVersions(t.Context(), s.db, versions))
			m, err := s.migrator(s.db)
			require.NoError(t, err)
			known := m.ListSources()
			last = known[len(known)-1].Version
			_, err = m.UpTo(t.Context(), version)
			require.NoError(t, err)
			_, err = s.db.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id = ?", version)
			require.NoError(t, err)
			require.NoError(t, s.Migrate(t.Context(), testSlots), version)
			require.NoError(t, s.CheckMigrated(t.Context()))
		}
	}
}

// A table of somebody else's is not taken for one that a migration has made.
func TestMigrateLeavesTablesOfOthersAlone(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		s := open(t, b.fresh(t))
		_, err := s.db.ExecContext(t.Context(), "CREATE TABLE audit (x INT) COMMENT 'notyet 14'")
		require.NoError(t, err)
		require.ErrorContains(t, s.Migrate(t.Context(), testSlots), "audit")
		require.ErrorIs(t, s.CheckMigrated(t.Context()), ErrNotMigrated)
	}
}

// The index of a large table takes minutes, which is longer than any other answer may take.
func TestMigrationsTakeTheirTime(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		f := b.fixture(t)
		f.undoneFrom21()
		free := f.held("dead_letters")
		time.AfterFunc(8*time.Second, free)
		parsed, err := mysql.ParseDSN(f.config.DSN)
		require.NoError(t, err)
		parsed.ReadTimeout = 6 * time.Second
		require.NoError(t, open(t, Config{DSN: parsed.FormatDSN()}).Migrate(f.ctx, testSlots))
	}
}

// Every replica of a deployment may run the migration as it starts.
func TestMigrateByManyAtOnce(t *testing.T) {
	for _, b := range backends() {
		if b.name == "sqlite-memory" {
			continue // one connection: nobody can be there at the same time
		}
		t.Run(b.name, func(t *testing.T) {
			cfg := b.fresh(t)
			var stores []*Store
			for range 4 {
				stores = append(stores, open(t, cfg))
			}
			errs := make([]error, len(stores))
			var wg sync.WaitGroup
			for i, s := range stores {
				wg.Go(func() { errs[i] = s.Migrate(context.Background(), 6) })
			}
			wg.Wait()
			for _, err := range errs {
				require.NoError(t, err)
			}
			require.NoError(t, stores[0].CheckMigrated(t.Context()))
			n, err := stores[1].h.SlotCount(t.Context())
			require.NoError(t, err)
			require.Equal(t, 6, n)
			id, err := stores[0].Installation(t.Context())
			require.NoError(t, err)
			for _, s := range stores[1:] {
				again, err := s.Installation(t.Context())
				require.NoError(t, err)
				require.Equal(t, id, again)
			}
		})
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                             "reading NOTYET_MYSQL_DSN",
		"user@tcp(127.0.0.1:1":         "reading NOTYET_MYSQL_DSN",
		"user@tcp(127.0.0.1:1)/":       "it names no database",
		"user@tcp(127.0.0.1:1)/notyet": "connection refused",
		"sqlite:/no/such/folder/n.db":  "unable to open database file",
	} {
		t.Run(dsn, func(t *testing.T) {
			_, err := Open(t.Context(), Config{DSN: dsn}, zap.NewNop())
			require.ErrorContains(t, err, want)
		})
	}
}

// A transaction that is cut short by its context must not take the connection, and with it the whole database in memory,
// along.
func TestCancelledCallsLeaveTheDatabaseWhole(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for range 20 {
			ctx, cancel := context.WithCancel(s.ctx)
			err := s.h.Transact(ctx, func(tx *sql.Tx) error {
				cancel()
				_, err := tx.ExecContext(ctx, "DELETE FROM slots")
				return err
			})
			require.Error(t, err)
			slots, err := s.Slots(s.ctx)
			require.NoError(t, err)
			require.Len(t, slots, testSlots)
		}
	})
}

// unchanging is where slots stand while their number stays what it is.
func unchanging(n int) Change {
	return Change{Base: n, Target: n, Spread: n, Moved: math.MaxInt64, MovedHeld: math.MaxInt64}
}

// Slots of a version before learn how many they are, whether a migration was killed on the way or not.
func TestMigrateCountsTheSlotsThatAreThere(t *testing.T) {
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			ctx, s := t.Context(), open(t, b.fresh(t))
			m, err := s.migrator(s.db)
			require.NoError(t, err)
			before := int64(25)
			if b.sqlite {
				before = 16
			}
			_, err = m.UpTo(ctx, before)
			require.NoError(t, err)
			for slot := range 3 {
				_, err = s.h.Exec(ctx, "INSERT INTO slots (slot, epoch, owner, claimed, done) VALUES (?, 0, ?, 0, 0)", slot, []byte{})
				require.NoError(t, err)
			}
			require.NoError(t, s.Migrate(ctx, testSlots))
			rows, err := s.h.Slots(ctx, s.h.Reads())
			require.NoError(t, err)
			require.Len(t, rows, 3)
			for _, r := range rows {
				require.Equal(t, unchanging(3), r.Change)
			}
		})
	}
}

// Migrate cannot change a table that a transaction of somebody else has read, and all others wait behind Migrate: for some seconds, and not
// until that transaction ends.
func TestMigrateGivesWay(t *testing.T) {
	if os.Getenv("NOTYET_MYSQL_DSN") == "" {
		t.Skip("NOTYET_MYSQL_DSN is not set")
	}
	ctx, cfg := t.Context(), freshMySQL(t)
	s := open(t, cfg)
	m, err := s.migrator(s.db)
	require.NoError(t, err)
	versions, err := s.versions()
	require.NoError(t, err)
	require.NoError(t, s.dialect.MakeVersions(ctx, s.db, versions))
	_, err = m.UpTo(ctx, 9) // 10 makes an index of tasks
	require.NoError(t, err)
	another, err := sql.Open("mysql", cfg.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, another.Close()) }()
	left, err := another.BeginTx(ctx, nil)
	require.NoError(t, err)
	var n int
	require.NoError(t, left.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&n))
	ended := make(chan error, 1)
	go func() { ended <- s.Migrate(ctx, testSlots) }()
	require.Eventually(t, func() bool {
		require.NoError(t, another.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE LIKE '%metadata lock%'").Scan(&n))
		return n > 0
	}, time.Minute, time.Millisecond)
	bound, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = another.ExecContext(bound, "DELETE FROM tasks") // waits
	require.NoError(t, err)
	require.NoError(t, left.Rollback())
	require.NoError(t, <-ended, "it tries again")
}

// TestMigrateOfMany shows how long an index of so many tasks takes on the server that NOTYET_MYSQL_DSN names, and what it costs others
// meanwhile: NOTYET_MIGRATE_TASKS=10000000.
func TestMigrateOfMany(t *testing.T) {
	tasks, _ := strconv.Atoi(os.Getenv("NOTYET_MIGRATE_TASKS"))
	if tasks == 0 {
		t.Skip("NOTYET_MIGRATE_TASKS is not set")
	}
	dsn := mysqltest.Fresh(t)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	exec := func(query string, args ...any) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), query, args...)
		require.NoError(t, err)
	}
	s := open(t, Config{DSN: dsn})
	m, err := s.migrator(db)
	require.NoError(t, err)
	versions, err := s.versions()
	require.NoError(t, err)
	require.NoError(t, s.dialect.MakeVersions(t.Context(), db, versions))
	_, err = m.UpTo(t.Context(), 9) // 10 makes an index of tasks
	require.NoError(t, err)
	exec("ALTER TABLE tasks DROP KEY ident, DROP KEY line")
	insert := "INSERT INTO tasks (seq, ident, slot, pos, lane, due, state, attempt, replay, version, created, topic, id, body) "
	exec("CREATE TABLE numbers (n INT PRIMARY KEY)")
	exec("INSERT INTO numbers VALUES (0)")
	for n := 1; n < 1024; n *= 2 {
		exec("INSERT INTO numbers SELECT n + ? FROM numbers", n)
	}
	for first := 0; first < tasks; first += 1024 * 256 {
		exec(insert+"SELECT seq, UNHEX(MD5(seq)), seq % 64, 1900000000000 + seq * 7919 % 1000000000, 7, 1900000000000, 0, 0, 0, -1, 1800000000000, 'orders', CONCAT('order-', seq), REPEAT('x', 200) "+
			"FROM (SELECT ? + a.n * 1024 + b.n AS seq FROM numbers AS a, numbers AS b WHERE a.n < 256) AS these WHERE seq < ?", first, tasks)
	}
	exec("ALTER TABLE tasks ADD UNIQUE KEY ident (ident), ADD KEY line (slot, pos, lane)")

	next := tasks
	others := func(until <-chan time.Time, ended <-chan error) string { // a task is stored, and found in its line, every 10 ms
		var took []time.Duration
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
			select {
			case <-until:
				return summed(took)
			case err := <-ended:
				require.NoError(t, err)
				return summed(took)
			default:
			}
			began := time.Now()
			exec(insert+"VALUES (?, UNHEX(MD5(?)), 1, ?, 7, 0, 0, 0, 0, -1, 0, 'orders', 'another', REPEAT('x', 200))", next, next, int64(1_800_000_000_000)+int64(next))
			var found int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM (SELECT body FROM tasks WHERE slot = 1 AND pos > ? ORDER BY pos LIMIT 10) AS page", int64(1_800_000_000_000)+int64(next)-10).Scan(&found))
			require.NotZero(t, found)
			next++
			took = append(took, time.Since(began))
		}
	}
	t.Log("before:", others(time.After(30*time.Second), nil))
	ended, began := make(chan error, 1), time.Now()
	go func() { ended <- s.Migrate(t.Context(), 4) }()
	t.Log("meanwhile:", others(nil, ended))
	t.Log("migrate of", tasks, "tasks:", time.Since(began).Round(100*time.Millisecond))
}

func summed(took []time.Duration) string {
	slices.Sort(took)
	return fmt.Sprintf("%d, p50 %v, p99 %v, max %v", len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}
