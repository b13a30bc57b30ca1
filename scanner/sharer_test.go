package scanner

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/task"
)

// movesTargets moves them. On a machine that stands still a move takes too long and is taken back, or a database does not answer within a second.
func movesTargets(t *testing.T, dbs shards.Databases, rule shardmap.Rule) {
	t.Helper()
	require.Eventually(t, func() bool {
		if _, err := dbs.Move(t.Context(), rule); err != nil {
			t.Log(err, dbs.Tend(t.Context()))
			return false
		}
		return true
	}, time.Minute, time.Millisecond)
}

// keepUp waits while scanners are far behind what is published.
func keepUp(all []*running, published int) {
	for _, r := range all {
		for int(r.at()) < published-2000 {
			time.Sleep(time.Millisecond)
		}
	}
}

// Each record is decided by one database, while its target moves to and fro between two: each of
// many requests has one answer.
func TestEachRecordIsOneDatabasesWhileItsTargetMoves(t *testing.T) {
	f := newFixture(t)
	second, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/second.db"}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = second.Close() })
	require.NoError(t, second.Migrate(t.Context(), 4))
	dbs := shards.Databases{0: shards.New(f.store), 1: shards.New(second)}
	var all []*running
	for n, st := range []*store.Store{f.store, second} {
		all = append(all, f.run(f.scanner(st, Config{Group: fmt.Sprint("scanner-", n), Shards: true, Shard: n})))
	}
	targets := []string{"a", "b.1", "b.2"}
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				sent <- i
				return
			default:
				keepUp(all, i)
				f.publish(record(schemas.TopicIntake, int32(i%intakeParts), schemas.HeaderOp, "cancel", schemas.HeaderTopic, targets[i%3], schemas.HeaderID, fmt.Sprint(i)))
			}
		}
	}()
	moves := 0
	for moves < 20 {
		for _, rule := range []shardmap.Rule{{Pattern: "a", Former: 0, Shard: 1}, {Pattern: "b.*", Former: 0, Shard: 1}, {Pattern: "a", Former: 1, Shard: 0}, {Pattern: "*", Former: 1, Shard: 0}} {
			movesTargets(t, dbs, rule)
			moves++
		}
	}
	close(stop)
	requests, answers := <-sent, map[string]int{}
	for _, e := range f.events(atLeast(requests)) {
		answers[e.ID]++
	}
	t.Log(requests, "requests,", moves, "moves")
	require.Len(t, answers, requests)
	for id, n := range answers {
		require.Equal(t, 1, n, id)
	}
	for n, db := range dbs {
		m, err := db.Map(t.Context())
		require.NoError(t, err)
		require.Len(t, m.Rules, moves, "of database %d", n)
		require.Nil(t, m.Announced())
	}
}

// Each request finds the task of its id, in whichever database the task is: each of many tasks is cancelled, while its target moves to and
// fro and tasks follow.
func TestRequestsFindTheirTasksWhileTargetsMove(t *testing.T) {
	f := newFixture(t)
	second, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/second.db"}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = second.Close() })
	require.NoError(t, second.Migrate(t.Context(), 4))
	dbs := shards.Databases{0: shards.New(f.store), 1: shards.New(second)}
	var all []*running
	for n, st := range []*store.Store{f.store, second} {
		all = append(all, f.run(f.scanner(st, Config{Group: fmt.Sprint("scanner-", n), Shards: true, Shard: n, Databases: func() shards.Databases { return dbs }})))
	}
	const behind = 400 // tasks that are there at any time
	stop, sent := make(chan struct{}), make(chan int)
	var reached atomic.Int64
	go func() {
		for i := 0; ; i++ {
			reached.Store(int64(i))
			n := i
			select {
			case <-stop:
				if i%behind == 0 {
					sent <- i
					return
				}
			default:
			}
			request := func(op string, n int) *kgo.Record {
				return record(schemas.TopicIntake, int32(n%intakeParts), schemas.HeaderOp, op, schemas.HeaderTopic, []string{"a", "b"}[n%2], schemas.HeaderID, fmt.Sprint(n), schemas.HeaderDelay, "1h")
			}
			records := []*kgo.Record{request("schedule", n)}
			if n >= behind {
				cancel := request("cancel", n-behind)
				cancel.Headers = cancel.Headers[:len(cancel.Headers)-1]
				records = append(records, cancel)
			}
			keepUp(all, 2*i-behind)
			f.publish(records...)
		}
	}()
	moves := 0
	for moves < 12 || reached.Load() < 3*behind {
		for _, rule := range []shardmap.Rule{{Pattern: "a", Former: 0, Shard: 1}, {Pattern: "*", Former: 0, Shard: 1}, {Pattern: "*", Former: 1, Shard: 0}} {
			movesTargets(t, dbs, rule)
			require.Eventually(t, func() bool { return dbs.Follow(t.Context()) == nil }, time.Minute, time.Millisecond)
			moves++
		}
	}
	close(stop)
	cancels := <-sent - behind
	answers, states := map[string]int{}, map[schemas.State]int{}
	for _, e := range f.events(atLeast(cancels)) {
		answers[e.ID]++
		states[e.State]++
	}
	t.Log(cancels, "cancels,", moves, "moves")
	require.Equal(t, map[schemas.State]int{schemas.StateCancelled: cancels}, states)
	require.Len(t, answers, cancels)
	for n := range dbs {
		st := []*store.Store{f.store, second}[n]
		page, err := look.New(st).List(t.Context(), look.ListFilter{Limit: 2 * behind})
		require.NoError(t, err)
		require.Len(t, page.Tasks, map[int]int{0: behind, 1: 0}[n], "in database %d", n)
	}
}

// A database that was set back while scanners run is given the rules that it has lost, before anybody decides by what it has left. Where
// all others are away for long, it goes on with that.
func TestADatabaseThatLostRulesDecidesNothing(t *testing.T) {
	open := func() shards.Shards {
		st, err := store.Open(t.Context(), store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}, zap.NewNop())
		require.NoError(t, err)
		t.Cleanup(func() { _ = st.Close() })
		require.NoError(t, st.Migrate(t.Context(), 1))
		return shards.New(st)
	}
	core, logged := observer.New(zap.WarnLevel)
	dbs := shards.Databases{0: open(), 1: open()}
	_, err := dbs.Move(t.Context(), shardmap.Rule{Pattern: "orders", Former: 0, Shard: 1})
	require.NoError(t, err)
	s := &sharer{all: func() shards.Databases { return nil }, shards: dbs[0], retry: retrier{prometheus.NewCounter(prometheus.CounterOpts{}), zap.New(core)}, patient: patience}
	count := func() int {
		s.forget()
		m, err := s.rules(t.Context())
		require.NoError(t, err)
		return m.InForce()
	}
	require.Equal(t, 1, count())
	dbs[0] = open()
	s.shards = dbs[0]
	got := make(chan int)
	go func() { got <- count() }()
	require.Eventually(t, func() bool { return logged.Len() > 0 || len(got) > 0 }, time.Minute, time.Millisecond)
	require.NoError(t, dbs.Tend(t.Context()))
	require.Equal(t, 1, <-got)

	s.shards, s.patient = open(), 0
	require.Zero(t, count())
}

// Cancels of many hold for tasks where they were listed. Tasks that another database has listed stay there, or its cancels would miss them.
func TestCancelsOfAnotherDatabasePullNoTasks(t *testing.T) {
	s := &sharer{shard: 1, all: func() shards.Databases { return nil }, installation: func(context.Context) (string, error) { return "own", nil },
		retry: retrier{prometheus.NewCounter(prometheus.CounterOpts{}), zap.NewNop()}}
	rules := &shardmap.Map{Rules: []shardmap.Rule{{N: 1, Pattern: "*", Former: 0, Shard: 1, Held: true}}}
	ident := task.Ident("orders", "a")
	cancels := func(of string) []task.Change {
		return []task.Change{{Seq: task.Seq(3, 0), Cancels: &task.Cancels{Installation: of, Tasks: []task.Listed{{Ident: ident[:]}}}}}
	}
	require.Empty(t, s.pull(t.Context(), rules, cancels("other")))
	require.Equal(t, map[int]bool{3: true}, s.pull(t.Context(), rules, cancels("own")), "the former home is away")
}

// A database was set back to before targets left it, and they have come back since. Until its tasks of before have left again, new
// requests about these targets wait: what they make would leave with them. Those of before do not: their tasks leave.
func TestRequestsWaitWhereTargetsHaveComeBack(t *testing.T) {
	part := shardmap.Partition{Topic: "in"}
	cut := func(at int64) map[shardmap.Partition]int64 { return map[shardmap.Partition]int64{part: at} }
	rules := &shardmap.Map{Rules: []shardmap.Rule{
		{N: 1, Pattern: "b*", Former: 0, Shard: 1, Held: true, Cuts: cut(10)},
		{N: 2, Pattern: "b1", Former: 1, Shard: 0, Held: true, Cuts: cut(20)},
	}}
	decides := func(of int, topic string, offset int64) bool {
		s := sharing{&sharer{shard: of, own: func(string) string { return "" }}, rules, part}
		r := record("in", 0, schemas.HeaderTopic, topic)
		r.Offset = offset
		return s.before(stretch{records: []*kgo.Record{r}}, 0) == 1
	}
	require.False(t, decides(0, "b1", 20))
	require.True(t, decides(0, "b1", 9))
	require.True(t, decides(0, "b1", 19), "another one's")
	require.True(t, decides(0, "b2", 20))
	require.True(t, decides(0, "other", 20))
	require.True(t, decides(1, "b1", 20), "it is not the new home's")
	rules.Rules[0].Followed = true
	require.True(t, decides(0, "b1", 20))
}
