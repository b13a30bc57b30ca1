package api

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/mysqltest"
)

// TestFiftyClientsOfMany lets fifty clients of one token list at once, again and again, beside many
// pending tasks, and logs how long they wait. None is refused. NOTYET_PENDING sets the number of tasks:
// 1000000 on MariaDB. It measures, so it needs a machine that does nothing else.
func TestFiftyClientsOfMany(t *testing.T) {
	v := os.Getenv("NOTYET_PENDING")
	if v == "" {
		t.Skip("NOTYET_PENDING is not set: the number of pending tasks")
	}
	n, err := strconv.Atoi(v)
	require.NoError(t, err)
	dsn := "sqlite:" + t.TempDir() + "/notyet.db"
	if os.Getenv("NOTYET_MYSQL_DSN") != "" {
		dsn = mysqltest.Fresh(t)
	}
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Migrate(t.Context(), 64))
	fill(t, st, min(n, 2000))
	multiply(t, dsn, n)

	mux := http.NewServeMux()
	Mount(mux, Alone(NewLocal(st, deadletter.NewLocal(st, nil, "test", zap.NewNop()))), nil, Config{})
	caller := access.Caller{Name: "client", Role: access.Read, Topics: access.Everything}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), caller)))
	}))
	t.Cleanup(server.Close)
	var mu sync.Mutex
	var took []time.Duration
	var clients sync.WaitGroup
	for i := range 50 {
		clients.Go(func() {
			path := server.URL + "/api/v1/tasks?" + []string{"", "topic=orders-3", "id-prefix=9", "state=pending&limit=1000"}[i%4]
			for range 10 {
				began := time.Now()
				resp, err := http.Get(path) //nolint:noctx // a test's
				if !assert.NoError(t, err) {
					return
				}
				answer, err := io.ReadAll(resp.Body)
				assert.NoError(t, err)
				assert.NoError(t, resp.Body.Close())
				if !assert.Equal(t, http.StatusOK, resp.StatusCode, string(answer)) {
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if t.Failed() {
		t.Fatalf("%d of 500 lists were answered", len(took))
	}
	slices.Sort(took)
	t.Logf("%d pending, 50 clients, 500 lists: p50 %v, p99 %v, longest %v", n, took[250], took[494], took[499])
}

// fill stores n tasks of ten topics, as a scanner would.
func fill(t *testing.T, st *store.Store, n int) {
	t.Helper()
	source, err := intake.New(st).Source(t.Context(), "in.a", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	due := time.Now().Add(time.Hour).UnixMilli()
	const batch = 2000
	for first := 0; first < n; first += batch {
		b := intake.Batch{Advance: []intake.Advance{{Source: source.ID, From: int64(first), To: int64(first + batch)}}}
		for i := first; i < first+batch; i++ {
			r := schemas.NewRequest(schemas.OpSchedule, fmt.Sprint("orders-", i%10), strconv.Itoa(i))
			r.Due, r.GivenID, r.Settings = due+int64(i), true, schemas.DefaultSettings()
			b.Changes = append(b.Changes, task.Change{Seq: task.Seq(source.ID, int64(i)), Request: &r})
		}
		_, err := intake.New(st).Apply(t.Context(), b, store.At(time.Now().UnixMilli()))
		require.NoError(t, err)
	}
}

// multiply copies the first tasks on MySQL or MariaDB until there are n, with identities of their own.
func multiply(t *testing.T, dsn string, n int) {
	t.Helper()
	if n <= 2000 {
		return
	}
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE first_tasks SELECT * FROM tasks")
	require.NoError(t, err)
	for k := 2000; k < n; k += 2000 {
		_, err := db.ExecContext(t.Context(), "INSERT INTO tasks (seq, ident, slot, pos, lane, due, state, attempt, replay, version, created, topic, id, body)"+
			" SELECT seq + ?, UNHEX(MD5(CONCAT(seq, '/', ?))), slot, pos + ?, lane, due + ?, state, attempt, replay, version, created, topic, CONCAT(id, '-', ?), body FROM first_tasks",
			k, k, k, k, k)
		require.NoError(t, err)
	}
}
