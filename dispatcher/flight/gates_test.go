package flight

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// However many targets have limits and held tasks, each of them has its turn, and so has one that was resumed.
func TestEachGateHasItsTurn(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	fl.mu.Lock()
	limited := []admin.Policy{{Topic: "resumed"}}
	for i := range 3 * gatesAtOnce {
		limited = append(limited, admin.Policy{Topic: fmt.Sprint("limited-", i), Rate: 1000})
	}
	for i := range 3 * gatesAtOnce {
		limited = append(limited, admin.Policy{Topic: fmt.Sprint("idle-", i)})
	}
	fl.gates.apply(limited)
	now := time.Now()
	for topic, g := range fl.gates.byTopic {
		g.looked = now.Add(-time.Minute)
		g.behind = !strings.HasPrefix(topic, "idle-")
	}
	fl.mu.Unlock()
	turns := map[string]int{}
	for round := range 6 {
		gates := fl.gates.restless(true)
		require.LessOrEqual(t, len(gates), gatesAtOnce)
		idle := 0
		for _, g := range gates {
			turns[g.Topic]++
			if g.looked = now.Add(time.Duration(round)); !g.behind {
				idle++
			}
		}
		require.LessOrEqual(t, idle, idleAtOnce)
	}
	require.NotZero(t, turns["resumed"])
	for i := range 3 * gatesAtOnce {
		require.NotZero(t, turns[fmt.Sprint("limited-", i)], i)
	}
}

// What was passed over while a slot was away, or about to leave, is looked at again when it is back.
func TestHeldTasksOfASlotThatCameBack(t *testing.T) {
	fl := newFlight(t, Config{})
	limited := []admin.Policy{{Topic: "orders", Rate: 1}}
	passedOver := func() *Gate {
		fl.gates.apply(limited)
		g := fl.gates.byTopic["orders"]
		g.behind, g.after = false, line.HeldPlace{Pos: 7}
		fl.gates.apply(limited)
		require.False(t, g.behind)
		return g
	}
	looksAgain := func(g *Gate) {
		fl.gates.apply(limited)
		require.True(t, g.behind)
		require.Zero(t, g.after)
	}
	g := passedOver()
	fl.Took([]store.Slot{{Slot: 0, Epoch: 5}}, 5, nil, nil)
	looksAgain(g)
	g = passedOver()
	fl.Leavers(nil)
	fl.slots[0].releasing = false // the database keeps it: it has not drained
	fl.Leavers([]int{0})
	require.Zero(t, fl.slots[0].leaving)
	looksAgain(g)
	g = passedOver()
	fl.Took([]store.Slot{{Slot: 0, Epoch: 5}}, 5, nil, nil) // anew, under the same epoch
	looksAgain(g)
}

// Held tasks that nobody knew of are called back one after the other at once, not one at each look.
func TestHeldTasksThatWereForgotten(t *testing.T) {
	fl := newFlight(t, Config{StageTasks: 8}) // one at a time
	fl.Took([]store.Slot{{Slot: 0}}, 5, nil, nil)
	fl.ApplyPolicies([]admin.Policy{{Topic: "orders", MaxInFlight: 8}}, task.LaneKey{}, 1)
	g := fl.gates.byTopic["orders"]
	g.behind, g.looked = false, time.Time{}
	var held []line.HeldTask
	for i := range int64(5) {
		held = append(held, line.HeldTask{HeldPlace: line.HeldPlace{Pos: task.Held(1000 + i), Seq: i}, Topic: "orders"})
	}
	for i := range held {
		<-fl.kicks.Held // the loop does not wait for its next round
		gates := fl.Restless(true)
		require.Equal(t, []*Gate{g}, gates, i)
		look := fl.LookBehind(g)
		fl.HeldRead(look, held[i:])
		require.Len(t, fl.inbox.recalls, i+1)
		g.coming.arrives(held[i].Seq)
	}
}
