package flight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

func gated(seq, at int64) *Task {
	return &Task{slot: &ownedSlot{}, seq: seq, at: at, content: &content{topic: "orders"}}
}

// passing asks a gate each millisecond, and returns when it let each task through, in ms from now.
func passing(g *Gate, during time.Duration) (at []int64, seqs []int64) {
	began := time.Now()
	for time.Since(began) <= during {
		for t := g.next(time.Now(), false); t != nil; t = g.next(time.Now(), false) {
			at, seqs = append(at, time.Since(began).Milliseconds()), append(seqs, t.seq)
		}
		time.Sleep(time.Millisecond)
	}
	return at, seqs
}

func TestGateKeepsThePace(t *testing.T) {
	for name, c := range map[string]struct {
		rate, share float64
		most, least int // in 10 s
	}{
		"one each two seconds":       {0.5, 1, 6, 6},
		"two dispatchers":            {20, 0.5, 101, 100},
		"one slot of 64":             {64, 1.0 / 64, 11, 10},
		"fast":                       {1000, 1, 10_051, 9900},
		"a dispatcher without slots": {10, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate("orders", 100_000)
				g.nothingHeld()
				g.set(admin.Policy{Topic: "orders", Rate: c.rate}, c.share)
				for seq := range int64(20_000) {
					g.push(gated(seq, 1000-seq), 0)
				}
				at, seqs := passing(g, 10*time.Second)
				require.LessOrEqual(t, len(at), c.most)
				require.GreaterOrEqual(t, len(at), c.least)
				for i, seq := range seqs {
					require.Equal(t, int64(20_000-1-i), seq, "in order of their time")
				}
			})
		})
	}
}

func TestGateChangesItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("orders", 100_000)
		g.nothingHeld()
		for seq := range int64(1000) {
			g.push(gated(seq, seq), 0)
		}
		g.set(admin.Policy{Topic: "orders", Rate: 10}, 1)
		first, _ := passing(g, time.Second)
		require.InDelta(t, 10, len(first), 1)
		g.set(admin.Policy{Topic: "orders", Rate: 10, Changed: 1}, 1) // the same again gives nothing on top
		again, _ := passing(g, time.Second)
		require.InDelta(t, 10, len(again), 1)
		g.set(admin.Policy{Topic: "orders", Paused: true}, 1)
		none, _ := passing(g, time.Second)
		require.Empty(t, none)
		g.set(admin.Policy{Topic: "orders"}, 1)
		rest, _ := passing(g, 0)
		require.Len(t, rest, 1000-len(first)-len(again))
	})
}

func TestGateWaitsForWhatComesEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("orders", 100_000)
		g.nothingHeld()
		until, l := time.Now().Add(recallWait), &ownedSlot{}
		for _, r := range []*recalled{{3, 30, 0, l, until}, {1, 10, 0, l, until}, {2, 20, 0, l, until}} {
			g.coming.add(r)
		}
		push := func(seq, at int64) { // as admit does
			g.coming.arrives(seq)
			g.push(gated(seq, at), 0)
		}
		push(2, 20)
		push(9, 5)
		_, seqs := passing(g, 0)
		require.Equal(t, []int64{9}, seqs, "the first of all, and none before what is on its way")
		require.Equal(t, 2, g.coming.count())
		require.NotNil(t, g.next(time.Now(), true), "unless it may wait for the room that this one takes")
		push(2, 20)
		push(1, 10)
		_, seqs = passing(g, 0)
		require.Equal(t, []int64{1, 2}, seqs)
		push(4, 40)
		_, seqs = passing(g, recallWait-10*time.Millisecond)
		require.Empty(t, seqs)
		_, seqs = passing(g, 20*time.Millisecond)
		require.Equal(t, []int64{4}, seqs, "what does not come for long was cancelled")
		require.Zero(t, g.coming.count())
		require.Empty(t, g.coming.order)

		until = time.Now().Add(recallWait)
		g.coming.add(&recalled{5, 50, 0, l, until})
		g.coming.arrives(5)
		g.coming.add(&recalled{5, 60, 0, l, until})
		push(6, 55)
		_, seqs = passing(g, 0)
		require.Equal(t, []int64{6}, seqs, "where it stood when it was called back before does not count")
	})
}

// What stands in the queue of the settlement is not given up: it would be called back once more, and once more.
func TestGateWaitsForWhatIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGate("orders", 100_000), &ownedSlot{}
		queued := time.Now().Add(recallQueue)
		g.coming.add(&recalled{seq: 1, at: 10, slot: l, until: queued})
		g.coming.add(&recalled{seq: 2, at: 20, slot: l, until: queued})
		time.Sleep(recallQueue - time.Second)
		at, waits := g.coming.first(time.Now())
		require.True(t, waits)
		require.Equal(t, int64(10), at)
		g.coming.settled(1, true, time.Now().Add(recallWait))
		g.coming.settled(2, false, time.Time{}) // cancelled
		require.Equal(t, 1, g.coming.count())
		time.Sleep(recallWait)
		_, waits = g.coming.first(time.Now())
		require.False(t, waits)
	})
}

// What comes to its held place late is looked for there, though callBack has gone on behind it meanwhile.
func TestHeldBehindWhatWasCalledBack(t *testing.T) {
	g := newGate("orders", 1000)
	late := gated(1, 50)
	late.status = leaving
	g.holding, g.behind, g.after = []*Task{late}, false, line.HeldPlace{Pos: task.Held(50), Seq: 9}
	g.forgetHeld()
	require.False(t, g.behind)
	late.status = left
	g.forgetHeld()
	require.Empty(t, g.holding)
	require.True(t, g.behind)
	require.Less(t, g.after.Pos, task.Held(50))
}

// A retry keeps its turn only while it is what was called back.
func TestKeepsTurn(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	l := &ownedSlot{epoch: 5}
	fl.gates.apply([]admin.Policy{{Topic: "orders", Rate: 1, Changed: 1}})
	fl.gates.byTopic["orders"].coming.add(&recalled{seq: 7, at: 100, attempt: 1, slot: l})
	for name, c := range map[string]struct {
		slot    *ownedSlot
		attempt int
		want    int64
	}{
		"as it was":       {l, 1, 100},
		"sent meanwhile":  {l, 2, 900},
		"not tried":       {l, 0, 900},
		"another owner's": {&ownedSlot{epoch: 6}, 1, 900},
	} {
		ct := gated(7, 900)
		ct.slot, ct.attempt = c.slot, c.attempt
		fl.gates.keepsTurn(ct)
		require.Equal(t, c.want, ct.at, name)
	}
}

func TestGateRoom(t *testing.T) {
	g := newGate("orders", 100_000)
	g.nothingHeld()
	for share, want := range map[float64]int{1: 10, 0.5: 5, 0.25: 2, 0.01: 1} {
		g.set(admin.Policy{Topic: "orders", MaxInFlight: 10}, share)
		require.Equal(t, want, g.room)
	}
	g.set(admin.Policy{Topic: "orders", MaxInFlight: 2}, 1)
	for seq := range int64(4) {
		g.push(gated(seq, seq), seq)
	}
	g.sending = 1
	first := g.next(time.Now(), false)
	require.NotNil(t, first)
	g.sending = 2
	require.Nil(t, g.next(time.Now(), false))
	require.Len(t, g.takeBack(func(t *Task) bool { return t.atGate <= 1 }), 1, "those that came until then")
	require.Len(t, g.waiting, 2)
	g.waiting[0].slot.abandoned = true
	g.sending = 0
	require.Equal(t, int64(3), g.next(time.Now(), false).seq, "what was lost is passed over")
}

func TestGateIsBounded(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		policy admin.Policy
		stage  int
		want   int
	}{
		"resumed":        {admin.Policy{}, 100_000, gateTasks},
		"little room":    {admin.Policy{}, 80, 10},
		"none":           {admin.Policy{}, 1, 1},
		"slow":           {admin.Policy{Rate: 1}, 100_000, 1},
		"half a second":  {admin.Policy{Rate: 100}, 100_000, 55},
		"fast":           {admin.Policy{Rate: 1e6}, 100_000, gateTasks},
		"one in flight":  {admin.Policy{MaxInFlight: 1}, 100_000, 1},
		"ten":            {admin.Policy{MaxInFlight: 10}, 100_000, 10},
		"both, the less": {admin.Policy{MaxInFlight: 10, Rate: 10}, 100_000, 6},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate("orders", c.stage)
			g.set(c.policy, 1)
			require.Equal(t, c.want, g.ahead(now))
		})
	}
}

// Whatever becomes of a task that was called back, the next ones do not wait for it.
func TestCalledBackTaskThatDoesNotPass(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	for name, end := range map[string]func(ct *Task){
		"too late": func(ct *Task) {
			ct.settings.MaxLateness = time.Millisecond
			require.False(t, fl.admits(ct, nowMillis()))
		},
		"its partition does not answer": func(ct *Task) {
			fl.putOff(ct, &Outlet{outletKey: outletKey{"orders", 0}, silence: silentSince(time.Now())})
		},
		"paused again": func(ct *Task) {
			fl.gates.apply([]admin.Policy{{Topic: "orders", Paused: true, Changed: 2}})
			require.False(t, fl.admits(ct, nowMillis()))
		},
		"at the gate": func(ct *Task) { require.False(t, fl.admits(ct, nowMillis())) },
	} {
		t.Run(name, func(t *testing.T) {
			fl.gates.apply([]admin.Policy{{Topic: "orders", Rate: 1, Changed: 1}})
			g := fl.gates.byTopic["orders"]
			g.coming.add(&recalled{7, 40, 0, l, time.Now().Add(recallWait)})
			end(&Task{slot: l, seq: 7, pos: 50, at: 40, content: &content{topic: "orders", due: 40, settings: schemas.DefaultSettings()}})
			require.Zero(t, g.coming.count())
		})
	}
}

// A task that was called back does not come if its slot leaves: nobody waits for it.
func TestGateDoesNotWaitForASlotThatLeaves(t *testing.T) {
	for name, leave := range map[string]func(*ownedSlot){
		"leaves": func(l *ownedSlot) { l.leaving = time.Now() },
		"lost":   func(l *ownedSlot) { l.abandoned = true },
	} {
		t.Run(name, func(t *testing.T) {
			g, l := newGate("orders", 100_000), &ownedSlot{}
			g.nothingHeld()
			g.coming.add(&recalled{1, 10, 0, l, time.Now().Add(recallWait)})
			g.push(gated(2, 20), 0)
			require.Nil(t, g.next(time.Now(), false))
			leave(l)
			require.NotNil(t, g.next(time.Now(), false))
			require.Zero(t, g.coming.count())
		})
	}
}

// Two targets share a lane by chance: neither is held on the other's account.
func TestLaneIsNotTheTarget(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	places := []store.Place{{Place: slots.Place{Pos: nowMillis(), Seq: 1}, Due: nowMillis()}, {Place: slots.Place{Pos: nowMillis(), Seq: 2}, Due: nowMillis()}}
	judge := func() { // as the database says
		var heads []line.Head
		for i, topic := range []string{"orders", "others"} {
			heads = append(heads, line.Head{Seq: places[i].Seq, Topic: topic, Slot: 0, Pos: places[i].Pos, Due: places[i].Due})
		}
		batch := fl.Policies.Undecided()
		require.NotEmpty(t, batch.Seqs())
		batch.Judged(heads)
	}
	l := &ownedSlot{number: 0, epoch: 5, claimed: nowMillis() + 1000, callMost: never}
	fl.slots[0] = l
	fl.gates.apply([]admin.Policy{{Topic: "orders", Paused: true, Changed: 1}})
	var both []*Task
	for i, p := range places { // the other one has the lane that a program of a version before keys gave it
		lane := []task.Lane{fl.gates.key.Lane("orders", task.ClassNormal), task.Unkeyed("orders", task.ClassNormal)}[i]
		ct := &Task{slot: l, seq: p.Seq, pos: p.Pos, at: p.Pos, lane: lane}
		both = append(both, ct)
		require.True(t, fl.gates.diverts(ct))
	}
	require.False(t, fl.gates.diverts(&Task{slot: l, lane: fl.gates.key.Lane("others", task.ClassNormal)}))
	require.False(t, fl.gates.diverts(&Task{slot: l, lane: task.Unkeyed("others", task.ClassNormal)}))
	require.False(t, fl.gates.diverts(&Task{slot: l, lane: both[0].lane, doubt: true}), "the send log may know of it")
	judge()
	require.Equal(t, leaving, both[0].status)
	require.Equal(t, entered, both[1].status)
	require.True(t, both[1].ungated)
	require.False(t, fl.gates.diverts(both[1]), "it goes on")
	require.Len(t, fl.inbox.transitions, 1)
	require.Equal(t, task.Held(places[0].Due), fl.inbox.transitions[0].Pos)

	// Gates of one lane do not hold each other's tasks that were called back.
	fl.gates.apply([]admin.Policy{{Topic: "orders", Paused: true, Changed: 1}, {Topic: "others", Rate: 1, Changed: 1}})
	others := fl.gates.byTopic["others"]
	others.behind = true
	others.coming.add(&recalled{seq: both[1].seq, at: 1, slot: l})
	both[1].ungated = false
	require.True(t, fl.gates.diverts(both[1]), "to the other's gate, for it is paused")
	judge()
	require.Equal(t, entered, both[1].status)
	require.True(t, both[1].ungated)
	delete(fl.gates.byTopic, "others")

	// A target may be paused for days. What is held is not kept in memory: each task would keep all that was claimed with it.
	require.Empty(t, fl.gates.restless(true))
	require.Len(t, fl.gates.byTopic["orders"].holding, 1, "on its way")
	both[0].status = left
	require.Empty(t, fl.gates.restless(true))
	require.Empty(t, fl.gates.byTopic["orders"].holding)
}

// A dispatcher has called a task back and died, before it has claimed the task or after. The next owner finds the task in the line, and calls back
// later ones of its key. Nothing of them overtakes it.
func TestWhatADeadOwnerHasCalledBackIsNotOvertaken(t *testing.T) {
	for name, doubt := range map[string]bool{"not claimed": false, "claimed": true} {
		t.Run(name, func(t *testing.T) {
			f := newFlight(t, Config{MemberID: "one"})
			f.Policies.Apply([]admin.Policy{{Topic: "orders", Changed: 1}}, f.gates.key)
			g, lane := f.gates.byTopic["orders"], f.gates.key.Lane("orders", task.ClassNormal)
			now := nowMillis()
			const first, second = 9, 5 // seqs; the first one is due before the second
			due := map[int64]int64{first: now - 2000, second: now - 1000}
			place := map[int64]int64{}
			at := func(seq int64) line.Entry {
				return line.Entry{Place: slots.Place{Slot: 0, Pos: place[seq], Seq: seq}, Lane: lane, Due: due[seq]}
			}
			var sent []int64
			read := func() {
				for {
					batch, _ := f.Bodies.Next()
					if batch == nil {
						break
					}
					var rows []task.Task
					for _, seq := range batch.Seqs() {
						rows = append(rows, task.Task{Seq: seq, Slot: 0, Pos: place[seq], Topic: "orders", ID: "a", Due: due[seq], State: task.StateLine, Body: schemas.EncodeBody(nil, []byte("k"), nil, nil, schemas.DefaultSettings())})
					}
					batch.Read(rows, nil, someKeys{}, nil).Logged()
				}
				out, _ := f.Due.Take()
				for _, s := range out {
					sent = append(sent, s.Task.seq)
				}
			}
			judge := func() {
				batch := f.Policies.Undecided()
				var heads []line.Head
				for _, seq := range batch.Seqs() {
					heads = append(heads, line.Head{Seq: seq, Topic: "orders", Slot: 0, Pos: place[seq], Due: due[seq]})
				}
				batch.Judged(heads)
			}
			settle := func() { // as the database does
				leaving := f.Settling.Begin()
				for _, e := range append(leaving.Transitions, leaving.recalls...) {
					place[e.Seq] = max(e.Pos, f.slots[0].claimed+1)
					if e.Dead != nil {
						t.Fatal(e.Dead.Reason)
					}
					Attempt{f.machine, []Transition{e}, nil}.Settled(line.Settled{Moved: []store.Place{{Place: at(e.Seq).Place, Due: place[e.Seq]}}}, 0)
				}
			}
			callBack := func() { // what is held
				for _, g := range f.Policies.Restless(true) {
					look := f.Policies.LookBehind(g)
					var page []line.HeldTask
					for _, seq := range []int64{first, second} {
						if h := (line.HeldPlace{Pos: place[seq], Seq: seq}); task.IsHeld(h.Pos) && h.Pos > look.After.Pos {
							page = append(page, line.HeldTask{HeldPlace: h, Topic: "orders", Lane: lane})
						}
					}
					look.Read(page)
				}
			}
			claim := func() {
				var entries []line.Entry
				l := f.slots[0]
				to := l.claimed + 500
				for _, seq := range []int64{second, first} {
					if place[seq] > l.claimed && place[seq] <= to {
						e := at(seq)
						if e.Pos > l.claimed+1 {
							e.Due = 0
						}
						entries = append(entries, e)
					}
				}
				Claiming{machine: f.machine}.Claimed([]Claim{{Slot: 0, From: l.claimed, To: to, slot: l}}, entries)
			}

			place[first], place[second] = now+1, task.Held(due[second])
			took := store.Slot{Slot: 0, Epoch: 5, Claimed: now, Done: now - 10}
			var inDoubt []line.Entry
			if doubt {
				took.Claimed = now + 5
				inDoubt = []line.Entry{at(first)}
				inDoubt[0].Due = 0
			}
			f.Owning.Took([]store.Slot{took}, 5, inDoubt, nil)
			f.Policies.Apply([]admin.Policy{{Topic: "orders", Changed: 1}}, f.gates.key)
			callBack() // the second one
			if !doubt {
				claim() // the first one
			}
			settle()
			claim() // the second one
			for range 20 {
				read()
				if len(sent) == 2 {
					break
				}
				judge()
				callBack()
				settle()
				claim()
			}
			require.Equal(t, []int64{first, second}, sent)
			require.Empty(t, g.waiting)
		})
	}
}

type someKeys struct{}

func (someKeys) DeliveryKey(int64, int) (string, error) { return "", nil }
