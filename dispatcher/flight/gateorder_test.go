package flight

import (
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

type fakeTask struct {
	at, seq int64
	key     int
	slot    int
}

// TestGatesKeepTheOrderOfKeys: calls of the database that come late, limits, pauses, slots that leave and stay, and tasks that come from another
// slot, at random (GATE_SEEDS says how many times). Each task is released once, and those of a key in the order of their due times.
func TestGatesKeepTheOrderOfKeys(t *testing.T) {
	seeds := 12
	if n, err := strconv.Atoi(os.Getenv("GATE_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { gatesAtRandom(t, int64(seed)) })
		})
	}
}

func gatesAtRandom(t *testing.T, seed int64) {
	r := rand.New(rand.NewSource(seed))
	fl := newFlight(t, Config{MemberID: "one"})
	for _, s := range []int{0, 2, 3} {
		fl.slots[s] = &ownedSlot{number: s, epoch: 5, claimMost: never, callMost: never}
	}
	fl.gates.slots = 4
	policies := []admin.Policy{{Topic: "orders", Changed: 1}, {Topic: "orders", Rate: 200, Changed: 2}, {Topic: "orders", MaxInFlight: 8, Changed: 3}, {Topic: "orders", Paused: true, Changed: 4}}
	fl.gates.apply(policies[:1])
	g := fl.gates.byTopic["orders"]
	start := time.Now()
	rel := func() int64 { return time.Now().UnixMilli() }
	all := map[int64]*fakeTask{}
	held := map[int64]line.HeldTask{}
	type inLine struct {
		seq   int64
		ready time.Time
	}
	lines := map[int][]inLine{}
	seq := int64(0)
	add := func(at int64, key int) *fakeTask {
		seq++
		f := &fakeTask{at: at, seq: seq, key: key, slot: []int{0, 2, 3, 1}[key%4]}
		all[seq] = f
		return f
	}
	type pending = struct {
		at time.Time
		do func()
	}
	turn, split, movedHeld := int64(1), false, int64(task.Held(0)-1)
	// resumed: held before
	for i := range int64(r.Intn(400)) {
		f := add(rel()-2000+i*4, r.Intn(12))
		held[f.seq] = line.HeldTask{HeldPlace: line.HeldPlace{Pos: task.Held(f.at), Seq: f.seq}, Slot: f.slot, Topic: "orders"}
	}
	lastAt := map[int]int64{}
	sent, lastSent := 0, time.Now()
	flights := []time.Time{}
	released := map[int64]bool{}
	release := func(tk *Task) {
		if released[tk.seq] {
			t.Errorf("seed %d: %d doubled", seed, tk.seq)
		}
		released[tk.seq] = true
		f := all[tk.seq]
		if f.at < lastAt[f.key] {
			t.Errorf("seed %d: at %v key %d slot %d: %d after %d", seed, time.Since(start), f.key, f.slot, f.at-start.UnixMilli(), lastAt[f.key]-start.UnixMilli())
		}
		lastAt[f.key] = max(lastAt[f.key], f.at)
		sent++
		lastSent = time.Now()
		g.sending++
		flights = append(flights, time.Now().Add(time.Duration(2+r.Intn(30))*time.Millisecond))
	}
	var settle, look *pending
	var seenRows *pending
	lag := func(least, most int) time.Time {
		d := least + r.Intn(most)
		if r.Intn(30) == 0 {
			d += r.Intn(1500)
		}
		return time.Now().Add(time.Duration(d) * time.Millisecond)
	}
	rows := func() []store.Slot {
		base := store.Change{Turn: turn, Base: 2, Target: 1, Spread: 2}
		two := base
		if split {
			two.Spread, two.Moved, two.MovedHeld = 1, never, movedHeld
		}
		out := []store.Slot{{Slot: 0, Epoch: 5, Change: base}, {Slot: 1, Change: two}}
		for _, s := range []int{2, 3} {
			out = append(out, store.Slot{Slot: s, Epoch: 5, Change: store.Change{Turn: turn}})
		}
		return out
	}
	fl.Owning.SlotsSeen(rows())
	turnSeen := turn
	var queue []*Gate
	moving := func() { // the other owner moves
		var places []line.HeldPlace
		for _, h := range held {
			if h.Slot == 1 {
				places = append(places, h.HeldPlace)
			}
		}
		slices.SortFunc(places, line.HeldPlace.Compare)
		if len(places) == 0 {
			movedHeld = never
			return
		}
		places = places[:min(len(places), 1+r.Intn(20))]
		for _, p := range places {
			h := held[p.Seq]
			h.Slot, all[p.Seq].slot = 0, 0
			held[p.Seq] = h
		}
		movedHeld = places[len(places)-1].Pos - 1
	}
	nextMove := time.Now().Add(time.Duration(r.Intn(3000)) * time.Millisecond)
	const ends = 12 * time.Second
	for time.Since(start) < 40*time.Second {
		now := time.Now()
		calm := time.Since(start) > ends
		if !calm {
			for range r.Intn(4) {
				key := r.Intn(12)
				f := add(rel(), key)
				if f.slot == 1 {
					if !split { // foreign: held there before, at most
						if r.Intn(2) == 0 {
							held[f.seq] = line.HeldTask{HeldPlace: line.HeldPlace{Pos: task.Held(f.at), Seq: f.seq}, Slot: 1, Topic: "orders"}
						} else {
							delete(all, f.seq)
						}
						continue
					}
					f.slot = 0
				}
				lines[f.slot] = append(lines[f.slot], inLine{f.seq, now.Add(time.Duration(5+r.Intn(30)) * time.Millisecond)})
			}
			if r.Intn(100) == 0 {
				p := policies[r.Intn(3)]
				if r.Intn(4) == 0 {
					p = policies[3]
				}
				p.Changed = now.UnixNano()
				fl.gates.apply([]admin.Policy{p})
			}
			if r.Intn(60) == 0 {
				l := fl.slots[[]int{0, 2, 3}[r.Intn(3)]]
				if l.leaving.IsZero() {
					l.leaving = now
					fl.gates.leaves(l)
				} else {
					fl.Owning.stays(l)
				}
			}
			if r.Intn(50) == 0 {
				fl.gates.lookAgain(line.HeldPlace{})
			}
		} else {
			for _, l := range fl.slots {
				if !l.leaving.IsZero() {
					fl.Owning.stays(l)
				}
			}
			if g.Paused || g.room > 0 || g.pace != nil {
				fl.gates.apply([]admin.Policy{{Topic: "orders", Changed: now.UnixNano()}})
			}
		}
		if now.After(nextMove) {
			if !split {
				split, turn = true, turn+1
			} else if movedHeld != never {
				moving()
			}
			nextMove = now.Add(time.Duration(5+r.Intn(100)) * time.Millisecond)
		}
		if seenRows == nil {
			got := rows()
			tn := turn
			seenRows = &pending{lag(50, 200), func() { fl.Owning.SlotsSeen(got); turnSeen = tn }}
		}
		if seenRows.at.Before(now) {
			seenRows.do()
			seenRows = nil
		}
		for _, s := range []int{0, 2, 3} {
			ln := lines[s]
			l := fl.slots[s]
			if !l.leaving.IsZero() || turnSeen < turn && s != 2 && s != 3 {
				continue
			}
			for len(ln) > 0 && ln[0].ready.Before(now) {
				f := all[ln[0].seq]
				ln = ln[1:]
				one := &Task{slot: l, seq: f.seq, at: f.at, content: &content{topic: "orders"}}
				fl.gates.arrives(one)
				if !fl.gates.detains(one, fl.clock.Millis()) {
					release(one)
				}
			}
			lines[s] = ln
		}
		if settle == nil {
			tr, rc, _ := fl.inbox.takeLeaving(recallMost)
			if len(tr)+len(rc) > 0 {
				settle = &pending{lag(10, 90), func() {
					for _, e := range tr {
						f := all[e.Seq]
						held[e.Seq] = line.HeldTask{HeldPlace: line.HeldPlace{Pos: e.Pos, Seq: e.Seq}, Slot: f.slot, Topic: "orders"}
						e.task.status = left
					}
					for _, e := range rc {
						h, ok := held[e.Seq]
						ok = ok && h.Pos == e.From && h.Slot == e.Slot
						if ok {
							delete(held, e.Seq)
							lines[h.Slot] = append(lines[h.Slot], inLine{e.Seq, time.Now().Add(time.Duration(10+r.Intn(100)) * time.Millisecond)})
						}
						e.gate.coming.settled(e.Seq, ok, time.Now().Add(recallWait))
					}
				}}
			}
		}
		if settle != nil && settle.at.Before(now) {
			settle.do()
			settle = nil
		}
		if look == nil {
			if len(queue) == 0 {
				queue = fl.gates.restless(true)
			}
			if len(queue) > 0 {
				gate := queue[0]
				queue = queue[1:]
				lk := fl.Policies.LookBehind(gate)
				var page []line.HeldTask
				read := false
				at := lag(2, 30)
				readAt := now.Add(time.Duration(r.Int63n(int64(at.Sub(now)) + 1)))
				look = &pending{readAt, func() {
					if !read {
						for _, h := range held {
							if h.Compare(lk.After) > 0 {
								page = append(page, h)
							}
						}
						slices.SortFunc(page, func(a, b line.HeldTask) int { return a.Compare(b.HeldPlace) })
						page = page[:min(len(page), lk.Most)]
						read = true
						look.at = at
						return
					}
					lk.Read(page)
					look = nil
				}}
			}
		}
		if look != nil && look.at.Before(now) {
			look.do()
		}
		flights = slices.DeleteFunc(flights, func(at time.Time) bool {
			if at.Before(now) {
				g.sending--
				return true
			}
			return false
		})
		fl.gates.release(func() bool { return true }, release)
		if calm && time.Since(start) > ends+20*time.Second {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if len(released) != len(all) {
		t.Errorf("seed %d: %d of %d released, last %v ago; held %d coming %d waiting %d holding %d behind %v", seed, len(released), len(all), time.Since(lastSent), len(held), g.coming.count(), len(g.waiting), len(g.holding), g.behind)
	}
}
