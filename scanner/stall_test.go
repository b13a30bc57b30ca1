package scanner

import (
	"database/sql"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/mysqltest"
)

// A real database is frozen, requests come in two polls, the scanner is stopped gracefully, and the database goes on while
// the scanner still gives up: nothing may be passed that is not stored. NOTYET_FREEZE_PID is the process of the server at
// NOTYET_MYSQL_DSN, which must serve nobody else.
func TestAStopWhileTheDatabaseIsFrozenLosesNothing(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("NOTYET_FREEZE_PID"))
	if err != nil {
		t.Skip("NOTYET_FREEZE_PID is not set")
	}
	f := newFixture(t)
	st, admin := freshMySQL(t)
	s := f.start(st, Config{})
	f.publish(asksIn("warm", 5, 0)...)
	f.eventually("the scanner is at work", func() bool { return s.at() == 5 })

	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	var frozen atomic.Bool
	frozen.Store(true)
	thaw := func() {
		if frozen.Load() {
			require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
			frozen.Store(false)
		}
	}
	defer thaw()
	f.publish(asksIn("a", 10, 0)...)
	f.eventually("the first are with a worker", func() bool { busy, queued := s.worker.queue.depth(); return busy > 0 && queued == 0 })
	f.publish(asksIn("b", 5, 0)...)
	f.eventually("the others wait behind them", func() bool { busy, queued := s.worker.queue.depth(); return busy > 0 && queued > 0 })
	time.AfterFunc(6500*time.Millisecond, thaw) // after the patience of a stop, before its end
	s.end()
	f.eventually("the database has done what it was asked", func() bool {
		var open int
		return !frozen.Load() && admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.innodb_trx").Scan(&open) == nil && open == 0
	})

	f.start(st, Config{})
	for _, id := range []string{"a0", "a9", "b0", "b4"} {
		f.eventually(id+" is stored", func() bool { _, err := look.New(st).Get(t.Context(), "orders", id); return err == nil })
	}
}

// asksIn makes requests of one partition.
func asksIn(prefix string, n int, partition int32) []*kgo.Record {
	out := asks(prefix, n)
	for _, r := range out {
		r.Partition = partition
	}
	return out
}

// freshMySQL is a database of its own on the server at NOTYET_MYSQL_DSN.
func freshMySQL(t *testing.T) (*store.Store, *sql.DB) {
	dsn := mysqltest.Fresh(t)
	admin, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	require.NoError(t, st.Migrate(t.Context(), 4))
	return st, admin
}

// depth returns how many partitions are with workers, and how many stretches wait.
func (q *queue) depth() (busy, queued int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.busy), len(q.stretches)
}
