package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/mysqltest"
	"github.com/notyet/notyet/test/recordtest"
)

// dispatcherAt keeps its send log where the test can find it.
func (s *stack) dispatcherAt(id, dir string) *process {
	sent, err := sendlog.Open(dir, sendlog.Config{}, s.log)
	require.NoError(s.t, err)
	var members election.Source = election.NewLocal(id, s.store.SlotCount, intake.New(s.store).Line())
	if s.real {
		members, err = election.NewZooKeeper(election.Config{Servers: s.zk, Root: "/" + s.name, MemberID: id, Slots: s.store.SlotCount}, intake.New(s.store).Line(), s.log)
		require.NoError(s.t, err)
	}
	d, err := dispatcher.New(dispatcher.Deps{Kafka: s.kafka, Store: s.store, Index: s.newIndex(), Members: members, SendLog: sent, Metrics: prometheus.NewRegistry(), Log: s.log},
		dispatcher.Config{MemberID: id, Results: s.results, Group: s.name, Read: []string{s.intake, s.reports}})
	require.NoError(s.t, err)
	return s.start(func(ctx context.Context) error {
		defer func() { _ = sent.Close() }()
		return d.Run(ctx)
	})
}

func (s *stack) reconcile(r deadletter.Reconcile) deadletter.Reconciled {
	out, err := s.tryReconcile(r)
	require.NoError(s.t, err)
	s.t.Logf("%+v", out)
	return out
}

func (s *stack) tryReconcile(r deadletter.Reconcile) (deadletter.Reconciled, error) {
	r.Intake, r.Reports, r.Group = []string{s.intake}, []string{s.reports}, s.name
	r.CatchUp = func(ctx context.Context, topics []string, until kafka.Offsets) error {
		sc, err := scanner.New(s.scannerDeps(), scanner.Config{Group: s.name, Intake: []string{s.intake}, Reports: s.reports, Results: s.results, Read: topics, Until: until})
		if err != nil {
			return err
		}
		return sc.CatchUp(ctx, func(int64) {})
	}
	return deadletter.NewLocal(s.store, s.newIndex(), "test", s.log).Reconcile(s.t.Context(), s.kafka, r)
}

// TestReconcileCountsWhatIsGone: the intake's records since the backup are in Kafka no longer. Nothing is done before somebody has
// accepted that.
func TestReconcileCountsWhatIsGone(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		target, later := s.name+".target", inMillis(time.Hour)
		s.topics(1, target)
		stored := func(prefix string) {
			sc := s.scanner()
			for i := range 10 {
				id := prefix + strconv.Itoa(i)
				s.publish(keyed(request(s.intake, target, schemas.HeaderID, id, schemas.HeaderAt, later), id, "v"))
			}
			for i := range 10 {
				require.Eventually(t, func() bool {
					_, err := look.New(s.store).Get(t.Context(), target, prefix+strconv.Itoa(i))
					return err == nil
				}, 2*time.Minute, 10*time.Millisecond)
			}
			sc.shutdown(t)
		}
		stored("before-")
		b := s.backUp()
		stored("after-")
		s.restore(b)

		client, err := kafka.New(s.kafka, s.log)
		require.NoError(t, err)
		defer client.Close()
		admin := kadm.NewClient(client)
		ends, err := admin.ListEndOffsets(t.Context(), s.intake)
		require.NoError(t, err)
		_, err = admin.DeleteRecords(t.Context(), ends.Offsets())
		require.NoError(t, err)
		var plan deadletter.Reconciled
		for _, dry := range []bool{true, false} {
			plan, err = s.tryReconcile(deadletter.Reconcile{DryRun: dry})
			require.ErrorIs(t, err, deadletter.ErrGone)
			require.EqualValues(t, 10, plan.Gone)
			require.Zero(t, plan.Unread)
		}
		require.EqualValues(t, 10, s.reconcile(deadletter.Reconcile{AcceptLoss: true}).Gone)
		s.publish(keyed(request(s.intake, target, schemas.HeaderID, "new", schemas.HeaderAt, later), "new", "v"))
		require.EqualValues(t, 1, s.reconcile(deadletter.Reconcile{AcceptLoss: true}).Unread)
		require.Equal(t, "pending", s.state(target, "new"))

		before, _ := s.tryReconcile(deadletter.Reconcile{DryRun: true})
		ends, err = admin.ListEndOffsets(t.Context(), s.intake)
		require.NoError(t, err)
		end, _ := ends.Lookup(s.intake, 0)
		committed := kadm.Offsets{}
		committed.AddOffset(s.intake, 0, end.Offset+3, -1)
		require.NoError(t, admin.CommitAllOffsets(t.Context(), s.name, committed))
		plan, err = s.tryReconcile(deadletter.Reconcile{})
		require.ErrorIs(t, err, deadletter.ErrGone, "Kafka lost its end as well")
		require.EqualValues(t, before.Gone+3, plan.Gone)
	})
}

// TestReconcileOfALogThatIsOlderToo: Kafka came back without its last records as well, and gave their
// offsets to others. By the send logs, the lost ones were delivered: the others get delivery keys
// of their own. What is the same in both logs is settled as ever.
func TestReconcileOfALogThatIsOlderToo(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		target, dir, lost := s.name+".target", t.TempDir(), t.TempDir()
		s.topics(1, target)
		ask := func(id, at string) *kgo.Record {
			r := keyed(request(s.intake, target, schemas.HeaderID, id, schemas.HeaderAt, at), "one key", "v")
			return r
		}
		sc, d := s.scanner(), s.dispatcherAt("d1", dir)
		s.publish(ask("before", inMillis(0)))
		s.await(target, 1)
		require.Eventually(t, func() bool { return s.state(target, "before") == "delivered" }, time.Minute, 10*time.Millisecond)
		b := s.backUp()
		s.publish(ask("same", inMillis(0)))
		s.await(target, 2)
		require.Eventually(t, func() bool { return s.state(target, "same") == "delivered" }, time.Minute, 10*time.Millisecond)
		sc.shutdown(t)
		d.shutdown(t)
		s.restore(b)
		s.publish(ask("new", inMillis(time.Hour)))

		// Another dispatcher delivered what the log had at the offset of the new record, and behind.
		all, err := intake.New(s.store).Sources(t.Context())
		require.NoError(t, err)
		src := all[slices.IndexFunc(all, func(src intake.Source) bool { return src.Topic == s.intake && src.Next == 1 })]
		sent, err := sendlog.Open(lost, sendlog.Config{}, s.log)
		require.NoError(t, err)
		for offset := int64(2); offset < 7; offset++ {
			require.NoError(t, sent.AppendIntents(t.Context(), []sendlog.Intent{{Seq: task.Seq(src.ID, offset), Attempt: 1, Topic: target, ID: fmt.Sprint("lost-", offset)}}))
			require.NoError(t, sent.AppendOutcomes(t.Context(), []sendlog.Outcome{{Seq: task.Seq(src.ID, offset), Attempt: 1, Acked: true, At: time.Now().UnixMilli()}}))
		}
		require.NoError(t, sent.Close())
		logs := []string{dir, lost}
		other := []deadletter.OtherLog{{Topic: s.intake, Partition: src.Partition, From: 2, Restarts: 1}}
		plan, err := s.tryReconcile(deadletter.Reconcile{Logs: logs})
		require.ErrorIs(t, err, deadletter.ErrGone)
		require.Equal(t, other, plan.OtherLogs)
		require.EqualValues(t, 5, plan.Gone)
		done := s.reconcile(deadletter.Reconcile{Logs: logs, AcceptLoss: true})
		require.Equal(t, other, done.OtherLogs)
		require.Equal(t, "succeeded", s.state(target, "same"))
		require.Equal(t, "pending", s.state(target, "new"))
		now, _, err := intake.New(s.store).FindSource(t.Context(), s.intake, src.TopicID, src.Partition)
		require.NoError(t, err)
		require.Equal(t, 1, now.Generation)
		require.EqualValues(t, 3, now.Next)
		require.NotEqual(t, src.DeliveryKey(2, 1), now.DeliveryKey(2, 1))
		require.Empty(t, s.reconcile(deadletter.Reconcile{Logs: logs}).OtherLogs, "once is enough")
	})
}

// Two operators reconcile two copies at the same time: the one who named the group first is told.
func TestReconcileNoticesAnother(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		installation, err := s.store.Installation(t.Context())
		require.NoError(t, err)
		client, err := kafka.New(s.kafka, s.log)
		require.NoError(t, err)
		defer client.Close()
		other := func(what string) {
			if what != "reading the reports again" {
				return
			}
			claim, err := kafka.GroupClaim(t.Context(), client, s.name, s.intake)
			require.NoError(t, err)
			newer := kafka.Claim{Installation: installation, Copy: kafka.NewCopy("another", claim.Copy)}
			require.NoError(t, kafka.TakeGroup(t.Context(), client, s.name, newer, s.intake, s.reports))
		}
		require.Eventually(t, func() bool { // a new broker first makes the topic of offsets
			_, err := kafka.GroupClaim(t.Context(), client, s.name, s.intake)
			return err == nil
		}, time.Minute, 50*time.Millisecond)
		db := s.open()
		defer db.Close()
		claims := func(at time.Time) {
			_, err := db.ExecContext(t.Context(), "UPDATE slots SET claimed = ?, done = ?", at.UnixMilli(), at.UnixMilli())
			require.NoError(t, err)
		}
		began := time.Now().Add(-24 * time.Hour).Truncate(time.Millisecond)
		claims(began)
		interrupted, err := s.tryReconcile(deadletter.Reconcile{Step: other})
		require.ErrorIs(t, err, kafka.ErrOlderCopy)
		require.Equal(t, began.Add(-time.Hour).UnixMilli(), interrupted.Since)
		claims(began.Add(23 * time.Hour)) // somebody started dispatchers too early
		require.Equal(t, interrupted.Since, s.reconcile(deadletter.Reconcile{}).Since, "it is taken up again")
		require.Equal(t, began.Add(22*time.Hour).UnixMilli(), s.reconcile(deadletter.Reconcile{}).Since)
	})
}

// copies are the observed deliveries: how many of each id, and with which attempts.
type copies map[string][]string

func (s *stack) seen(target string, quiet time.Duration) copies {
	out := copies{}
	c, left := s.reader([]string{target}), s.toRead(target)
	for idle := time.Now(); time.Since(idle) < quiet || len(left) > 0; {
		ctx, cancel := context.WithTimeout(s.t.Context(), 200*time.Millisecond)
		f := c.PollFetches(ctx)
		cancel()
		require.NoError(s.t, s.t.Context().Err())
		left.read(f.Records()...)
		f.EachRecord(func(r *kgo.Record) {
			idle = time.Now()
			id := recordtest.Header(r, schemas.HeaderID)
			out[id] = append(out[id], recordtest.Header(r, schemas.HeaderAttempt)+":"+string(r.Value))
		})
	}
	return out
}

// await polls the target until so many deliveries are there.
func (s *stack) await(target string, n int) {
	seen := 0
	s.read(s.reader([]string{target}), time.Minute, func(*kgo.Record) bool { seen++; return seen == n })
}

// TestRestoredDatabaseIsReconciled: a database is restored to an earlier moment and reconciled with
// a send log. What was sent is not sent again, and the rest is. Requests are decided as they were
// before.
func TestRestoredDatabaseIsReconciled(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		target, dir := s.name+".target", t.TempDir()
		s.topics(4, target)
		task := func(id, value string, headers ...string) *kgo.Record {
			return keyed(request(s.intake, target, append(headers, schemas.HeaderID, id)...), id, value)
		}
		soon := func() string { return inMillis(300 * time.Millisecond) }
		later := inMillis(time.Hour)
		tell := func(id, attempt, status string, more ...string) *kgo.Record {
			return keyed(request(s.reports, target, append(more, schemas.HeaderID, id, schemas.HeaderAttempt, attempt, schemas.HeaderStatus, status)...), id, "")
		}
		sc, d := s.scanner(), s.dispatcherAt("d1", dir)
		const each = 20
		run := func(prefix, at string, headers ...string) {
			var records []*kgo.Record
			for i := range each {
				records = append(records, task(prefix+strconv.Itoa(i), "v", append(headers, schemas.HeaderAt, at)...))
			}
			s.publish(records...)
		}
		run("before-", soon())
		s.await(target, each)
		// In the backup, but not yet sent: it is sent later.
		comes := inMillis(16 * time.Second)
		run("stored-", comes)
		run("reports-", comes, schemas.HeaderAck, "report", schemas.HeaderAckTimeout, "1s", schemas.HeaderMaxAttempts, "2", schemas.HeaderBackoff, "fixed:1h")
		run("waits-", later)
		s.publish(task("replaced", "old", schemas.HeaderAt, later), task("cancelled", "x", schemas.HeaderAt, later),
			task("again", "retried", schemas.HeaderAt, comes, schemas.HeaderAck, "report", schemas.HeaderAckTimeout, "1h", schemas.HeaderBackoff, "fixed:10ms"))
		known := func(ids ...string) { // partitions are stored side by side
			for _, prefix := range []string{"before-", "stored-", "reports-", "waits-"} {
				for i := range each {
					ids = append(ids, prefix+strconv.Itoa(i))
				}
			}
			for _, id := range ids {
				require.Eventually(t, func() bool {
					v, err := look.New(s.store).Get(t.Context(), target, id)
					return err == nil && (v.State != "claimed")
				}, 2*time.Minute, 10*time.Millisecond, id)
			}
		}
		known("replaced", "cancelled", "again")
		b := s.backUp()

		// After the backup.
		run("after-", soon())
		run("late-", later)
		s.publish(task("replaced", "new", schemas.HeaderAt, soon()), task("cancelled", "x", schemas.HeaderOp, "cancel"), task("kept", "first", schemas.HeaderAt, inMillis(12*time.Second)),
			task("kept", "double", schemas.HeaderAt, soon(), schemas.HeaderIfExists, "keep"), task("merged", `{"n":1}`, schemas.HeaderAt, soon(), schemas.HeaderIfExists, "merge", schemas.HeaderMerge, "sum"))
		s.await(target, 4*each+4) // before, stored, reports, after, replaced, kept, merged, again
		for i := range each {
			s.publish(tell("reports-"+strconv.Itoa(i), "1", "ok"))
		}
		s.publish(tell("again", "1", "retry"))
		s.await(target, 4*each+5)
		s.publish(tell("again", "2", "ok"))
		// Their ids are free again: these are new tasks.
		s.publish(task("kept", "second", schemas.HeaderAt, later, schemas.HeaderIfExists, "keep"), task("merged", `{"n":5}`, schemas.HeaderAt, later, schemas.HeaderIfExists, "merge", schemas.HeaderMerge, "sum"),
			task("stored-0", "x", schemas.HeaderOp, "cancel"))
		for _, id := range []string{"kept", "merged"} {
			require.Eventually(t, func() bool {
				v, err := look.New(s.store).Get(t.Context(), target, id)
				return err == nil && v.State == "pending"
			}, 2*time.Minute, 10*time.Millisecond, id)
		}
		require.Eventually(t, func() bool {
			return s.state(target, "again") == "succeeded" && s.state(target, "reports-19") == "succeeded"
		}, 2*time.Minute, 10*time.Millisecond)
		sc.shutdown(t)
		d.shutdown(t)
		was := s.seen(target, time.Second)
		s.restore(b)

		plan := s.reconcile(deadletter.Reconcile{Logs: []string{dir}, DryRun: true})
		require.Equal(t, 2*each+1, plan.Unsent, "stored, reports, again")
		require.Equal(t, each+3, plan.UnreadProven, "after, replaced, kept, merged")
		require.Zero(t, plan.InDoubt)
		require.Equal(t, plan, s.reconcile(deadletter.Reconcile{Logs: []string{dir}, DryRun: true}), "a dry run changes nothing")

		done := s.reconcile(deadletter.Reconcile{Logs: []string{dir}})
		require.Zero(t, done.Left)
		require.Zero(t, done.Again)
		repeated := s.reconcile(deadletter.Reconcile{Logs: []string{dir}})
		require.Zero(t, repeated.Unread)
		require.Zero(t, repeated.Unsent)
		for i := range each {
			require.Equal(t, "succeeded", s.state(target, fmt.Sprintf("stored-%d", i)))
			require.Equal(t, "succeeded", s.state(target, fmt.Sprintf("reports-%d", i)))
			require.Equal(t, "pending", s.state(target, fmt.Sprintf("waits-%d", i)))
			require.Equal(t, "pending", s.state(target, fmt.Sprintf("late-%d", i)))
		}
		require.Equal(t, "succeeded", s.state(target, "again"))
		require.Equal(t, "succeeded", s.state(target, "replaced"))
		require.Equal(t, "cancelled", s.state(target, "cancelled"))

		// Work continues: nothing comes twice, and nothing is missing.
		s.scanner()
		s.dispatcherAt("d2", dir)
		for _, prefix := range []string{"waits-", "late-"} {
			for i := range each {
				id := prefix + strconv.Itoa(i)
				s.publish(task(id, "", schemas.HeaderOp, "fire"))
				was[id] = []string{"1:v"}
			}
		}
		s.publish(task("kept", "", schemas.HeaderOp, "fire"), task("merged", "", schemas.HeaderOp, "fire"))
		was["kept"], was["merged"] = append(was["kept"], "1:second"), append(was["merged"], `1:{"n":5}`)
		s.await(target, 6*each+7)
		require.Equal(t, was, s.seen(target, 2*time.Second))
		require.Equal(t, []string{"1:retried", "2:retried"}, was["again"])
		require.Equal(t, []string{"1:new"}, was["replaced"])
	})
}

func (s *stack) state(topic, id string) string {
	v, err := s.view(topic, id)
	require.NoError(s.t, err, id)
	return v.State
}

// TestRunsOfTimersAreReconciled: a timer that was set after the backup is set again from the intake. Its
// runs that were sent are not made a second time, under another number; the others are made.
func TestRunsOfTimersAreReconciled(t *testing.T) {
	onOneDatabase(t, func(t *testing.T, s *stack) {
		const runs = 15
		target, dir := s.name+".target", t.TempDir()
		s.topics(1, target)
		sc, d := s.scanner(), s.dispatcherAt("d1", dir)
		require.Eventually(t, func() bool {
			slots, err := s.store.Slots(t.Context())
			return err == nil && !slices.ContainsFunc(slots, func(one store.Slot) bool { return one.Owner == "" })
		}, 2*time.Minute, 10*time.Millisecond)
		b := s.backUp()
		from := time.Now().Add(2 * time.Second).Truncate(time.Second)
		s.publish(keyed(request(s.intake, target, schemas.HeaderOp, "timer", schemas.HeaderID, "t", schemas.HeaderEvery, "1s", schemas.HeaderMisfire, "all",
			schemas.HeaderFrom, strconv.FormatInt(from.UnixMilli(), 10), schemas.HeaderUntil, strconv.FormatInt(from.Add((runs-1)*time.Second).UnixMilli(), 10)), "t", "v"))
		s.await(target, runs/3)
		sc.shutdown(t)
		d.shutdown(t)
		was := s.seen(target, time.Second)
		all := runs // but for those before the timer was stored, on a slow machine
		for ; all > 0 && was[fmt.Sprint("t@", from.UnixMilli())] == nil; from = from.Add(time.Second) {
			all--
		}
		require.Less(t, len(was), all)
		s.restore(b)

		plan := s.reconcile(deadletter.Reconcile{Logs: []string{dir}, DryRun: true})
		require.Equal(t, len(was), plan.UnreadProven)
		done := s.reconcile(deadletter.Reconcile{Logs: []string{dir}})
		require.Zero(t, done.Left)
		for id := range was {
			require.Equal(t, "succeeded", s.state(target, id))
		}
		s.scanner()
		s.dispatcherAt("d2", dir)
		s.await(target, all)
		seen := s.seen(target, 3*time.Second)
		require.Len(t, seen, all)
		for id, attempts := range seen {
			require.Equal(t, []string{"1:v"}, attempts, id)
		}
	})
}

// TestReconcileAfterAKill: everything is killed under load, and the restored database is older than
// that. With the topics' help no task is sent twice and none is lost, though the first
// reconciliation is killed as well.
func TestReconcileAfterAKill(t *testing.T) {
	c := oneDatabase(t, usualSlots)
	n := clusterTasks(t, 4000)
	targets := []string{c.name + ".a", c.name + ".b"}
	c.topics(4, targets...)
	span := max(time.Duration(n/500)*time.Second, 8*time.Second)
	sc, d1, d2 := c.spawn("scanner", "scanner"), c.spawn("d1", "dispatcher"), c.spawn("d2", "dispatcher")
	wants := c.load(targets, n, 2*time.Second, span)
	c.await(targets[0], n/10)
	b := c.backUp()
	args := []string{"deadletter", "reconcile", "--topics", "--json", "--send-log", filepath.Join(c.dir, "d1-sendlog"), "--send-log", filepath.Join(c.dir, "d2-sendlog")}
	run := func(more ...string) (out deadletter.Reconciled, problem string) {
		cmd := exec.Command(c.binary, append(args, more...)...)
		cmd.Env = c.env
		text, err := cmd.Output()
		if err != nil {
			var failed *exec.ExitError
			require.ErrorAs(t, err, &failed)
			return out, string(failed.Stderr)
		}
		require.NoError(t, json.Unmarshal(text, &out))
		return out, ""
	}
	_, problem := run("--dry-run")
	require.Contains(t, problem, "at work", "the sessions are there, as those of the killed for a while")
	c.await(targets[0], n/4)
	for _, p := range []*proc{d1, d2, sc} {
		p.kill()
	}
	c.restore(b)
	var plan deadletter.Reconciled
	require.Eventually(t, func() bool { plan, problem = run("--dry-run"); return problem == "" }, 2*time.Minute, 200*time.Millisecond)
	require.Positive(t, plan.Unsent+plan.UnreadProven)

	half := exec.Command(c.binary, args...)
	half.Env = c.env
	require.NoError(t, half.Start())
	time.AfterFunc(300*time.Millisecond, func() { _ = half.Process.Kill() })
	_ = half.Wait()

	var done deadletter.Reconciled
	require.Eventually(t, func() bool { done, problem = run(); return problem == "" }, 2*time.Minute, 200*time.Millisecond, problem)
	t.Logf("plan %+v\ndone %+v", plan, done)
	require.Zero(t, done.Left)

	c.spawn("scanner", "scanner")
	c.spawn("d1", "dispatcher")
	c.spawn("d2", "dispatcher")
	c.collect(targets, wants, 2*time.Minute+span, 3*time.Second)
	require.Zero(t, measure(t, wants).doubled)
}

// TestReconcileOneOfTwoDatabases: a target moves under load, and one of the two databases is restored from a backup of before. Nothing is lost,
// nothing is sent twice, and nothing that the new home has cancelled.
func TestReconcileOneOfTwoDatabases(t *testing.T) {
	for restored, of := range []string{"the former home", "the new home"} {
		t.Run(of, func(t *testing.T) {
			c := oneDatabase(t, usualSlots)
			second := mysqltest.Fresh(t)
			c.adds(second)
			n := clusterTasks(t, 4000)
			stays, moves := c.name+".stays", c.name+".moves"
			c.topics(4, stays, moves)
			span := max(time.Duration(n/500)*time.Second, 8*time.Second)
			sc, d1, d2 := c.spawn("scanner", "scanner"), c.spawn("d1", "dispatcher"), c.spawn("d2", "dispatcher")
			c.warm()
			const cancelled = 50
			later := inMillis(span + 40*time.Second)
			for i := range cancelled {
				c.publish(keyed(request(c.intake, moves, schemas.HeaderID, fmt.Sprint("cancelled-", i), schemas.HeaderAt, later, schemas.HeaderEvents, "all"), "k", "v"))
			}
			wants := c.load([]string{stays, moves}, n, 2*time.Second, span)
			c.await(stays, n/10)
			database := *c.stack
			database.dsn = []string{c.dsn, second}[restored]
			b := database.backUp()
			c.tries(0, "shards", "move", moves, "1", "--wait")
			for i := range cancelled {
				c.publish(request(c.intake, moves, schemas.HeaderID, fmt.Sprint("cancelled-", i), schemas.HeaderOp, "cancel"))
			}
			answers := 0
			c.read(c.reader([]string{c.results}), 2*time.Minute, func(r *kgo.Record) bool {
				if e, err := schemas.DecodeEvent(r); err == nil && e.State == schemas.StateCancelled {
					answers++
				}
				return answers == cancelled
			})
			killed := time.Now().UnixMilli()
			for _, p := range []*proc{d1, d2, sc} {
				p.kill()
			}
			database.restore(b)
			args := []string{"deadletter", "reconcile", "--shard", strconv.Itoa(restored), "--topics"}
			for _, d := range []string{"d1", "d2"} {
				args = append(args, "--send-log", filepath.Join(c.dir, d+"-sendlog", []string{"", "shard-1"}[restored]))
			}
			reconciles := func(args ...string) {
				require.Eventually(t, func() bool {
					cmd := exec.CommandContext(t.Context(), c.binary, args...)
					cmd.Env = c.env
					text, err := cmd.CombinedOutput()
					t.Logf("%s", text)
					return err == nil
				}, 3*time.Minute, 200*time.Millisecond)
			}
			reconciles(append(args, "--dry-run")...)
			var rules int
			require.NoError(t, database.open().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM homes").Scan(&rules))
			require.Zero(t, rules, "a dry run changes nothing")
			reconciles(args...)

			c.spawn("scanner", "scanner")
			c.spawn("d1", "dispatcher")
			c.spawn("d2", "dispatcher")
			c.collect([]string{stays, moves}, wants, 2*time.Minute+span, 3*time.Second) // a cancelled one would be a phantom
			require.Zero(t, measure(t, wants).early)
			for id, w := range wants { // the other database was not restored, and its dispatchers had some in doubt when they were killed
				if len(w.copies) > 1 {
					require.Equal(t, []string{moves, stays}[restored], w.target, "%s, due %d ms before the kill, came at %+v", id, killed-w.due, w.copies)
					require.Less(t, slices.MinFunc(w.copies, func(a, b arrival) int { return int(a.at - b.at) }).at, killed+1000)
				}
			}
			due, err := strconv.ParseInt(later, 10, 64)
			require.NoError(t, err)
			time.Sleep(time.Until(time.UnixMilli(due).Add(5 * time.Second)))
			for _, r := range c.arrivals(moves) {
				d, _, err := schemas.ParseDelivery(r)
				require.NoError(t, err)
				require.Contains(t, wants, d.ID)
			}
		})
	}
}
