package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/program"
	"github.com/notyet/notyet/test/recordtest"
)

// smallTeam has Kafka and a database alone, which are all that copies of the database share.
func smallTeam(t *testing.T, database, broker, member string) team {
	m := newTeam(t, database, broker, "").without("NOTYET_ZOOKEEPER_SERVERS").without("NOTYET_REDIS_ADDRS")
	m.environ = append(m.environ, "NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql", "NOTYET_DISPATCHER_MEMBER_ID="+member)
	m.environ = append(m.environ, "NOTYET_SENDLOG_DIR="+emptySendLog(t))
	return m
}

func emptySendLog(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "sendlog")
	sent, err := sendlog.Open(dir, sendlog.Config{}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, sent.Close())
	return dir
}

// process runs a service in a process of its own, and waits until it says a word.
func (m team) process(t *testing.T, service, says string) (*exec.Cmd, *program.Output) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	out := &program.Output{}
	cmd := exec.Command(self, service) //nolint:noctx // ended by a signal
	cmd.Env = append(m.environ, "HOME=/", asProgram+"=1")
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool { return strings.Contains(out.String(), says) }, time.Minute, 5*time.Millisecond, "%s did not say %q", service, says)
	return cmd, out
}

func ended(t *testing.T, cmd *exec.Cmd, sig os.Signal) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(sig))
	require.NoError(t, cmd.Wait())
}

// backUp copies a database while services work on it.
func backUp(t *testing.T, database string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "notyet.db")
	db, err := sql.Open("sqlite", database)
	require.NoError(t, err)
	_, err = db.Exec("VACUUM INTO '" + to + "'")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return to
}

// copyIn is the copy that the scanners' group names.
func copyIn(t *testing.T, broker string) kafka.Copy {
	t.Helper()
	claim, err := kafka.GroupClaim(t.Context(), client(t, broker), "notyet-scanner", "notyet.intake", "notyet.reports", "notyet.cancels")
	require.NoError(t, err)
	return claim.Copy
}

// A copy of a working database is put into its place with `reconcile`, and a dispatcher is forgotten on the old one. It ends by itself, and
// nothing starts beside the copy, until a command takes the old database back.
func TestADispatcherForgottenOnTheOldDatabaseEnds(t *testing.T) {
	t.Parallel()
	database, broker := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one")
	old := smallTeam(t, database, broker, "old")
	r := notyet(t, old.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	scanner, _ := old.process(t, "scanner", "started")
	forgotten, out := old.process(t, "dispatcher", `"slots":[0,1,2,3]`)
	old.claimedBefore(t)
	restored := smallTeam(t, backUp(t, database), broker, "restored")

	r = notyet(t, restored.environ, "", "deadletter", "reconcile")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "scanners are at work")
	ended(t, scanner, syscall.SIGTERM)
	r = notyet(t, restored.environ, "", "deadletter", "reconcile", "--dry-run")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.NotContains(t, out.String(), "another copy of this database", "a dry run changes nothing")

	r = notyet(t, restored.environ, "", "deadletter", "reconcile")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	began := time.Now()
	var exit *exec.ExitError
	require.ErrorAs(t, forgotten.Wait(), &exit)
	require.Less(t, time.Since(began), time.Minute)
	require.Equal(t, command.ExitFailed, exit.ExitCode())
	says := []string{"another copy of this database has taken its place: the consumer group notyet-scanner is with copy " + copyIn(t, broker).String(), "mysql.dsn leads to copy 0", "run `notyet deadletter reconcile` (docs/recovery.md)"}
	for _, word := range says {
		require.Contains(t, out.String(), word)
	}
	for _, service := range []string{"scanner", "dispatcher", "all"} {
		old.refused(t, service, says...)
	}

	scanner, _ = restored.process(t, "scanner", "started")
	_, out = restored.process(t, "dispatcher", "took slots")
	r = notyet(t, old.environ, "", "deadletter", "reconcile")
	require.Contains(t, r.stderr, "scanners are at work", "a rehearsal")
	ended(t, scanner, syscall.SIGTERM)
	old.environ = append(old.environ, "NOTYET_SENDLOG_DIR="+emptySendLog(t))
	r = notyet(t, old.environ, "", "deadletter", "reconcile")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	now := "is with copy " + copyIn(t, broker).String()
	require.NotContains(t, says[0], now)
	require.Eventually(t, func() bool { return strings.Contains(out.String(), now) }, time.Minute, 5*time.Millisecond)
	restored.refused(t, "all", now)
	old.serve(t, "all", "took slots")
}

// Whatever is absent says nothing: an installation in which nothing was restored works on.
func TestNothingStopsForLackOfAName(t *testing.T) {
	t.Parallel()
	database, broker := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one")
	m := smallTeam(t, database, broker, "d")
	r := notyet(t, m.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = notyet(t, m.environ, "", "deadletter", "reconcile")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	c := client(t, broker)
	topics := []string{"notyet.intake", "notyet.reports", "notyet.cancels"}
	group := func() kafka.Claim {
		claim, err := kafka.GroupClaim(t.Context(), c, "notyet-scanner", topics...)
		require.NoError(t, err)
		return claim
	}
	named := group()
	require.NotZero(t, named.Copy.N)

	older := kafka.Claim{Installation: named.Installation}
	require.NoError(t, kafka.TakeGroup(t.Context(), c, "notyet-scanner", older, topics...), "as Kafka has it that lost its last commits")
	require.Zero(t, group().Copy.N)
	_, out := m.process(t, "all", "took slots")
	require.Eventually(t, func() bool { return group() == named }, time.Minute, 20*time.Millisecond, "scanners publish the name")
	m.environ = append(m.environ, "NOTYET_SCANNER_GROUP=another", "NOTYET_DISPATCHER_MEMBER_ID=e", "NOTYET_SENDLOG_DIR="+t.TempDir())
	m.process(t, "dispatcher", "took slots")
	time.Sleep(3 * 2 * time.Second) // three looks
	require.NotContains(t, out.String(), "stopping")
}

// A naming that stops between its two writes, and one right behind them, is done again.
func TestANamingThatWasInterrupted(t *testing.T) {
	t.Parallel()
	database, broker := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one")
	m := smallTeam(t, database, broker, "d")
	r := notyet(t, m.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	db, err := sql.Open("sqlite", database)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	exec := func(statement string) {
		t.Helper()
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	reconcile := func() result { return notyet(t, m.environ, "", "deadletter", "reconcile") }

	exec("CREATE TRIGGER stop BEFORE INSERT ON meta WHEN NEW.name = CAST('copy' AS BLOB) BEGIN SELECT RAISE(ABORT, 'stopped'); END")
	r = reconcile()
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "naming this copy of the database")
	for _, service := range []string{"scanner", "dispatcher", "all"} {
		m.refused(t, service, "is with copy "+copyIn(t, broker).String(), "leads to copy 0, ")
	}
	exec("DROP TRIGGER stop")
	m.environ = append(m.environ, "NOTYET_SENDLOG_DIR="+emptySendLog(t))
	r = reconcile()
	require.Equal(t, command.ExitDone, r.code, r.stderr)

	first := copyIn(t, broker)
	// One that has a name already, and a request to read again.
	c := client(t, broker)
	require.NoError(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: "notyet.intake", Key: []byte("k"), Headers: []kgo.RecordHeader{{Key: "notyet-target", Value: []byte("x")}, {Key: "notyet-after", Value: []byte("1h")}}}).FirstErr())
	exec("CREATE TRIGGER stop BEFORE UPDATE ON meta WHEN NEW.name = CAST('copy' AS BLOB) BEGIN SELECT RAISE(ABORT, 'stopped'); END")
	r = reconcile()
	require.Equal(t, command.ExitFailed, r.code)
	m.refused(t, "all", "is with copy "+copyIn(t, broker).String(), "leads to copy "+first.String())
	exec("DROP TRIGGER stop")
	m.environ = append(m.environ, "NOTYET_SENDLOG_DIR="+emptySendLog(t))
	r = reconcile()
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "1 records of the intake")
	require.Greater(t, copyIn(t, broker).N, first.N+1)
	m.serve(t, "all", "took slots")
}

// Nobody has announced a copy with a command: its scanner takes nothing from those of the original.
func TestAScannerDoesNotStartBesideAnotherCopys(t *testing.T) {
	t.Parallel()
	database, broker := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one")
	original := smallTeam(t, database, broker, "original")
	r := notyet(t, original.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	original.process(t, "scanner", "started")
	original.claimedBefore(t)
	began := time.Now()
	second, _ := original.process(t, "scanner", "started")
	require.Less(t, time.Since(began), 28*time.Second, "it knows the first one")
	ended(t, second, syscall.SIGTERM)

	taken := backUp(t, database)
	db, err := sql.Open("sqlite", taken)
	require.NoError(t, err)
	_, err = db.Exec("UPDATE services SET seen = seen + 30000, started = seen + 30000") // they begin at the same time, on this copy
	require.NoError(t, err)
	require.NoError(t, db.Close())
	smallTeam(t, taken, broker, "rehearsal").refused(t, "all", "work on another copy of this database", "notyet@", "docs/recovery.md")
	scanners, err := kafka.GroupMembers(t.Context(), client(t, broker), "notyet-scanner")
	require.NoError(t, err)
	require.Len(t, scanners, 1)
}

// Members of the group that do not say that they work are no evidence.
func TestAScannerStartsBesideOthersThatMayBeItsOwn(t *testing.T) {
	t.Parallel()
	database, broker := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one")
	m := smallTeam(t, database, broker, "d")
	r := notyet(t, m.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	member, err := kafka.NewConsumerGroup(kafka.Config{Brokers: []string{broker}}, "notyet-scanner", []string{"notyet.intake"}, zap.NewNop())
	require.NoError(t, err)
	defer member.Close()
	c := client(t, broker)
	require.Eventually(t, func() bool {
		members, err := kafka.GroupMembers(t.Context(), c, "notyet-scanner")
		return err == nil && len(members) == 1
	}, time.Minute, 5*time.Millisecond)
	m.process(t, "scanner", "started")
}

// hook calls do once, before a text is written that has a word.
type hook struct {
	io.Writer
	word string
	do   func()
}

func (h *hook) Write(text []byte) (int, error) {
	if h.do != nil && strings.Contains(string(text), h.word) {
		h.do()
		h.do = nil
	}
	return h.Writer.Write(text)
}

// A dispatcher is started while `reconcile` reads the intake: it could send what is about to be settled.
func TestReconcileNoticesADispatcherStartedMeanwhile(t *testing.T) {
	t.Parallel()
	m := smallTeam(t, filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), "early")
	r := notyet(t, m.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	early := m
	early.environ = append(m.without("NOTYET_SENDLOG_DIR").environ, "NOTYET_SENDLOG_DIR="+emptySendLog(t))
	var errs program.Output
	says := &hook{Writer: &errs, word: "reading the intake again", do: func() { early.process(t, "dispatcher", "took slots") }}
	a := &app{&command.App{Ctx: t.Context(), Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: says, Environ: append([]string{"HOME=/"}, m.environ...), Name: "notyet", Program: "notyet"}}
	require.Equal(t, command.ExitFailed, a.run([]string{"deadletter", "reconcile"}), &errs)
	require.Contains(t, errs.String(), "dispatchers are at work (in the database): stop early first")
	require.NotContains(t, errs.String(), "settling what was sent")
}

// A dispatcher is left on the old database, and `reconcile` reads cancels on the restored one: none of their tasks is delivered after that.
func TestAForgottenDispatcherEndsBeforeRequestsAreReadAgain(t *testing.T) {
	t.Parallel()
	database, broker := filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one")
	old := smallTeam(t, database, broker, "old")
	r := notyet(t, old.environ, "", "migrate", "--set", "slots=4")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	c := client(t, broker)
	_, err := kadm.NewClient(c).CreateTopic(t.Context(), 1, 1, nil, "orders")
	require.NoError(t, err)
	scanner, _ := old.process(t, "scanner", "started")
	forgotten, out := old.process(t, "dispatcher", `"slots":[0,1,2,3]`)
	old.claimedBefore(t)
	const n = 600
	publish := func(i int, name, value string) {
		rec := &kgo.Record{Topic: "notyet.intake", Key: fmt.Append(nil, i), Headers: recordtest.Headers(schemas.HeaderTopic, "orders", schemas.HeaderID, fmt.Sprint(i), name, value)}
		require.NoError(t, c.ProduceSync(t.Context(), rec).FirstErr())
	}
	began := time.Now().Add(5 * time.Second)
	for i := range n {
		publish(i, schemas.HeaderAt, fmt.Sprint(began.Add(time.Duration(i)*200*time.Millisecond).UnixMilli()))
	}
	stored := func() (n int) {
		db, err := sql.Open("sqlite", database)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		require.NoError(t, db.QueryRow("SELECT COALESCE(SUM(next_offset), 0) FROM sources").Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return stored() >= n }, time.Minute, 100*time.Millisecond)
	restored := smallTeam(t, backUp(t, database), broker, "restored")
	ended(t, scanner, syscall.SIGTERM)
	for i := range n {
		publish(i, schemas.HeaderOp, "cancel")
	}
	r = notyet(t, restored.environ, "", "deadletter", "reconcile")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Error(t, forgotten.Wait())
	require.Contains(t, out.String(), "another copy of this database")
	restored.process(t, "scanner", "started") // tells what is in the outbox

	reader, err := kafka.New(kafka.Config{Brokers: []string{broker}}, zap.NewNop(), kgo.ConsumeTopics("orders", schemas.TopicResults), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer reader.Close()
	cancelled, sent := map[string]int64{}, map[string]int64{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for all := 0; ctx.Err() == nil && all < n; {
		reader.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
			if rec.Topic == "orders" {
				sent[recordtest.Header(rec, schemas.HeaderID)] = rec.Timestamp.UnixMilli()
			} else if e, err := schemas.DecodeEvent(rec); err == nil && e.State == schemas.StateCancelled {
				cancelled[e.ID] = e.At
			}
		})
		both := maps.Clone(sent)
		maps.Copy(both, cancelled)
		all = len(both)
	}
	require.NotEmpty(t, sent)
	require.NotEmpty(t, cancelled)
	for id, at := range cancelled {
		if s, delivered := sent[id]; delivered {
			require.Less(t, s, at, id)
		}
	}
}

// All send logs are lost: a run says what it then cannot know, and does the rest.
func TestReconcileWithoutASendLog(t *testing.T) {
	t.Parallel()
	m := smallTeam(t, filepath.Join(t.TempDir(), "notyet.db"), kafkaCluster(t, "one"), "one")
	m.environ = append(m.environ, "NOTYET_SENDLOG_DIR="+filepath.Join(t.TempDir(), "gone"))
	reconcile := func(args ...string) result {
		return notyet(t, m.environ, "", append([]string{"deadletter", "reconcile"}, args...)...)
	}
	r := notyet(t, m.environ, "", "migrate")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	r = reconcile()
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "there is no send log")
	require.Contains(t, r.stderr, "--without-logs")
	require.Equal(t, command.ExitUsage, reconcile("--without-logs", "--send-log", t.TempDir()).code)
	r = reconcile("--without-logs")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "what was delivered since the backup: it is delivered once more")
	require.NotContains(t, reconcile("--send-log", emptySendLog(t), "--dry-run").stdout, "No send log")
}
