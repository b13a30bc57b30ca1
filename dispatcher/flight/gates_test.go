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

// growing is a flight with a resumed target, and a slot to which tasks of slot 1 come. seen lets it see how far that one's held tasks have moved.
func growing(t *testing.T) (fl *Flight, g *Gate, l *ownedSlot, seen func(movedHeld int64)) {
	fl = newFlight(t, Config{MemberID: "one"})
	l = &ownedSlot{number: 0, epoch: 5, claimMost: never, callMost: never}
	fl.slots[0] = l
	fl.gates.apply([]admin.Policy{{Topic: "orders", Changed: 1}})
	return fl, fl.gates.byTopic["orders"], l, func(movedHeld int64) {
		fl.SlotsSeen([]store.Slot{
			{Slot: 0, Epoch: 5, Owner: "one", Change: store.Change{Base: 2, Target: 1, Spread: 2, Moved: never, MovedHeld: never}},
			{Slot: 1, Change: store.Change{Base: 2, Target: 1, Spread: 1, Moved: never, MovedHeld: movedHeld}},
		})
	}
}

// called reads held tasks of slot 0 as a look does, and returns which are called back.
func called(fl *Flight, g *Gate, places ...int64) (seqs []int64) {
	var page []line.HeldTask
	for _, at := range places {
		page = append(page, line.HeldTask{HeldPlace: line.HeldPlace{Pos: task.Held(at), Seq: at}, Topic: "orders"})
	}
	fl.HeldRead(fl.LookBehind(g), page)
	_, recalls, _ := fl.inbox.takeLeaving(recallMost)
	for _, r := range recalls {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// What a look has passed over, because it might have overtaken others, is not overtaken by what the next look finds.
func TestWhatMayBeCalledBackFurtherWaitsForALookFromTheBeginning(t *testing.T) {
	fl, g, _, seen := growing(t)
	seen(task.Held(50))
	require.Empty(t, called(fl, g, 100))
	seen(task.Held(500))
	require.Empty(t, called(fl, g, 200))
	require.Empty(t, called(fl, g), "the end")
	require.Equal(t, []int64{100, 200}, called(fl, g, 100, 200))
	look := fl.LookBehind(g)
	g.behind = false // nothing is held here
	seen(never)
	require.True(t, g.behind)
	fl.HeldRead(look, []line.HeldTask{{HeldPlace: line.HeldPlace{Pos: task.Held(300), Seq: 300}, Topic: "orders"}})
	require.Zero(t, g.after, "what has come meanwhile was not looked for")
}

// A task that has waited at its gate for too long is held once more. A later one that was called back, too, goes after it.
func TestALaterTaskDoesNotPassOneThatIsHeldOnceMore(t *testing.T) {
	fl, g, l, _ := growing(t)
	require.Equal(t, []int64{100, 200}, called(fl, g, 100, 200))
	at := func(n int64) *Task { return &Task{slot: l, seq: n, at: n, content: &content{topic: "orders"}} }
	for _, n := range []int64{100, 200} {
		one := at(n)
		fl.gates.arrives(one)
		require.True(t, fl.gates.detains(one, n))
	}
	fl.gates.holdBack(func(t *Task) bool { return t.seq == 100 })
	require.Nil(t, g.next(time.Now(), false))
	g.holding[0].status = left
	g.forgetHeld()
	require.Nil(t, g.next(time.Now(), false), "it is held, and was not called back yet")
	require.Equal(t, []int64{100}, called(fl, g, 100))
	require.Nil(t, g.next(time.Now(), false), "it is on its way")
	one := at(100)
	fl.gates.arrives(one)
	require.True(t, fl.gates.detains(one, 100))
	require.Equal(t, one, g.next(time.Now(), false))
	require.Nil(t, g.next(time.Now(), false))
	require.Empty(t, called(fl, g), "the end")
	require.Empty(t, called(fl, g), "nothing is held")
	require.NotNil(t, g.next(time.Now(), false))
}

// A limit is reached, and what is more is held. What has waited at the gate before goes on.
func TestWhatIsHeldKeepsNoEarlierTaskBack(t *testing.T) {
	fl, g, l, _ := growing(t)
	g.behind = false
	here := &Task{slot: l, seq: 100, at: 100, content: &content{topic: "orders"}}
	g.push(here, 100)
	fl.gates.hold(g, &Task{slot: l, seq: 200, at: 200, content: &content{topic: "orders"}}, 0)
	require.True(t, g.behind)
	require.Equal(t, here, g.next(time.Now(), false))
}

// Another slot begins to move its tasks here: what was called back before, and might overtake them, is held once more.
func TestWhatWasCalledBackIsHeldWhileMoreComes(t *testing.T) {
	fl, g, l, seen := growing(t)
	require.Equal(t, []int64{100, 200}, called(fl, g, 100, 200))
	here := &Task{slot: l, seq: 100, at: 100, content: &content{topic: "orders"}}
	fl.gates.arrives(here)
	require.True(t, fl.gates.detains(here, 100))
	seen(task.Held(50))
	require.Empty(t, g.waiting)
	require.Equal(t, leaving, here.status)
	later := &Task{slot: l, seq: 200, at: 200, content: &content{topic: "orders"}}
	fl.gates.arrives(later)
	require.True(t, fl.gates.detains(later, 200))
	require.Equal(t, leaving, later.status)
}
