package shards_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/task"
)

// joined is an installation of n databases that know their numbers.
func joined(t *testing.T, n int) *databases {
	d := open(t, 1)
	d.join(t, 0)
	for k := 1; k < n; k++ {
		d.join(t, k)
	}
	return d
}

// join has a database join, after the last one an empty one.
func (d *databases) join(t *testing.T, n int) {
	home, err := d.stores[0].Installation(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.Databases[0].Join(t.Context(), 0, home, shards.Stand{}))
	if n == 0 {
		return
	}
	stand, err := d.Databases[0].Stand(t.Context())
	require.NoError(t, err)
	st := d.one(t)
	require.NoError(t, shards.New(st).Join(t.Context(), n, home, stand))
	src, err := intake.New(st).Source(t.Context(), "in", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	d.stores, d.sources, d.Databases[n] = append(d.stores[:n], st), append(d.sources[:n], src), shards.New(st)
}

// pass has a database store a record, of itself or of others, by the rules of now.
func (d *databases) pass(t *testing.T, n int, changes ...task.Change) {
	m, err := d.Databases[n].Map(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.store(t, n, m.Version, changes...))
}

// level has all databases store as far as the furthest one.
func (d *databases) level(t *testing.T) {
	furthest := slices.MaxFunc(d.sources, func(a, b intake.Source) int { return int(a.Next - b.Next) }).Next
	for n := range d.Databases {
		for d.sources[n].Next < furthest {
			d.pass(t, n)
		}
	}
}

func (d *databases) has(t *testing.T, n int, id string) {
	src := d.sources[n]
	r := &schemas.Request{Topic: "orders", ID: id, GivenID: true, Version: schemas.NoVersion, Due: clock + 3_600_000, Settings: schemas.DefaultSettings()}
	d.pass(t, n, task.Change{Seq: task.Seq(src.ID, src.Next), Request: r})
}

// toAndFro has orders live in a database for a while, where it gets a task, and then drains that one.
func (d *databases) toAndFro(t *testing.T, n int) {
	_, err := d.Move(t.Context(), shardmap.Rule{Pattern: "orders", Former: 0, Shard: n})
	require.NoError(t, err)
	d.has(t, n, "a")
	d.level(t)
	require.ErrorContains(t, d.Remove(t.Context(), n, true), "targets orders live there: run notyet shards drain")
	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "*", Former: n, Shard: 0})
	require.NoError(t, err)
	require.NoError(t, d.Follow(t.Context()))
	require.Equal(t, []string{"a"}, d.pending(t, 0))
}

// left says in which databases the removal is in force, as the last rule.
func (d *databases) left(t *testing.T, n int) {
	t.Helper()
	for k := range d.Databases {
		rules := d.rules(t, k)
		last := rules[len(rules)-1]
		require.True(t, last.Removes() && last.Held && last.Followed && last.Shard == n, "database %d: %+v", k, last)
		require.Equal(t, 1, len(slices.DeleteFunc(rules, func(r shardmap.Rule) bool { return !r.Removes() || r.Shard != n })), "database %d", k)
	}
	_, _, err := d.Databases[n].Number(t.Context())
	require.ErrorIs(t, err, shards.ErrRemoved)
}

func TestADrainedDatabaseIsRemoved(t *testing.T) {
	d := joined(t, 3)
	d.toAndFro(t, 2)
	err := d.Remove(t.Context(), 2, false)
	require.ErrorIs(t, err, shards.ErrStays)
	require.ErrorContains(t, err, "it has tasks that have left, which a restored database would get again: they go after their retention, or at once with --forget-history")
	ctx := admin.Auditing(admin.WithActor(t.Context(), admin.Actor{Who: "me", Via: admin.ViaCLI}), admin.AuditEntry{What: "remove database"})
	for range 2 { // again, after it was done
		require.NoError(t, d.Remove(ctx, 2, true))
		d.left(t, 2)
	}
	audit, err := look.New(d.stores[0]).ListAudit(t.Context(), look.AuditFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, audit.Entries, 1)

	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "orders", Former: 0, Shard: 2})
	require.ErrorIs(t, err, shards.ErrRemoved)
	delete(d.Databases, 2)
	require.NoError(t, d.Tend(t.Context()))
	for n := range d.Databases {
		require.Len(t, d.rules(t, n), 3, "what could not move there is taken back")
		number, _, err := d.Databases[n].Number(t.Context())
		require.NoError(t, err)
		require.Equal(t, n, number)
	}
	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "orders", Former: 0, Shard: 1})
	require.NoError(t, err)
	require.NoError(t, d.Follow(t.Context()))
	require.Equal(t, []string{"a"}, d.pending(t, 1))
}

func TestADatabaseThatIsNeededStays(t *testing.T) {
	for name, c := range map[string]struct {
		databases, n int
		have         func(t *testing.T, d *databases)
		why          string
	}{
		"a task":            {2, 1, func(t *testing.T, d *databases) { d.has(t, 1, "a") }, "it has tasks that have not ended: run notyet shards drain 1 --wait"},
		"a later database":  {3, 1, func(t *testing.T, d *databases) { d.toAndFro(t, 2) }, "database 2 is behind it, and the numbers are places in mysql.shards: remove that one first"},
		"a running service": {2, 1, func(t *testing.T, d *databases) { d.serve(t, 0, 3) }, "services are alive that know databases behind it: host-1"},
		"a running operation": {2, 1, func(t *testing.T, d *databases) {
			_, err := admin.OperationsIn(d.stores[0]).Begin(t.Context(), admin.Operation{What: "cancel", Progress: admin.Progress{Result: []byte("{}")}}, func(int64) ([]byte, error) { return []byte("{}"), nil })
			require.NoError(t, err)
		}, "an operation is running"},
		"a home that is behind": {2, 1, func(t *testing.T, d *databases) {
			d.toAndFro(t, 1)
			d.Databases[0] = open(t, 1).Databases[0] // it is set back
			require.NoError(t, d.Tend(t.Context()))
			require.NoError(t, d.Follow(t.Context()))
		}, "database 0 has stored in/0 up to offset 0, and records before"},
		"an announced move": {3, 2, func(t *testing.T, d *databases) {
			_, err := d.Databases[0].Announce(t.Context(), shardmap.Rule{N: 1, Pattern: "orders", Former: 0, Shard: 2, Token: "0123456789abcdef"}, 0)
			require.NoError(t, err)
		}, "a move under way"},
	} {
		t.Run(name, func(t *testing.T) {
			d := joined(t, c.databases)
			c.have(t, d)
			require.ErrorContains(t, d.Remove(t.Context(), c.n, true), c.why)
			_, _, err := d.Databases[c.n].Number(t.Context())
			require.NoError(t, err)
			for n := range d.Databases {
				require.False(t, slices.ContainsFunc(d.rules(t, n), shardmap.Rule.Removes))
			}
		})
	}
	d := joined(t, 2)
	require.Error(t, d.Remove(t.Context(), 0, true))
	require.Error(t, d.Remove(t.Context(), 2, true))
}

func (d *databases) serve(t *testing.T, n, databases int) {
	require.NoError(t, admin.New(d.stores[n]).Beat(t.Context(), admin.Service{ID: "host-1", Kind: "all", Databases: databases}))
}

// With the second database removed the first one is an installation of its own, until another one joins.
func TestTheHomeIsLeftAlone(t *testing.T) {
	d := joined(t, 2)
	home, err := d.stores[0].Installation(t.Context())
	require.NoError(t, err)
	d.toAndFro(t, 1)
	require.ErrorIs(t, d.store(t, 0, 0), shards.ErrOneOfSeveral)
	require.NoError(t, d.Remove(t.Context(), 1, true))
	alone := func() {
		d.left(t, 1)
		require.NoError(t, d.store(t, 0, 0), "who knows no other database takes all records")
		words, err := d.stores[0].Required(t.Context())
		require.NoError(t, err)
		require.Empty(t, words)
	}
	alone()
	require.ErrorIs(t, d.Databases[1].Join(t.Context(), 1, home, shards.Stand{}), shards.ErrRemoved)
	require.NoError(t, d.Remove(t.Context(), 1, true))
	alone()

	old, oldStore := d.Databases[1], d.stores[1]
	d.join(t, 1)
	require.NoError(t, shards.Databases{0: d.Databases[0], 1: old}.Remove(t.Context(), 1, true), "the old one once more")
	require.ErrorIs(t, d.store(t, 0, 0), shards.ErrOneOfSeveral)
	m, err := d.Databases[0].Map(t.Context())
	require.NoError(t, err)
	require.Len(t, m.Plan(shardmap.Rule{Pattern: "orders", Shard: 1}), 1)
	d.level(t)
	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "orders", Former: 0, Shard: 1})
	require.NoError(t, err)
	require.NoError(t, d.Follow(t.Context()))
	require.Equal(t, []string{"a"}, d.pending(t, 1))
	d.level(t)
	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "*", Former: 1, Shard: 0})
	require.NoError(t, err)
	require.NoError(t, d.Remove(t.Context(), 1, true))
	require.NoError(t, d.store(t, 0, 0))
	require.NoError(t, oldStore.Ping(t.Context()))
}

// Whoever removes a database is killed after any of the steps. The next one comes to the same end.
func TestARemovalThatWasKilled(t *testing.T) {
	for killed := range 4 {
		d := joined(t, 2)
		d.toAndFro(t, 1)
		rule := shardmap.Removal(1)
		rule.N, rule.Token = 3, "0123456789abcdef"
		for i, step := range []func() error{
			func() error { _, err := d.Databases[0].Announce(t.Context(), rule, 0); return err },
			func() error { _, err := d.Databases[1].Announce(t.Context(), rule, 0); return err },
			func() error { _, err := d.Databases[1].Leave(t.Context(), rule.Token); return err },
			func() error { return d.Tend(t.Context()) },
		} {
			if i <= killed {
				require.NoError(t, step())
			}
		}
		if killed < 2 {
			require.ErrorIs(t, d.Remove(t.Context(), 1, true), shards.ErrMoving)
			d.ahead = time.Minute
		}
		require.NoError(t, d.Remove(t.Context(), 1, true))
		d.left(t, 1)
		require.NoError(t, d.store(t, 0, 0))
	}
}

func TestTwoRemoveADatabaseAtOnce(t *testing.T) {
	d := joined(t, 2)
	d.toAndFro(t, 1)
	errs := make(chan error)
	for range 2 {
		go func() { errs <- d.Remove(t.Context(), 1, true) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, shards.ErrMoving)
		}
	}
	require.NoError(t, d.Remove(t.Context(), 1, true))
	d.left(t, 1)
}

// Once a database is gone, nobody waits for it: also not one that is set back to before its targets moved there, or on the way.
func TestADatabaseThatIsSetBackDoesNotWaitForARemovedOne(t *testing.T) {
	d := joined(t, 3)
	d.toAndFro(t, 2)
	moved := d.rules(t, 1)[0]
	require.NoError(t, d.Remove(t.Context(), 2, true))
	delete(d.Databases, 2)
	for _, knew := range [][]shardmap.Rule{nil, {moved}, {func() shardmap.Rule { r := moved; r.Followed = false; return r }()}} {
		fresh := open(t, 1)
		require.NoError(t, fresh.Databases[0].Take(t.Context(), knew))
		d.Databases[0] = fresh.Databases[0]
		require.NoError(t, d.Tend(t.Context()))
		m, err := d.Databases[0].Map(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, m.InForce())
		require.Nil(t, m.Following())
		require.Equal(t, []int{0}, m.Homes("orders"))
	}
}
