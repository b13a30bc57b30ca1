package flight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
	fl.Owning.Took([]store.Slot{{Slot: 0, Epoch: 5}}, 5, nil, nil)
	looksAgain(g)
	g = passedOver()
	fl.Owning.Leavers(nil)
	fl.slots[0].releasing = false // the database keeps it: it has not drained
	fl.Owning.Leavers([]int{0})
	require.Zero(t, fl.slots[0].leaving)
	looksAgain(g)
	g = passedOver()
	fl.Owning.Took([]store.Slot{{Slot: 0, Epoch: 5}}, 5, nil, nil) // anew, under the same epoch
	looksAgain(g)
}

// Held tasks that nobody knew of are called back one after the other at once, not one at each look.
func TestHeldTasksThatWereForgotten(t *testing.T) {
	fl := newFlight(t, Config{StageTasks: 8}) // one at a time
	fl.Owning.Took([]store.Slot{{Slot: 0}}, 5, nil, nil)
	fl.Policies.Apply([]admin.Policy{{Topic: "orders", MaxInFlight: 8}}, task.LaneKey{})
	g := fl.gates.byTopic["orders"]
	g.behind, g.looked = false, time.Time{}
	var held []line.HeldTask
	for i := range int64(5) {
		held = append(held, line.HeldTask{HeldPlace: line.HeldPlace{Pos: task.Held(1000 + i), Seq: i}, Topic: "orders"})
	}
	for i := range held {
		<-fl.kicks.Held // the loop does not wait for its next round
		gates := fl.Policies.Restless(true)
		require.Equal(t, []*Gate{g}, gates, i)
		look := fl.Policies.LookBehind(g)
		look.Read(held[i:])
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
		fl.Owning.SlotsSeen([]store.Slot{
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
	fl.Policies.LookBehind(g).Read(page)
	_, recalls, _ := fl.inbox.takeLeaving(recallMost)
	for _, r := range recalls {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// A look passes over what might overtake others. Once that may be called back, the next look begins there, and what waits at the gate waits for it.
func TestALookBeginsAnewWhereHeldTasksMayBeCalledBackFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl, g, _, seen := growing(t)
		other := &ownedSlot{number: 2, claimMost: never, callMost: never}
		fl.slots[2] = other
		seen(task.Held(50))
		require.Empty(t, called(fl, g, 100, 300))
		waits := &Task{slot: other, seq: 250, at: 250, content: &content{topic: "orders"}}
		require.True(t, fl.gates.detains(waits, 250))
		require.Equal(t, []*Task{waits}, []*Task(g.waiting), "it comes before others of its slot that were called back")
		stale := fl.Policies.LookBehind(g)
		seen(task.Held(200))
		require.Nil(t, g.next(time.Now(), false))
		stale.Read([]line.HeldTask{{HeldPlace: line.HeldPlace{Pos: task.Held(400), Seq: 400}, Topic: "orders"}})
		require.Empty(t, fl.inbox.recalls, "nothing came of what was read before")
		require.LessOrEqual(t, fl.Policies.LookBehind(g).After.Pos, task.Held(50))
		require.Equal(t, []int64{100}, called(fl, g, 100, 300))
		seen(task.Held(350))
		require.Empty(t, called(fl, g, 300), "they are called back further once a second")
		time.Sleep(raiseEvery)
		seen(task.Held(350))
		require.LessOrEqual(t, fl.Policies.LookBehind(g).After.Pos, task.Held(200))
		require.Equal(t, []int64{300}, called(fl, g, 300))
		g.nothingHeld()
		seen(never)
		require.True(t, g.behind)
		require.Equal(t, task.Held(350), g.back.Pos)
	})
}

// A task is held after a look has read what is held. The look calls back nothing that comes after it.
func TestALookDoesNotPassWhatIsHeldMeanwhile(t *testing.T) {
	fl, g, l, _ := growing(t)
	look := fl.Policies.LookBehind(g)
	fl.gates.hold(g, &Task{slot: l, seq: 150, at: 150, content: &content{topic: "orders"}}, 0)
	look.Read([]line.HeldTask{{HeldPlace: line.HeldPlace{Pos: task.Held(100), Seq: 100}, Topic: "orders"}, {HeldPlace: line.HeldPlace{Pos: task.Held(200), Seq: 200}, Topic: "orders"}})
	require.Len(t, fl.inbox.recalls, 1)
	require.Equal(t, task.Held(100), g.back.Pos)
	fl.Policies.LookBehind(g).Read(nil)
	require.True(t, g.behind)
	require.Equal(t, task.Held(100), g.back.Pos, "it is still on its way")
}

// A task was called back from a slot, moved to another one on its way, and held there once more. The one who called it back takes that slot, too: the
// task is called back from there.
func TestATaskThatWasMovedOnItsWayIsCalledBackAnew(t *testing.T) {
	fl, g, _, _ := growing(t)
	require.Equal(t, []int64{100}, called(fl, g, 100))
	fl.slots[0] = &ownedSlot{number: 0, epoch: 6, claimMost: never, callMost: never}
	fl.gates.lookAgain(line.HeldPlace{})
	require.Equal(t, []int64{100}, called(fl, g, 100))
	require.Empty(t, called(fl, g, 100), "it is on its way")
}

// Many tasks of a limited target fall due at once. Those that are held keep none of the others at the gate, and are called back at the limit's pace.
func TestABurstAtALimitedGateDoesNotStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl, g, l, _ := growing(t)
		g.nothingHeld()
		fl.gates.slots = 1
		fl.gates.apply([]admin.Policy{{Topic: "orders", Rate: 20, Changed: 2}})
		var held []line.HeldTask // as the database has them
		for seq := range int64(100) {
			one := &Task{slot: l, seq: (seq * 37) % 100, at: 100, content: &content{topic: "orders"}}
			require.True(t, fl.gates.detains(one, fl.clock.Millis()))
		}
		due, last := time.Now(), 0
		for last < 100 && time.Since(due) < 8*time.Second {
			for _, one := range g.holding {
				one.status = left
				held = append(held, line.HeldTask{HeldPlace: line.HeldPlace{Pos: task.Held(one.at), Seq: one.seq}, Topic: "orders"})
			}
			slices.SortFunc(held, func(a, b line.HeldTask) int { return a.Compare(b.HeldPlace) })
			for _, gate := range fl.gates.restless(true) {
				look := fl.Policies.LookBehind(gate)
				from, _ := slices.BinarySearchFunc(held, look.After, func(h line.HeldTask, p line.HeldPlace) int { return cmp.Or(h.Compare(p), -1) })
				look.Read(held[from:min(from+look.Most, len(held))])
			}
			_, recalls, _ := fl.inbox.takeLeaving(recallMost)
			for _, r := range recalls {
				held = slices.DeleteFunc(held, func(h line.HeldTask) bool { return h.Seq == r.Seq })
				one := &Task{slot: l, seq: r.Seq, at: 100, content: &content{topic: "orders"}}
				fl.gates.arrives(one)
				require.True(t, fl.gates.detains(one, fl.clock.Millis()))
			}
			fl.gates.release(func() bool { return true }, func(*Task) { last++ })
			time.Sleep(20 * time.Millisecond)
		}
		require.Equal(t, 100, last)
		require.Less(t, time.Since(due), 6*time.Second, "100 tasks at 20 a second")
	})
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
	fl.gates.holdBack(g, func(t *Task) bool { return t.seq == 100 })
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
	g.nothingHeld()
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

// fakeHeld are the held tasks of "orders" as the database has them.
type fakeHeld []line.HeldTask

func heldAt(at int64, slot int) line.HeldTask {
	return line.HeldTask{HeldPlace: line.HeldPlace{Pos: task.Held(at), Seq: at}, Slot: slot, Topic: "orders"}
}

func (f fakeHeld) page(look HeldLook) (page []line.HeldTask) {
	for _, h := range f {
		if h.Compare(look.After) > 0 && len(page) < look.Most {
			page = append(page, h)
		}
	}
	return page
}

// lookOnce looks once, and returns which are called back.
func lookOnce(fl *Flight, g *Gate, held *fakeHeld) (seqs []int64) {
	look := fl.Policies.LookBehind(g)
	look.Read(held.page(look))
	_, recalls, _ := fl.inbox.takeLeaving(recallMost)
	for _, r := range recalls {
		seqs = append(seqs, r.Seq)
		for i, h := range *held {
			if h.Seq == r.Seq {
				*held = append((*held)[:i:i], (*held)[i+1:]...)
				break
			}
		}
	}
	return seqs
}

func turned(base int, turn int64, movedHeld int64) []store.Slot {
	return []store.Slot{
		{Slot: 0, Epoch: 5, Owner: "one", Change: store.Change{Turn: turn, Base: base, Target: 1, Spread: base, Moved: never, MovedHeld: never}},
		{Slot: 1, Epoch: 4, Owner: "two", Change: store.Change{Turn: turn, Base: base, Target: 1, Spread: 1, Moved: never, MovedHeld: movedHeld}},
	}
}

// Another dispatcher splits its slot and moves some held tasks before the split is seen here. What has come already must go before what comes later.
func TestHeldTasksThatCameBeforeTheSplitWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl, g, _, _ := growing(t)
		fl.Owning.SlotsSeen([]store.Slot{{Slot: 0, Epoch: 5, Owner: "one", Change: store.Change{Turn: 1, Base: 2, Target: 1, Spread: 2}}})
		held := fakeHeld{heldAt(2000, 0), heldAt(9000, 7)}      // ours; the last one is another's
		require.Equal(t, []int64{2000}, lookOnce(fl, g, &held)) // the next page is empty
		g.coming.arrives(2000)
		// Slot 1 was split, and 900 has come, of the same key as 1100, which has not yet.
		held = fakeHeld{heldAt(900, 0), heldAt(9000, 7)}
		fl.Owning.SlotsSeen(turned(2, 2, task.Held(1000)))
		held = fakeHeld{heldAt(900, 0), heldAt(1100, 0), heldAt(9000, 7)}
		time.Sleep(2 * raiseEvery)
		fl.Owning.SlotsSeen(turned(2, 2, never))
		var order []int64
		for range 4 {
			order = append(order, lookOnce(fl, g, &held)...)
		}
		require.Equal(t, []int64{900, 1100}, order)
	})
}

// Likewise, and all of the few has come by then: the gate, behind which nothing was held, must not let later tasks through before.
func TestASlotThatIsWholeBeforeItsSplitWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl, g, l, _ := growing(t)
		fl.Owning.SlotsSeen([]store.Slot{{Slot: 0, Epoch: 5, Owner: "one", Change: store.Change{Turn: 1, Base: 2, Target: 1, Spread: 2}}})
		g.nothingHeld()
		held := fakeHeld{heldAt(900, 0)} // was held in slot 1
		fl.Owning.SlotsSeen(turned(2, 2, never))
		later := &Task{slot: l, seq: 2000, at: 2000, content: &content{topic: "orders"}} // of the same key: it is placed in slot 0 now
		passes := !fl.gates.detains(later, 2000)
		passes = passes || g.next(time.Now(), false) != nil
		require.False(t, passes, "900 is held")
		require.Len(t, fl.gates.restless(true), 1, "somebody looks for it before lookEvery is over")
		require.Equal(t, []int64{900}, lookOnce(fl, g, &held))
	})
}

// A task is held while a look is read: what is called back must not go beyond it.
func TestATaskIsHeldWhileALookIsRead(t *testing.T) {
	fl, g, l, _ := growing(t)
	held := fakeHeld{heldAt(150, 0)}
	look := fl.Policies.LookBehind(g)
	page := held.page(look)
	first := &Task{slot: l, seq: 100, at: 100, doubt: true, content: &content{topic: "orders"}} // called back by the owner before
	require.True(t, fl.gates.detains(first, 160))
	require.Equal(t, leaving, first.status)
	look.Read(page)
	second := &Task{slot: l, seq: 150, at: 150, content: &content{topic: "orders"}}
	fl.gates.arrives(second)
	if second.wasHeld {
		require.True(t, fl.gates.detains(second, 160))
	}
	require.Nil(t, g.next(time.Now(), false), "100 is on its way to be held")
	first.status = left
	g.forgetHeld()
	require.Nil(t, g.next(time.Now(), false), "100 is held")
}

// A slot leaves. One of its tasks has waited for too long, and is held once more; nobody calls it back here. A later one must not go.
func TestALaterTaskOfALeavingSlot(t *testing.T) {
	fl, g, l, _ := growing(t)
	held := fakeHeld{heldAt(100, 0), heldAt(200, 0)}
	require.Equal(t, []int64{100, 200}, lookOnce(fl, g, &held))
	for _, n := range []int64{100, 200} {
		one := &Task{slot: l, seq: n, at: n, content: &content{topic: "orders"}}
		fl.gates.arrives(one)
		require.True(t, fl.gates.detains(one, n))
	}
	l.leaving = time.Now()
	fl.gates.holdBack(g, func(t *Task) bool { return t.seq == 100 })
	require.Nil(t, g.next(time.Now(), false))
	fl.gates.restless(true) // as each round begins
	for _, o := range g.holding {
		o.status = left
	}
	g.forgetHeld()
	held = fakeHeld{heldAt(100, 0)}
	lookOnce(fl, g, &held)
	lookOnce(fl, g, &held)
	lookOnce(fl, g, &held)
	require.Nil(t, g.next(time.Now(), false), "100 is held, and goes with the slot")
}

// As above: the later one was claimed already, and comes to the gate afterwards.
func TestALaterTaskOfALeavingSlotOnItsWay(t *testing.T) {
	fl, g, l, _ := growing(t)
	held := fakeHeld{heldAt(100, 0), heldAt(200, 0)}
	require.Equal(t, []int64{100, 200}, lookOnce(fl, g, &held))
	one := &Task{slot: l, seq: 100, at: 100, content: &content{topic: "orders"}}
	fl.gates.arrives(one)
	require.True(t, fl.gates.detains(one, 100))
	l.leaving = time.Now()
	fl.gates.holdBack(g, func(t *Task) bool { return t.seq == 100 })
	one.status = left
	g.forgetHeld()
	held = fakeHeld{heldAt(100, 0)}
	for range 3 {
		lookOnce(fl, g, &held)
	}
	two := &Task{slot: l, seq: 200, at: 200, content: &content{topic: "orders"}}
	fl.gates.arrives(two)
	require.True(t, fl.gates.detains(two, 200))
	require.Nil(t, g.next(time.Now(), false), "100 is held, and goes with the slot")
}

// A task that has passed is back, since its limit was reached; so is a later one. The first has waited for too long, and is held.
func TestATaskThatHasPassedWaitsForOneThatIsHeld(t *testing.T) {
	fl, g, l, _ := growing(t)
	g.nothingHeld()
	fl.gates.slots = 1
	fl.gates.apply([]admin.Policy{{Topic: "orders", MaxInFlight: 1, Changed: 2}})
	g.sending = 1
	for _, n := range []int64{100, 200} {
		require.True(t, fl.gates.detains(&Task{slot: l, seq: n, at: n, passed: true, content: &content{topic: "orders"}}, n))
	}
	fl.gates.holdBack(g, func(t *Task) bool { return t.atGate <= 100 })
	g.sending = 0
	require.Nil(t, g.next(time.Now(), false), "100 is held")
}

// Many targets have all that may be at gates or on their way. A slot comes: the looks for which they wait must go on.
func TestManyFullGatesLookAnew(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimMost: never, callMost: never}
	fl.slots[0] = l
	var all []admin.Policy
	for i := range 10 {
		all = append(all, admin.Policy{Topic: string(rune('a' + i)), Changed: 1})
	}
	fl.gates.apply(all)
	now := fl.clock.Millis()
	for topic, g := range fl.gates.byTopic {
		g.back = line.HeldPlace{Pos: task.Held(now)}
		for i := range int64(gateTasks) {
			g.push(&Task{slot: l, seq: i, at: now, content: &content{topic: topic}}, now)
		}
	}
	fl.gates.lookAgain(line.HeldPlace{})
	require.NotEmpty(t, fl.gates.restless(true))
}

// Half of what is held belongs to another dispatcher that does not get on. Here slot 0 takes tasks over, page by page, or is about to; slot 2 has nothing to
// do with it, and a limit of 100 a second.
func TestALimitedGateGoesOnWhileMoreIsToCome(t *testing.T) {
	const secs = 20
	for name, c := range map[string]struct {
		n    int64 // of each dispatcher
		seen func(n int64, passed time.Duration) []store.Slot
	}{
		"in calm": {20_000, func(int64, time.Duration) []store.Slot { return nil }},
		"while slots change": {20_000, func(n int64, passed time.Duration) []store.Slot {
			return turned(2, 1, task.Held(passed.Milliseconds()*n/secs/1000/2))
		}},
		"while one slot after the other is split": {100_000, func(_ int64, passed time.Duration) []store.Slot {
			return turned(2, 1+int64(passed/time.Second), task.Held(0)-1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl, g, _, _ := growing(t)
				fl.slots[2] = &ownedSlot{number: 2, claimMost: never, callMost: never}
				fl.gates.slots = 2
				fl.gates.apply([]admin.Policy{{Topic: "orders", Rate: 100, Changed: 2}})
				var held []line.HeldTask // the last of ours are of slot 2
				for i := range c.n {
					held = append(held, heldAt(i+1, 7))
				}
				for i := range c.n {
					held = append(held, heldAt(c.n+i+1, 2))
				}
				sent, last, gap := 0, time.Now(), time.Duration(0)
				for began := time.Now(); time.Since(began) < secs*time.Second; {
					fl.Owning.SlotsSeen(c.seen(c.n, time.Since(began)))
					for _, one := range g.holding {
						one.status = left
						held[one.seq-1].Lane = 0
					}
					for _, gate := range fl.gates.restless(true) {
						look := fl.Policies.LookBehind(gate)
						var page []line.HeldTask
						for i := max(look.After.Seq, 0); i < int64(len(held)) && len(page) < look.Most; i++ {
							if held[i].Compare(look.After) > 0 && held[i].Lane == 0 {
								page = append(page, held[i])
							}
						}
						time.Sleep(5 * time.Millisecond)
						look.Read(page)
					}
					_, recalls, _ := fl.inbox.takeLeaving(recallMost)
					for _, r := range recalls {
						held[r.Seq-1].Lane = 1 // gone
						one := &Task{slot: fl.slots[2], seq: r.Seq, at: r.Seq, content: &content{topic: "orders"}}
						fl.gates.arrives(one)
						require.True(t, fl.gates.detains(one, fl.clock.Millis()))
					}
					fl.gates.release(func() bool { return true }, func(*Task) { sent++; last = time.Now() })
					gap = max(gap, time.Since(last))
					time.Sleep(20 * time.Millisecond)
				}
				t.Log("sent", sent, "longest gap", gap)
				require.Greater(t, sent, 500)
			})
		})
	}
}
