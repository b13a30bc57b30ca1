package service

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/ops"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
)

// twoDatabases makes an installation of two, and returns their directories.
func twoDatabases(t *testing.T) (cfg *config.Config, dirs []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "notyet.intake", "notyet.reports", "notyet.results", "notyet.cancels", "notyet.wakes"), kfake.SeedTopics(1, "orders", "bills"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	dir, home, entries := t.TempDir(), "", ""
	for k := range 2 {
		at := filepath.Join(dir, fmt.Sprint(k))
		dirs = append(dirs, at)
		require.NoError(t, os.Mkdir(at, 0o700))
		st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + at + "/notyet.db"}, zap.NewNop())
		require.NoError(t, err)
		require.NoError(t, st.Migrate(t.Context(), 4))
		if k == 0 {
			home, err = st.Installation(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, shards.New(st).Join(t.Context(), k, home, shards.Stand{}))
		require.NoError(t, st.Close())
		entries += fmt.Sprintf("sqlite:%s/notyet.db,", at)
	}
	cfg, err = config.Load(config.Sources{Environ: []string{
		"NOTYET_MYSQL_SHARDS=" + entries, "NOTYET_KAFKA_BROKERS=" + cluster.ListenAddrs()[0], "NOTYET_INDEX_KIND=mysql", "NOTYET_ELECTION_KIND=mysql",
		"NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_SENDLOG_DIR=" + filepath.Join(dir, "sendlog"),
	}})
	require.NoError(t, err)
	return cfg, dirs
}

// atWork is a service at work.
type atWork struct {
	*Service
	t *testing.T
}

func start(t *testing.T, cfg *config.Config) atWork {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s, err := open(ctx, cfg, "all", zap.NewNop(), io.Discard, (*Engine).AddScanner, (*Engine).AddDispatcher)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		s.close()
	})
	return atWork{s, t}
}

func (r atWork) get(path string) (int, string) {
	r.t.Helper()
	resp, err := http.Get("http://" + r.http.Addr() + path)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(text)
}

// until waits for an answer of /readyz.
func (r atWork) until(what string, holds func(status int, checks map[string]string) bool) {
	r.t.Helper()
	var last string
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		status, text := r.get("/readyz")
		var now ops.Readiness
		require.NoError(r.t, json.Unmarshal([]byte(text), &now))
		if last = text; holds(status, now.Checks) {
			return
		}
	}
	require.Fail(r.t, what, last)
}

// A database that is away at the start delays its own targets: the service works for the other one, and for this one once it comes.
func TestADatabaseThatIsAwayAtTheStart(t *testing.T) {
	for _, away := range []int{0, 1} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			cfg, dirs := twoDatabases(t)
			require.NoError(t, os.Rename(dirs[away], dirs[away]+".away"))
			s := start(t, cfg)
			works := func(k int, checks map[string]string) bool {
				return checks[fmt.Sprintf("mysql shard %d", k)] == "ok" && checks[fmt.Sprintf("scanner shard %d", k)] == "ok" && checks[fmt.Sprintf("dispatcher shard %d", k)] == "ok"
			}
			s.until("the other works", func(status int, checks map[string]string) bool {
				return status == http.StatusOK && works(1-away, checks) && !works(away, checks)
			})
			metric := func(k, up int) string { return fmt.Sprintf("notyet_shard_up{shard=\"%d\"} %d\n", k, up) }
			require.Eventually(t, func() bool {
				_, text := s.get("/metrics")
				return strings.Contains(text, metric(away, 0)) && strings.Contains(text, metric(1-away, 1)) && strings.Contains(text, fmt.Sprintf(`{shard="%d"}`, 1-away)) &&
					strings.Contains(text, "notyet_build_info{")
			}, time.Minute, 100*time.Millisecond)

			require.NoError(t, os.Rename(dirs[away]+".away", dirs[away]))
			s.until("both work", func(status int, checks map[string]string) bool {
				return status == http.StatusOK && works(0, checks) && works(1, checks)
			})
			require.Eventually(t, func() bool {
				_, text := s.get("/metrics")
				return strings.Contains(text, metric(0, 1)) && strings.Contains(text, metric(1, 1))
			}, time.Minute, 100*time.Millisecond)
		})
	}
}

// With no database at work the service is not ready, and says of each why.
func TestNoDatabaseWorks(t *testing.T) {
	cfg, dirs := twoDatabases(t)
	for _, dir := range dirs {
		require.NoError(t, os.Rename(dir, dir+".away"))
	}
	s := start(t, cfg)
	s.until("both are away", func(status int, checks map[string]string) bool {
		return status == http.StatusServiceUnavailable && strings.Contains(checks["mysql shard 0"], "database 0") && strings.Contains(checks["mysql shard 1"], "database 1")
	})
	require.Error(t, func() error { _, err := s.common().Secret(t.Context(), "x"); return err }(), "nobody signs in anew")
}

// A service that works for one database alone shows the other one, and is ready without it.
func TestAServiceForOneDatabaseOfSeveral(t *testing.T) {
	cfg, dirs := twoDatabases(t)
	more, err := config.Load(config.Sources{Environ: []string{
		"NOTYET_SHARDS=1", fmt.Sprintf("NOTYET_MYSQL_SHARDS=sqlite:%s/notyet.db,sqlite:%s/notyet.db", dirs[0], dirs[1]), "NOTYET_KAFKA_BROKERS=" + cfg.Kafka.Brokers[0],
		"NOTYET_INDEX_KIND=mysql", "NOTYET_ELECTION_KIND=mysql", "NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_SENDLOG_DIR=" + t.TempDir(),
	}})
	require.NoError(t, err)
	s := start(t, more)
	s.until("the second works", func(status int, checks map[string]string) bool {
		_, scans := checks["scanner shard 0"]
		return status == http.StatusOK && checks["scanner shard 1"] == "ok" && checks["mysql shard 0"] == "ok" && !scans
	})
}

// Which databases an engine refuses.
func TestWhichDatabasesBelongToTheInstallation(t *testing.T) {
	open := func() *store.Store {
		st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, zap.NewNop())
		require.NoError(t, err)
		t.Cleanup(func() { _ = st.Close() })
		require.NoError(t, st.Migrate(t.Context(), 1))
		return st
	}
	st := open()
	require.NoError(t, Joined(t.Context(), "", st, 0, 1), "an installation with one")
	require.ErrorContains(t, Joined(t.Context(), "a", st, 1, 2), "database 1 of mysql.shards is not part of the installation yet: run notyet shards add 1")
	require.NoError(t, shards.New(st).Join(t.Context(), 1, "a", shards.Stand{}))
	require.NoError(t, shards.New(st).Join(t.Context(), 1, "a", shards.Stand{}), "again")
	require.NoError(t, Joined(t.Context(), "a", st, 1, 2))
	require.NoError(t, Joined(t.Context(), "", st, 1, 2), "the first database is away")
	require.ErrorIs(t, Joined(t.Context(), "b", st, 1, 2), shards.ErrOtherShard, "another installation")
	require.ErrorContains(t, Joined(t.Context(), "a", st, 2, 2), "put the entries in their order")
	require.ErrorContains(t, Joined(t.Context(), "", st, 0, 2), "entry 0 of mysql.shards is database 1")
	require.ErrorContains(t, Joined(t.Context(), "", st, 0, 1), "set mysql.shards, with all of them")
	for number, home := range map[int]string{2: "a", 1: "b"} {
		require.ErrorIs(t, shards.New(st).Join(t.Context(), number, home, shards.Stand{}), shards.ErrOtherShard)
	}
	require.Error(t, shards.New(open()).Join(t.Context(), 1, "", shards.Stand{}))
}

func (r atWork) post(path, body string) (int, string) { return r.do(http.MethodPost, path, body) }

func (r atWork) do(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.http.Addr()+path, strings.NewReader(body))
	require.NoError(r.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(text)
}

// Targets move while the service works: what comes later is stored in the new database, and each task is delivered once.
func TestTargetsMoveWhileTheServiceWorks(t *testing.T) {
	cfg, _ := twoDatabases(t)
	s := start(t, cfg)
	s.until("both work", func(status int, checks map[string]string) bool {
		return status == http.StatusOK && checks["dispatcher shard 0"] == "ok" && checks["dispatcher shard 1"] == "ok" && checks["scanner shard 0"] == "ok" && checks["scanner shard 1"] == "ok"
	})
	scheduled := map[string]int{}
	schedule := func(topic string) {
		id := fmt.Sprint(topic, "-", len(scheduled))
		status, text := s.post("/api/v1/tasks?wait=30s", fmt.Sprintf(`{"topic":%q,"id":%q,"delay":"1h","value":"v","key":%q}`, topic, id, id))
		require.Equal(t, http.StatusOK, status, text)
		scheduled[topic+"/"+id] = 0
	}
	in := func(k int) (topics []string) {
		page, err := look.New(s.shards[k].engine.Load().store).List(t.Context(), look.ListFilter{Limit: 100})
		require.NoError(t, err)
		for _, task := range page.Tasks {
			topics = append(topics, task.Topic)
		}
		return topics
	}
	move := func(pattern string, to int) (int, string) {
		return s.post("/api/v1/shards/moves", fmt.Sprintf(`{"pattern":%q,"shard":%d}`, pattern, to))
	}
	schedule("bills")
	for n := range 2 { // to and fro, and its task follows
		status, text := move("bills", 1-n)
		require.Equal(t, http.StatusOK, status, text)
		require.Eventually(t, func() bool { return len(in(n)) == 0 && len(in(1-n)) == 1 }, 30*time.Second, 10*time.Millisecond)
		require.Eventually(t, func() bool {
			_, text = s.get("/api/v1/shards")
			return !strings.Contains(text, `"move"`)
		}, 30*time.Second, 10*time.Millisecond, text)
	}
	status, text := s.do(http.MethodPatch, "/api/v1/targets/slow", `{"paused":true}`)
	require.Equal(t, http.StatusOK, status, text)
	status, text = s.do(http.MethodPut, "/api/v1/timers/slow/t?wait=30s", `{"every":"1h","value":"v"}`)
	require.Equal(t, http.StatusOK, status, text)
	status, text = move("slow", 1)
	require.Equal(t, http.StatusOK, status, text)
	require.Eventually(t, func() bool {
		_, text = s.get("/api/v1/targets")
		_, timer := s.get("/api/v1/timers/slow/t")
		return strings.Contains(text, `"paused":true`) && strings.Contains(timer, `"every"`)
	}, 30*time.Second, 10*time.Millisecond, "what was said about a target holds where it lives")
	there, err := admin.New(s.shards[1].engine.Load().store).Policies(t.Context())
	require.NoError(t, err)
	require.Len(t, there, 1)
	require.Eventually(t, func() bool {
		timers, err := look.New(s.shards[1].engine.Load().store).ListTimers(t.Context(), look.TimerFilter{})
		require.NoError(t, err)
		_, text = s.get("/api/v1/shards")
		return len(timers.Timers) == 1 && !strings.Contains(text, `"move"`)
	}, 30*time.Second, 10*time.Millisecond)
	status, text = move("orders", 1)
	require.Equal(t, http.StatusOK, status, text)
	require.JSONEq(t, `{"rules":[{"pattern":"orders","former":0,"shard":1}]}`, text)
	for range 5 {
		schedule("orders")
	}
	require.Equal(t, []string{"bills"}, in(0))
	require.Equal(t, []string{"orders", "orders", "orders", "orders", "orders", "slow"}, in(1), "a run of the paused timer came along")
	_, text = s.get("/api/v1/tasks?topic=orders")
	require.Equal(t, 5, strings.Count(text, `"topic":"orders"`), text)
	_, text = s.get("/api/v1/shards")
	require.Contains(t, text, `{"pattern":"orders","former":0,"shard":1}]`)
	require.Contains(t, text, `"version":4`)

	for name := range scheduled {
		topic, id, _ := strings.Cut(name, "/")
		status, text := s.post("/api/v1/tasks/fire?wait=30s", fmt.Sprintf(`{"topic":%q,"id":%q}`, topic, id))
		require.Equal(t, http.StatusOK, status, text)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Kafka.Brokers...), kgo.ConsumeTopics("orders", "bills"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	for arrived := 0; arrived < len(scheduled); {
		client.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) {
			scheduled[r.Topic+"/"+string(r.Key)]++
			arrived++
		})
	}
	for id, n := range scheduled {
		require.Equal(t, 1, n, id)
	}
	require.Eventually(t, func() bool { status, text = move("*", 0); return status == http.StatusOK }, time.Minute, 100*time.Millisecond, "what was delivered holds nobody")
	require.JSONEq(t, `{"rules":[{"pattern":"*","former":1,"shard":0}]}`, text)
	schedule("orders")
	require.Eventually(t, func() bool {
		there := in(0)
		slices.Sort(there)
		return slices.Equal([]string{"orders", "slow"}, there)
	}, 30*time.Second, 10*time.Millisecond)
	status, text = move("*", 7)
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, text, "shard is no database of this installation: name one of [0 1]")
}

// A database is removed while the service works. The service works on for the others, says which entry is too many, and answers without it.
func TestADatabaseIsRemovedWhileTheServiceWorks(t *testing.T) {
	cfg, dirs := twoDatabases(t)
	s := start(t, cfg)
	s.until("both work", func(status int, checks map[string]string) bool {
		return status == http.StatusOK && checks["dispatcher shard 0"] == "ok" && checks["dispatcher shard 1"] == "ok" && checks["scanner shard 0"] == "ok" && checks["scanner shard 1"] == "ok"
	})
	for _, body := range []string{`{"pattern":"orders","shard":1}`, `{"pattern":"*","former":1,"shard":0}`} {
		require.Eventually(t, func() bool {
			status, _ := s.post("/api/v1/shards/moves", body)
			return status == http.StatusOK
		}, time.Minute, 100*time.Millisecond)
	}
	all := shards.Databases{}
	for k, dir := range dirs {
		st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + dir + "/notyet.db"}, zap.NewNop())
		require.NoError(t, err)
		defer func() { _ = st.Close() }()
		all[k] = shards.New(st)
	}
	require.Eventually(t, func() bool { return all.Remove(t.Context(), 1, true) == nil }, time.Minute, 100*time.Millisecond)
	s.until("the entry is named", func(status int, checks map[string]string) bool {
		return status == http.StatusOK && strings.Contains(checks["mysql shard 1"], "the database was removed from the installation: take entry 1 out of mysql.shards") && checks["scanner shard 0"] == "ok"
	})
	status, text := s.post("/api/v1/tasks?wait=30s", `{"topic":"orders","id":"a","delay":"1h","value":"v"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.Eventually(t, func() bool {
		_, text = s.get("/api/v1/tasks?topic=orders")
		return !strings.Contains(text, `"missing"`) && strings.Contains(text, `"id":"a"`)
	}, 30*time.Second, 100*time.Millisecond, text)
	status, text = s.post("/api/v1/shards/moves", `{"pattern":"orders","shard":1}`)
	require.NotEqual(t, http.StatusOK, status, text)
}
