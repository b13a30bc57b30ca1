package shards_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/test/mysqltest"
)

func migrated(t testing.TB, cfg store.Config) *store.Store {
	st, err := store.Open(t.Context(), cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	require.NoError(t, st.Migrate(t.Context(), 2))
	return st
}

type databases struct {
	shards.Databases
	stores  []*store.Store
	sources []intake.Source
	ahead   time.Duration // of the clocks
}

func open(t testing.TB, n int) *databases {
	d := &databases{Databases: shards.Databases{}}
	for i := range n {
		st := d.one(t)
		src, err := intake.New(st).Source(t.Context(), "in", [16]byte{1}, 0, 0)
		require.NoError(t, err)
		d.stores, d.sources, d.Databases[i] = append(d.stores, st), append(d.sources, src), shards.New(st)
	}
	return d
}

// one makes an empty database.
func (d *databases) one(t testing.TB) *store.Store {
	cfg := store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db", Clock: func() time.Time { return time.UnixMilli(1_700_000_000_000).Add(d.ahead) }}
	if os.Getenv("NOTYET_MYSQL_DSN") != "" {
		cfg.DSN = mysqltest.Fresh(t)
	}
	return migrated(t, cfg)
}

func (d *databases) store(t testing.TB, n int, mapped int64, changes ...task.Change) error {
	src := &d.sources[n]
	to := src.Next + int64(max(len(changes), 1))
	b := intake.Batch{Advance: []intake.Advance{{Source: src.ID, From: src.Next, To: to}}, Changes: changes, Map: mapped}
	if len(changes) == 0 {
		b.Skip(src.ID, src.Next, to)
	}
	_, err := intake.New(d.stores[n]).Apply(t.Context(), b, func() int64 { return 1_700_000_000_000 })
	if err == nil {
		src.Next = to
	}
	return err
}

func (d *databases) schedule(t testing.TB, n int, topic string) {
	src := d.sources[n]
	r := &schemas.Request{Topic: topic, ID: "a", GivenID: true, Version: schemas.NoVersion, Due: 1_700_003_600_000, Settings: schemas.DefaultSettings()}
	require.NoError(t, d.store(t, n, 0, task.Change{Seq: task.Seq(src.ID, src.Next), Request: r}))
}

func (d *databases) version(t testing.TB, n int) int64 {
	m, err := d.Databases[n].Map(t.Context())
	require.NoError(t, err)
	return m.Version
}

func (d *databases) rules(t testing.TB, n int) []shardmap.Rule {
	m, err := d.Databases[n].Map(t.Context())
	require.NoError(t, err)
	return m.Rules
}

var orders = shardmap.Rule{Pattern: "orders", Former: 0, Shard: 1}

func TestAMoveIsInForceInAllDatabases(t *testing.T) {
	d := open(t, 3)
	before := d.version(t, 0)
	require.NoError(t, d.store(t, 0, before))
	held, err := d.Move(t.Context(), orders)
	require.NoError(t, err)
	require.Equal(t, map[shardmap.Partition]int64{{Topic: "in", TopicID: [16]byte{1}}: 1}, held.Cuts)
	for n := range d.stores {
		require.Equal(t, []shardmap.Rule{held}, d.rules(t, n))
	}
	require.ErrorIs(t, d.store(t, 0, before), shards.ErrMap, "a batch from before leaves out what it should not")
	m, err := d.Databases[0].Map(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.store(t, 0, m.Version))
}

// A pause holds wherever its target lives, and those of other targets stay as they are.
func TestPoliciesFollow(t *testing.T) {
	d := open(t, 2)
	set := func(n int, topic string, p admin.Policy) {
		_, err := admin.New(d.stores[n]).SetPolicy(t.Context(), topic, clock, func(admin.Policy) admin.Policy { return p })
		require.NoError(t, err)
	}
	inForce := func(n int) map[string]admin.Policy {
		out := map[string]admin.Policy{}
		all, err := admin.New(d.stores[n]).Policies(t.Context())
		require.NoError(t, err)
		for _, p := range all {
			out[p.Topic] = p
		}
		return out
	}
	move := func(pattern string, former int) {
		for k := range d.stores { // each has stored what the others have passed
			for d.sources[k].Next < 5 {
				m, err := d.Databases[k].Map(t.Context())
				require.NoError(t, err)
				require.NoError(t, d.store(t, k, m.Version))
			}
		}
		_, err := d.Move(t.Context(), shardmap.Rule{Pattern: pattern, Former: former, Shard: 1 - former})
		require.NoError(t, err)
	}
	move("bills", 0)
	bills, orders := admin.Policy{Rate: 5}, admin.Policy{Paused: true, Until: time.Now().Add(time.Hour).UnixMilli()}
	set(1, "bills", bills)
	set(0, "orders", orders)
	orders.Topic, orders.Changed = "orders", clock
	bills.Topic, bills.Changed = "bills", clock
	move("*", 0)
	require.Equal(t, map[string]admin.Policy{"orders": orders, "bills": bills}, inForce(1))
	fresh := open(t, 1)
	before, beforeThat := d.Databases[1], d.stores[1]
	d.Databases[1], d.stores[1] = fresh.Databases[0], fresh.stores[0]
	require.NoError(t, d.Tend(t.Context()))
	require.Equal(t, map[string]admin.Policy{"orders": orders}, inForce(1), "the new home was set back to before the move")
	d.Databases[1], d.stores[1] = before, beforeThat
	require.NoError(t, d.Tend(t.Context()))
	require.NoError(t, d.Follow(t.Context()))
	set(1, "orders", admin.Policy{})
	move("orders", 1)
	require.Empty(t, inForce(0), "it was resumed meanwhile")
	require.Equal(t, bills, inForce(1)["bills"])
}

// A drained database has no timer, and no letter that can be replayed, and its targets go on elsewhere.
func TestTimersAndLettersFollow(t *testing.T) {
	d := open(t, 2)
	every := &schemas.Request{Op: schemas.OpTimer, Topic: "orders", ID: "t", Version: schemas.NoVersion, Accepted: clock, Settings: schemas.DefaultSettings()}
	every.Timer.Every = time.Hour
	require.NoError(t, d.store(t, 0, 0, task.Change{Seq: task.Seq(d.sources[0].ID, d.sources[0].Next), Request: every}))
	h := handle.Of(d.stores[0])
	err := h.Transact(t.Context(), func(tx *sql.Tx) error {
		return h.InsertDead(t.Context(), tx, []*task.DeadLetter{
			{Seq: task.Seq(d.sources[0].ID, 7), Kind: schemas.KindExpired, Topic: "orders", TaskID: "x", Body: schemas.EncodeBody(nil, nil, nil, nil, schemas.DefaultSettings())},
			{Seq: task.Seq(d.sources[0].ID, 8), Kind: schemas.KindRejected, Topic: "orders", TaskID: "y"},
		})
	})
	require.NoError(t, err)
	_, err = d.Move(t.Context(), orders)
	require.NoError(t, err)
	for n, want := range [][]string{{"y"}, {"x"}} {
		all, err := lettertest.All(t.Context(), letters.New(d.stores[n]), letters.Filter{})
		require.NoError(t, err)
		var ids []string
		for _, l := range all {
			ids = append(ids, l.TaskID)
		}
		require.Equal(t, want, ids)
		page, err := look.New(d.stores[n]).ListTimers(t.Context(), look.TimerFilter{})
		require.NoError(t, err)
		require.Len(t, page.Timers, n)
	}
	m, err := d.Databases[1].Map(t.Context())
	require.NoError(t, err)
	require.Nil(t, m.Following())
}

// A request about a timer that has not followed yet has it follow at once.
func TestATimerThatIsAskedFor(t *testing.T) {
	d := open(t, 2)
	every := &schemas.Request{Op: schemas.OpTimer, Topic: "orders", ID: "t", Version: schemas.NoVersion, Accepted: clock, Settings: schemas.DefaultSettings()}
	every.Timer.Every = time.Hour
	require.NoError(t, d.store(t, 0, 0, task.Change{Seq: task.Seq(d.sources[0].ID, d.sources[0].Next), Request: every}))
	rule := orders
	rule.N, rule.Token = 1, "0123456789abcdef"
	for _, n := range []int{1, 0} {
		_, err := d.Databases[n].Announce(t.Context(), rule, 0)
		require.NoError(t, err)
	}
	_, err := d.Databases[0].Leave(t.Context(), rule.Token)
	require.NoError(t, err)
	require.NoError(t, d.Tend(t.Context()))
	m, err := d.Databases[1].Map(t.Context())
	require.NoError(t, err)
	known, err := d.Pull(t.Context(), *m.Following(), [][16]byte{task.Ident("orders", "t")})
	require.NoError(t, err)
	require.True(t, known)
	got, err := look.New(d.stores[1]).GetTimer(t.Context(), "orders", "t")
	require.NoError(t, err)
	require.Equal(t, int64(clock), got.Next)
}

// The new home has passed records that the former one has not stored yet: they stay the former
// one's, so it must store them before the targets leave.
func TestAFormerHomeThatIsBehindIsWaitedFor(t *testing.T) {
	d := open(t, 2)
	require.NoError(t, d.store(t, 1, d.version(t, 1)))
	bound, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := d.Move(bound, orders)
	require.ErrorContains(t, err, "database 0 has stored in/0 up to offset 0, and 1 is needed")
	require.Empty(t, d.rules(t, 0))
	require.Empty(t, d.rules(t, 1), "the announcement is taken back")
	require.NoError(t, d.store(t, 0, 0))
	_, err = d.Move(t.Context(), orders)
	require.NoError(t, err)
}

func TestWhatAMoveHasLeftIsTended(t *testing.T) {
	rule := orders
	rule.N, rule.Token = 1, "0123456789abcdef"
	t.Run("before the targets left", func(t *testing.T) {
		d := open(t, 2)
		for _, n := range []int{1, 0} {
			_, err := d.Databases[n].Announce(t.Context(), rule, 0)
			require.NoError(t, err)
		}
		_, err := d.Move(t.Context(), orders)
		require.ErrorIs(t, err, shards.ErrMoving)
		require.NoError(t, d.Tend(t.Context()))
		require.Len(t, d.rules(t, 0), 1, "it may be under way")
		d.ahead = time.Minute
		require.NoError(t, d.Tend(t.Context()))
		require.Empty(t, d.rules(t, 0))
		require.Empty(t, d.rules(t, 1))
		_, err = d.Databases[0].Leave(t.Context(), rule.Token)
		require.ErrorIs(t, err, shards.ErrWithdrawn, "whoever has announced it comes too late")
	})
	t.Run("after they left", func(t *testing.T) {
		d := open(t, 3)
		for _, n := range []int{1, 0} {
			_, err := d.Databases[n].Announce(t.Context(), rule, 0)
			require.NoError(t, err)
		}
		held, err := d.Databases[0].Leave(t.Context(), rule.Token)
		require.NoError(t, err)
		gone, err := d.Databases[0].Withdraw(t.Context(), rule.Token)
		require.NoError(t, err)
		require.False(t, gone)
		require.NoError(t, d.Tend(t.Context()))
		for n := range d.stores {
			require.Equal(t, []shardmap.Rule{held}, d.rules(t, n))
		}
	})
	t.Run("while the new home is away", func(t *testing.T) {
		d := open(t, 2)
		for _, n := range []int{1, 0} {
			_, err := d.Databases[n].Announce(t.Context(), rule, 0)
			require.NoError(t, err)
		}
		d.ahead = time.Minute
		away := d.Databases[1]
		delete(d.Databases, 1)
		require.NoError(t, d.Tend(t.Context()))
		require.Empty(t, d.rules(t, 0))
		d.Databases[1] = away
		require.NoError(t, d.Tend(t.Context()))
		require.Empty(t, d.rules(t, 1))
	})
	t.Run("while the former home is away", func(t *testing.T) {
		d := open(t, 2)
		_, err := d.Databases[1].Announce(t.Context(), rule, 0)
		require.NoError(t, err)
		d.ahead = time.Minute
		delete(d.Databases, 0)
		require.ErrorContains(t, d.Tend(t.Context()), "database 0, which knows whether its targets have left, does not answer")
		require.Len(t, d.rules(t, 1), 1)
	})
}

// Of two moves at once one goes on, also where they are between other databases: else each would be the next rule.
func TestTwoMovesBetweenOtherDatabases(t *testing.T) {
	d := open(t, 4)
	for _, shard := range []int{1, 2} {
		_, err := d.Move(t.Context(), shardmap.Rule{Pattern: fmt.Sprint("t", shard), Former: 0, Shard: shard})
		require.NoError(t, err)
	}
	errs := make(chan error)
	for _, rule := range []shardmap.Rule{{Pattern: "t1", Former: 1, Shard: 0}, {Pattern: "t2", Former: 2, Shard: 3}} {
		go func() {
			_, err := d.Move(t.Context(), rule)
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, shards.ErrMoving)
		}
	}
	require.NoError(t, d.Tend(t.Context()))
	for n := range d.stores {
		require.Equal(t, d.rules(t, 0), d.rules(t, n))
	}
	rule := shardmap.Rule{N: len(d.rules(t, 0)) + 1, Pattern: "t1", Former: 1, Shard: 3, Token: "0123456789abcdef"}
	_, err := d.Databases[0].Announce(t.Context(), rule, 0) // and whoever moves them is killed
	require.NoError(t, err)
	d.ahead = time.Minute
	require.NoError(t, d.Tend(t.Context()))
	for n := range d.stores {
		require.Len(t, d.rules(t, n), rule.N-1)
	}
}

// A move that stood still while its announcement was taken back does not go on: the new home has passed records meanwhile.
func TestAMoveThatStoodStillDoesNotGoOn(t *testing.T) {
	d := open(t, 2)
	before, err := d.Databases[0].Map(t.Context())
	require.NoError(t, err)
	rule := orders
	rule.N, rule.Token = 1, "0123456789abcdef"
	_, err = d.Databases[1].Announce(t.Context(), rule, 0)
	require.NoError(t, err)
	d.ahead = time.Minute
	require.NoError(t, d.Tend(t.Context()))
	require.Empty(t, d.rules(t, 1))
	_, err = d.Databases[0].Announce(t.Context(), rule, before.Version)
	require.ErrorIs(t, err, shards.ErrMoving)
}

// The former home is away before it was asked: the new one goes on.
func TestAMoveWhoseFormerHomeGoesAway(t *testing.T) {
	d := open(t, 2)
	require.NoError(t, d.store(t, 1, d.version(t, 1))) // it waits for the former home
	go func() {
		time.Sleep(200 * time.Millisecond)
		_ = d.stores[0].Close()
	}()
	_, err := d.Move(t.Context(), orders)
	require.Error(t, err)
	require.Empty(t, d.rules(t, 1))
}

// A database that was set back takes from the others what it has forgotten, with the same cuts.
func TestADatabaseThatForgotARuleTakesItFromTheOthers(t *testing.T) {
	d := open(t, 2)
	held, err := d.Move(t.Context(), orders)
	require.NoError(t, err)
	fresh := open(t, 1)
	d.Databases[0] = fresh.Databases[0]
	require.NoError(t, d.Tend(t.Context()))
	require.NoError(t, d.Follow(t.Context()), "what had left is there again")
	require.Equal(t, []shardmap.Rule{held}, fresh.rules(t, 0))
}

// A database that joins begins where the installation stands: with its rules, and where the first one has stored the intake.
func TestADatabaseJoins(t *testing.T) {
	d := open(t, 2)
	require.NoError(t, d.store(t, 0, d.version(t, 0)))
	d.schedule(t, 0, "bills")
	held, err := d.Move(t.Context(), orders)
	require.NoError(t, err)
	home, err := d.stores[0].Installation(t.Context())
	require.NoError(t, err)
	stand, err := d.Databases[0].Stand(t.Context())
	require.NoError(t, err)

	cfg := store.Config{DSN: "sqlite:" + t.TempDir() + "/notyet.db"}
	if os.Getenv("NOTYET_MYSQL_DSN") != "" {
		cfg.DSN = mysqltest.Fresh(t)
	}
	st := migrated(t, cfg)
	third := shards.New(st)
	for range 2 { // again, after it was stopped on the way
		require.NoError(t, third.Join(t.Context(), 2, home, stand))
	}
	require.ErrorIs(t, d.Databases[0].Join(t.Context(), 1, home, stand), shards.ErrOtherShard, "a copy of the first one has its tasks")
	number, of, err := third.Number(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{2, home}, []any{number, of})
	require.Equal(t, []shardmap.Rule{held}, func() []shardmap.Rule { m, err := third.Map(t.Context()); require.NoError(t, err); return m.Rules }())
	sources, err := intake.New(st).Sources(t.Context())
	require.NoError(t, err)
	require.Len(t, sources, 1)
	require.Equal(t, d.sources[0].ID, sources[0].ID)
	require.Equal(t, int64(2), sources[0].Next)

	_, err = d.Databases[1].Announce(t.Context(), shardmap.Rule{N: 2, Pattern: "x", Former: 1, Shard: 0, Token: "0123456789abcdef"}, 0)
	require.NoError(t, err)
	_, err = d.Databases[1].Stand(t.Context())
	require.ErrorIs(t, err, shards.ErrMoving, "a move may be taken back")
}

// From the first database's joining on, programs that know of one database only are refused.
func TestWhoKnowsADatabase(t *testing.T) {
	d := open(t, 1)
	home, err := d.stores[0].Installation(t.Context())
	require.NoError(t, err)
	a, s := admin.New(d.stores[0]), d.Databases[0]
	require.NoError(t, s.KnownToAll(t.Context(), 1))
	require.NoError(t, a.Beat(t.Context(), admin.Service{ID: "host-1", Kind: "all"}))
	require.NoError(t, a.Beat(t.Context(), admin.Service{ID: "host-2", Kind: "all", Databases: 2}))
	err = s.KnownToAll(t.Context(), 1)
	require.ErrorIs(t, err, shards.ErrUnknowing)
	require.ErrorContains(t, err, "host-1: give them all entries of mysql.shards")
	require.ErrorContains(t, s.KnownToAll(t.Context(), 2), "host-1, host-2")
	d.ahead += 16 * time.Second
	require.NoError(t, s.KnownToAll(t.Context(), 1), "the dead do not count for long")
	words, err := d.stores[0].Required(t.Context())
	require.NoError(t, err)
	require.Empty(t, words)
	require.NoError(t, s.Join(t.Context(), 0, home, shards.Stand{}))
	words, err = d.stores[0].Required(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"shards"}, words)
	require.ErrorIs(t, d.store(t, 0, 0), shards.ErrOneOfSeveral, "a scanner that stood still meanwhile takes all targets")
	m, err := s.Map(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.store(t, 0, m.Version))
}
