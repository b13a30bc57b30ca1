package shards_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

var part = shardmap.Partition{Topic: "in", TopicID: [16]byte{1}}

func (d *databases) dueOf(t *testing.T, n int, topic, id string) {
	src := d.sources[n]
	r := &schemas.Request{Topic: topic, ID: id, GivenID: true, Version: schemas.NoVersion, Due: clock + 3_600_000, Settings: schemas.DefaultSettings()}
	require.NoError(t, d.store(t, n, 0, task.Change{Seq: task.Seq(src.ID, src.Next), Request: r}))
}

func (d *databases) allMove(t *testing.T, rules ...shardmap.Rule) {
	for i, r := range rules {
		for n := range d.stores {
			d.readAgain(t, n, 10*(i+1))
		}
		_, err := d.Move(t.Context(), r)
		require.NoError(t, err)
	}
}

// Orders leave 0, then bills come. Database 0 is set back to before both, and has to read a request about orders once more. It must not
// stay in the line of 0.
func TestASetBackHomeKeepsNothingWhereOtherTargetsCameBack(t *testing.T) {
	d := open(t, 2)
	d.due(t, 0, "a", clock+3_600_000) // offset 0, after the backup
	d.allMove(t, orders, shardmap.Rule{Pattern: "bills", Former: 1, Shard: 0})
	require.Equal(t, []string{"a"}, d.pending(t, 1))

	d.setBack(t, 0)
	require.NoError(t, d.Tend(t.Context()))         // reconcile: bring
	require.NoError(t, d.FollowAtRest(t.Context())) // reconcile: bring
	m, err := d.Databases[0].Map(t.Context())
	require.NoError(t, err)
	shard, decided := m.At("orders", part, 0)
	require.Equal(t, []any{0, true}, []any{shard, decided}, "so the scanner of 0 decides it")
	d.due(t, 0, "a", clock+3_600_000)               // CatchUp
	require.NoError(t, d.FollowAtRest(t.Context())) // reconcile: at the end
	require.Equal(t, []string{"a"}, d.pending(t, 1))
	require.Empty(t, d.pending(t, 0), "the same task stands in two lines")
}

// Orders come to 1, all leave, bills come. Database 1 is set back to before all. A request about bills is read before rule 2 is followed:
// the tasks of bills are pulled, and rule 2 must not take them out again.
func TestAnOlderRuleLeavesWhatALaterOneBrought(t *testing.T) {
	d := open(t, 2)
	d.dueOf(t, 0, "bills", "b")
	d.allMove(t, orders, shardmap.Rule{Pattern: "*", Former: 1, Shard: 0}, shardmap.Rule{Pattern: "bills", Former: 0, Shard: 1})
	require.Equal(t, []string{"b"}, d.pending(t, 1))

	d.setBack(t, 1)
	require.NoError(t, d.Tend(t.Context()))
	m, err := d.Databases[1].Map(t.Context())
	require.NoError(t, err)
	shard, decided := m.At("bills", part, 1000)
	require.Equal(t, []any{1, true}, []any{shard, decided}, "so the scanner of 1 decides the next request, and pulls")
	for _, r := range m.Rules { // sharer.pull
		if r.Held && !r.Followed && r.Shard == 1 && r.Matches("bills") {
			done, err := d.Pull(t.Context(), r, [][16]byte{task.Ident("bills", "new")})
			require.NoError(t, err)
			require.True(t, done)
		}
	}
	require.Equal(t, []string{"b"}, d.pending(t, 1))
	d.readAgain(t, 1, 30)
	require.NoError(t, d.Follow(t.Context()))
	require.Equal(t, []string{"b"}, append(d.pending(t, 0), d.pending(t, 1)...), "the task is in no line")
}

// Orders come to 1, leave, and come again. Database 1 is set back to before all while the last rule is still on the way: the earliest goes first, or what the last one brings leaves again.
func TestRulesFollowInTheirOrder(t *testing.T) {
	for range 12 {
		d := open(t, 2)
		d.due(t, 0, "a", clock+3_600_000)
		d.allMove(t, orders, shardmap.Rule{Pattern: "orders", Former: 1, Shard: 0})
		for n := range d.stores {
			d.readAgain(t, n, 30)
		}
		rule := orders
		rule.N, rule.Token = 3, "0123456789abcdef"
		for _, n := range []int{0, 1} {
			_, err := d.Databases[n].Announce(t.Context(), rule, 0)
			require.NoError(t, err)
		}
		_, err := d.Databases[0].Leave(t.Context(), rule.Token)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, d.pending(t, 0))
		d.setBack(t, 1)
		require.NoError(t, d.Tend(t.Context()))         // reconcile: bring
		require.NoError(t, d.FollowAtRest(t.Context())) // reconcile: bring
		d.readAgain(t, 1, 30)
		require.NoError(t, d.FollowAtRest(t.Context()))
		require.Equal(t, []string{"a"}, append(d.pending(t, 0), d.pending(t, 1)...), "the task is in no line")
	}
}

// A new home that was set back to before several moves of paused targets gets all its rules after one wait: a service tends the rules
// for 30 s at most.
func TestRulesOfPausedTargetsComeTogether(t *testing.T) {
	d := open(t, 2)
	d.readAgain(t, 0, 9)
	d.readAgain(t, 1, 9)
	for _, topic := range []string{"p1", "p2", "p3"} {
		_, err := admin.New(d.stores[0]).SetPolicy(t.Context(), topic, clock, func(admin.Policy) admin.Policy { return admin.Policy{Topic: topic, Paused: true} })
		require.NoError(t, err)
		_, err = d.Move(t.Context(), shardmap.Rule{Pattern: topic, Former: 0, Shard: 1})
		require.NoError(t, err)
	}
	d.setBack(t, 1)
	began := time.Now()
	require.NoError(t, d.Tend(t.Context()))
	t.Logf("3 rules took %v", time.Since(began))
	require.Less(t, time.Since(began), 2*time.Second)
}

// A former home is set back to before its targets left it. What falls due there soon leaves its line before many timers do.
func TestWhatIsDueSoonLeavesASetBackHomeFirst(t *testing.T) {
	d := open(t, 2)
	d.allMove(t, orders)
	d.setBack(t, 0)
	for i := range 300 {
		r := schemas.NewRequest(schemas.OpTimer, "orders", fmt.Sprint("t", i))
		r.Accepted, r.Timer = clock, schemas.Timer{Every: time.Hour, Timezone: "UTC"}
		src := d.sources[0]
		require.NoError(t, d.store(t, 0, 0, task.Change{Seq: task.Seq(src.ID, src.Next), Request: &r}))
	}
	d.due(t, 0, "cancelled", clock+1000)
	require.NoError(t, d.Tend(t.Context()))
	done := make(chan error, 1)
	go func() { done <- d.FollowAtRest(t.Context()) }()
	require.Eventually(t, func() bool { return len(d.pending(t, 0)) == 0 }, time.Minute, time.Millisecond)
	page, err := look.New(d.stores[0]).ListTimers(t.Context(), look.TimerFilter{Limit: 1})
	require.NoError(t, err)
	require.NotEmpty(t, page.Timers)
	require.NoError(t, <-done)
}

// A former home forgets what had left, after it has said up to which number: a request in the new home waits.
func TestNothingIsDecidedWithoutWhatTheFormerHomeForgot(t *testing.T) {
	d := open(t, 2)
	d.due(t, 0, "a", clock+3_600_000)
	for n := range d.stores {
		d.readAgain(t, n, 10)
	}
	rule := orders
	rule.N, rule.Token = 1, "0123456789abcdef"
	for _, n := range []int{0, 1} {
		_, err := d.Databases[n].Announce(t.Context(), rule, 0)
		require.NoError(t, err)
	}
	page, err := look.New(d.stores[0]).List(t.Context(), look.ListFilter{})
	require.NoError(t, err)
	_, err = intake.Moves{Intake: intake.New(d.stores[0])}.TakeOut(t.Context(), d.asked(t, rule), 0, []int64{page.Tasks[0].Seq})
	require.NoError(t, err)
	held, err := d.Databases[0].Leave(t.Context(), rule.Token)
	require.NoError(t, err)
	require.NoError(t, d.Tend(t.Context()))
	_, err = handle.Of(d.stores[0]).Exec(t.Context(), "DELETE FROM leaving")
	require.NoError(t, err)
	_, err = d.Pull(t.Context(), held, [][16]byte{task.Ident("orders", "a")})
	require.ErrorIs(t, err, intake.ErrForgotten)
}

// asked is a move, as a mover knows it that has just asked the former home.
func (d *databases) asked(t *testing.T, rule shardmap.Rule) intake.Following {
	life, err := intake.Moves{Intake: intake.New(d.stores[rule.Former])}.Life(t.Context())
	require.NoError(t, err)
	return intake.Following{N: rule.N, Token: rule.Token, Life: life}
}
