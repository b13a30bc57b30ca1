package shards_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/task"
)

const clock = 1_700_000_000_000

// due stores a task of the target orders in a database.
func (d *databases) due(t *testing.T, n int, id string, due int64) {
	src := d.sources[n]
	r := &schemas.Request{Topic: "orders", ID: id, GivenID: true, Version: schemas.NoVersion, Due: due, Settings: schemas.DefaultSettings()}
	require.NoError(t, d.store(t, n, 0, task.Change{Seq: task.Seq(src.ID, src.Next), Request: r}))
}

// pending returns the ids of the unfinished tasks in a database, the next due first.
func (d *databases) pending(t *testing.T, n int) (ids []string) {
	page, err := look.New(d.stores[n]).List(t.Context(), look.ListFilter{})
	require.NoError(t, err)
	for _, v := range page.Tasks {
		ids = append(ids, v.ID)
	}
	return ids
}

// A target does not move while a delivery of it is under way: the order of a key would not hold. Its tasks are in their line again then.
func TestATargetWithADeliveryUnderWayStays(t *testing.T) {
	d := open(t, 2)
	d.due(t, 0, "claimed", clock+1000)
	d.due(t, 0, "near", clock+9000)
	d.due(t, 0, "far", clock+3_600_000)
	d.claim(t)
	_, err := d.Move(t.Context(), orders)
	require.ErrorIs(t, err, intake.ErrUnderWay)
	require.ErrorContains(t, err, "a delivery is under way: of the target orders")
	require.Equal(t, []string{"claimed", "near", "far"}, d.pending(t, 0))
	for n := range d.stores {
		require.Empty(t, d.rules(t, n))
	}
	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "bills", Former: 0, Shard: 1})
	require.NoError(t, err, "another target")
}

// A mover dies once the targets have left. Anybody has their tasks follow, and no other move begins before.
func TestTasksFollowAfterTheirMoverHasDied(t *testing.T) {
	d := open(t, 3)
	for _, id := range []string{"c", "a", "b"} {
		d.due(t, 0, id, clock+3_600_000+int64(id[0]))
	}
	rule := orders
	rule.N, rule.Token = 1, "0123456789abcdef"
	for _, n := range []int{1, 0} {
		_, err := d.Databases[n].Announce(t.Context(), rule, 0)
		require.NoError(t, err)
	}
	_, err := d.Databases[0].Leave(t.Context(), rule.Token)
	require.NoError(t, err)
	require.NoError(t, d.Tend(t.Context()))
	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "bills", Former: 0, Shard: 2})
	require.ErrorIs(t, err, shards.ErrMoving)
	m, err := d.Databases[1].Map(t.Context())
	require.NoError(t, err)
	far, err := d.Progress(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 3}, []int64{far.Done, far.Total})

	known, err := d.Pull(t.Context(), *m.Following(), [][16]byte{task.Ident("orders", "c")})
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, []string{"c"}, d.pending(t, 1), "asked for")
	require.NoError(t, d.TakeUp(t.Context()))
	require.Equal(t, []string{"a", "b", "c"}, d.pending(t, 1))
	require.Empty(t, d.pending(t, 0))
	for n := range d.stores {
		require.True(t, d.rules(t, n)[0].Followed, "database %d", n)
	}
	for range 3 { // it has to store what database 0 has passed
		require.NoError(t, d.store(t, 1, 0))
	}
	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "*", Former: 1, Shard: 0})
	require.NoError(t, err, "it is turned round")
	require.Equal(t, []string{"a", "b", "c"}, d.pending(t, 0))
}

// The former home does not answer: nobody decides about an id that it may have.
func TestAnIDWhoseFormerHomeIsAway(t *testing.T) {
	d := open(t, 2)
	rule := orders
	rule.N, rule.Token, rule.Held = 1, "0123456789abcdef", true
	require.NoError(t, d.Databases[1].Take(t.Context(), []shardmap.Rule{rule}))
	delete(d.Databases, 0)
	known, err := d.Pull(t.Context(), rule, [][16]byte{task.Ident("orders", "a")})
	require.ErrorIs(t, err, shards.ErrFormerAway)
	require.False(t, known)
	require.ErrorIs(t, d.Follow(t.Context()), shards.ErrFormerAway)
}

// A database is set back to before its targets left. Their tasks, which others have by now, leave its line, and go nowhere.
func TestAFormerHomeThatIsSetBackForgetsWhatHasLeft(t *testing.T) {
	d := open(t, 2)
	d.due(t, 0, "a", clock+3_600_000)
	_, err := d.Move(t.Context(), orders)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, d.pending(t, 1))
	d.setBack(t, 0)
	require.NoError(t, d.Tend(t.Context()))
	bound, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, d.Follow(bound), context.DeadlineExceeded, "it reads its records again first")
	require.NoError(t, d.FollowAtRest(t.Context()))
	require.False(t, d.rules(t, 0)[0].Followed)
	d.due(t, 0, "a", clock+3_600_000)
	d.due(t, 0, "claimed", clock+1000)
	d.claim(t)
	require.Equal(t, []string{"claimed", "a"}, d.pending(t, 0))
	require.NoError(t, d.FollowAtRest(t.Context()))
	require.Empty(t, d.pending(t, 0), "no dispatcher is needed")
	require.Equal(t, []string{"a"}, d.pending(t, 1))
	require.True(t, d.rules(t, 0)[0].Followed)
}

// claim has a dispatcher claim the next two seconds of the first database.
func (d *databases) claim(t *testing.T) {
	line, slots := intake.New(d.stores[0]).Line(), []int{0, 1}
	epoch, err := line.NextEpoch(t.Context())
	require.NoError(t, err)
	_, err = line.Acquire(t.Context(), slots, epoch, "me")
	require.NoError(t, err)
	require.NoError(t, line.Claim(t.Context(), 0, slots, []int64{0, 0}, epoch, clock+2000))
}

// setBack has a database forget all.
func (d *databases) setBack(t *testing.T, n int) {
	fresh := open(t, 1)
	d.Databases[n], d.stores[n], d.sources[n] = fresh.Databases[0], fresh.stores[0], fresh.sources[0]
}

// readAgain has a database store what there was before a move.
func (d *databases) readAgain(t *testing.T, n, to int) {
	for d.sources[n].Next < int64(to) {
		require.NoError(t, d.store(t, n, d.version(t, n)))
	}
}

// The new home is set back to before the tasks arrived. They follow once more.
func TestANewHomeThatIsSetBackGetsTasksAgain(t *testing.T) {
	d := open(t, 2)
	d.due(t, 0, "a", clock+3_600_000)
	_, err := d.Move(t.Context(), orders)
	require.NoError(t, err)
	d.setBack(t, 1)
	require.NoError(t, d.Tend(t.Context()))
	require.NoError(t, d.Follow(t.Context()))
	require.Equal(t, []string{"a"}, d.pending(t, 1))
	require.True(t, d.rules(t, 1)[0].Followed)
}

// Cancels of many hold for tasks where they were listed: none leaves before those that are published are decided.
func TestAMoveWaitsForPublishedCancels(t *testing.T) {
	d := open(t, 2)
	d.due(t, 0, "near", clock+1000)
	end := int64(2)
	ends := func(context.Context) (map[shardmap.Partition]int64, error) {
		return map[shardmap.Partition]int64{{Topic: "in", TopicID: [16]byte{1}}: end}, nil
	}
	bound, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := d.MoveBehind(bound, orders, ends)
	require.ErrorIs(t, err, shards.ErrMoving)
	require.ErrorContains(t, err, "database 0 has stored in/0 up to offset 1, and 2 is needed")
	require.Empty(t, d.rules(t, 0))
	require.Equal(t, []string{"near"}, d.pending(t, 0))
	end = 1
	_, err = d.MoveBehind(t.Context(), orders, ends)
	require.NoError(t, err)
}

// And where other targets, which have nothing to do with them, have left it since.
func TestANewHomeThatIsSetBackGetsTasksAgainAfterOthersLeft(t *testing.T) {
	d := open(t, 2)
	d.due(t, 0, "a", clock+3_600_000)
	_, err := d.Move(t.Context(), orders)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, d.store(t, 1, 0))
	}
	_, err = d.Move(t.Context(), shardmap.Rule{Pattern: "bills", Former: 1, Shard: 0})
	require.NoError(t, err)
	d.setBack(t, 1)
	require.NoError(t, d.Tend(t.Context()))
	d.readAgain(t, 1, 3)
	require.NoError(t, d.Follow(t.Context()))
	require.Equal(t, []string{"a"}, d.pending(t, 1))
	for _, r := range d.rules(t, 1) {
		require.True(t, r.Followed, r.Pattern)
	}
}

// Tasks follow while a database does not answer that has nothing to do with them.
func TestTasksFollowWithoutAnotherDatabase(t *testing.T) {
	d := open(t, 3)
	d.due(t, 0, "a", clock+3_600_000)
	rule := orders
	rule.N, rule.Token = 1, "0123456789abcdef"
	for _, n := range []int{1, 0} {
		_, err := d.Databases[n].Announce(t.Context(), rule, 0)
		require.NoError(t, err)
	}
	_, err := d.Databases[0].Leave(t.Context(), rule.Token)
	require.NoError(t, err)
	require.NoError(t, d.stores[2].Close())
	for len(d.pending(t, 1)) == 0 { // the new home takes the rule first
		require.NoError(t, d.TakeUp(t.Context()))
	}
	require.Empty(t, d.pending(t, 0))
	require.True(t, d.rules(t, 0)[0].Followed)
	require.True(t, d.rules(t, 1)[0].Followed)
	require.Error(t, d.Follow(t.Context()), "the third may know more")
}

// The new home is set back, and other targets of the rule live in the former one again: they stay, and what had left follows once more.
func TestWhatHasComeBackStaysWhereTheNewHomeIsSetBack(t *testing.T) {
	d := open(t, 2)
	d.due(t, 0, "a", clock+3_600_000)
	for n := range d.stores { // each has stored what the others have passed
		d.readAgain(t, n, 9)
	}
	for _, r := range []shardmap.Rule{orders, {Pattern: "*", Former: 1, Shard: 0}, orders} {
		_, err := d.Move(t.Context(), r)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"a"}, d.pending(t, 1))
	d.setBack(t, 0)
	require.NoError(t, d.Tend(t.Context()))
	d.readAgain(t, 0, 9)
	require.NoError(t, d.Follow(t.Context()))
	require.Equal(t, []string{"a"}, d.pending(t, 1))
	require.Empty(t, d.pending(t, 0))
	for n := range d.stores {
		for _, r := range d.rules(t, n) {
			require.True(t, r.Followed, "database %d, rule %d", n, r.N)
		}
	}
}

// A database forgets a move. Others know of it, also while it is only announced: then the former home knows.
func TestAMoveThatADatabaseHasForgotten(t *testing.T) {
	forgotten := func(d *databases, n int) bool {
		m, err := d.Databases[n].Map(t.Context())
		require.NoError(t, err)
		return d.Forgotten(t.Context(), n, m)
	}
	rule := orders
	rule.N, rule.Token = 1, "0123456789abcdef"
	for _, n := range []int{0, 1} {
		d := open(t, 3)
		_, err := d.Databases[1].Announce(t.Context(), rule, 0)
		require.NoError(t, err)
		require.False(t, forgotten(d, 1))
		require.False(t, forgotten(d, 0), "it is asked last")
		_, err = d.Databases[0].Announce(t.Context(), rule, 0)
		require.NoError(t, err)
		require.False(t, forgotten(d, n))
		before := d.Databases[n]
		d.setBack(t, n)
		require.Equal(t, n == 1, forgotten(d, n), "database %d, announced", n)
		d.Databases[n] = before
		_, err = d.Databases[0].Leave(t.Context(), rule.Token)
		require.NoError(t, err)
		require.NoError(t, d.Tend(t.Context()))
		d.setBack(t, n)
		require.True(t, forgotten(d, n), "database %d", n)
		require.False(t, forgotten(d, 2))
		require.NoError(t, d.Tend(t.Context()))
		require.False(t, forgotten(d, n))
	}
}
