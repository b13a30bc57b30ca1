package flight

import (
	"cmp"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
)

const (
	// SweepEvery is how often the database itself is asked for the next tasks, whatever the index
	// says. The question costs one look into an index for each slot.
	SweepEvery = time.Second
	// lead is how long before its due time a task is claimed after a wake. A claim and the fetch of
	// a body take a few milliseconds.
	lead = 25 * time.Millisecond
	// ClaimPause keeps a stream of tasks due at once from becoming a claim each.
	ClaimPause = 5 * time.Millisecond
	// overdue is how late the next task of a slot may be before the slot is claimed piece by piece.
	overdue = 2 * time.Second
)

// Claim is a slot being claimed, with all that the claim needs: settling moves the slot's next.
type Claim struct {
	Slot     int
	Epoch    int64
	From, To int64
	Turn     int64
	Behind   bool // an outage has passed: the slot is claimed a bite at a time
	slot     *ownedSlot
}

// Claims is for the claim loop.
type Claims struct{ Owned }

// Claiming is a round of claims. Its slots are not given back until End, because the claims happen
// after Begin.
type Claiming struct {
	*machine
	Claims []Claim
	Room   int // how many tasks may still enter
}

// Woken notes wakes: the earliest due time of a slot, or that timers were changed there.
func (fl Claims) Woken(places []slots.Pos) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, p := range places {
		switch l := fl.slots[p.Slot]; {
		case l == nil:
		case p.Pos == slots.TimersChanged:
			fl.kicks.Timers.Now()
		default:
			l.urgent = min(l.urgent, p.Pos)
		}
	}
}

// Swept notes an answer of the database: the place of every slot was compared already, and next are
// the next tasks of the slots.
func (fl Claims) Swept(before Known, next []slots.Pos) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for slot, h := range before {
		if l := fl.slots[slot]; l != nil && l == h.slot {
			l.looked = true
		}
	}
	for _, n := range next {
		if l := fl.slots[n.Slot]; l != nil && n.Pos > l.claimed {
			if n.Pos < l.next && n.Pos <= fl.clock.Millis() {
				fl.metrics.Swept.Inc() // overdue, and nobody had told of it
			}
			l.next = min(l.next, n.Pos)
			// The first place behind the claimed ones has tasks that came when their own place was
			// claimed already, and may be due.
			if n.Pos == l.claimed+1 {
				l.urgent = min(l.urgent, fl.clock.Millis())
			}
		}
	}
}

// NextKnown notes the next places of slots, by the index.
func (fl Claims) NextKnown(next []slots.Pos) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, n := range next {
		if l := fl.slots[n.Slot]; l != nil && n.Pos > l.claimed {
			l.next = min(l.next, n.Pos)
		}
	}
}

// NextBy returns the slots with a task due by then.
func (fl Claims) NextBy(end int64) (slots []int) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, l := range fl.slots {
		if l.next <= end && l.leaving.IsZero() {
			slots = append(slots, l.number)
		}
	}
	return slots
}

// claimAt returns when a slot is to be claimed next, with a look-ahead of so many ms.
func (fl Claims) claimAt(l *ownedSlot, ahead int64) int64 {
	if !l.leaving.IsZero() || l.claiming || l.claimMost <= l.claimed {
		return never
	}
	at := int64(never)
	if l.next != never {
		at = l.next - ahead + fl.cfg.LookAhead.Milliseconds()/2
	}
	if l.urgent != never {
		at = min(at, l.urgent-lead.Milliseconds())
	}
	return at
}

// Until is how long until something is to be claimed, with a look-ahead of so many ms.
func (fl Claims) Until(ahead int64) time.Duration {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.full() {
		return SweepEvery // settling kicks
	}
	at := int64(never)
	for _, l := range fl.slots {
		at = min(at, fl.claimAt(l, ahead))
	}
	return time.Duration(min(max(at-fl.clock.Millis(), 0), SweepEvery.Milliseconds())) * time.Millisecond
}

// maxEntries bounds the tasks in memory without a body, at about 80 bytes each. One millisecond's
// tasks are claimed together, so a single claim may exceed the bound.
func (fl *machine) maxEntries() int { return 30 * fl.cfg.StageTasks }

func (fl *machine) full() bool { return fl.entries >= fl.maxEntries() }

// Begin decides which slots are claimed now, and how far: always further than before.
func (fl Claims) Begin(lookAhead int64) Claiming {
	now := fl.clock.Millis()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	round := Claiming{machine: fl.machine, Room: fl.maxEntries() - fl.entries}
	if round.Room <= 0 {
		return round
	}
	ahead, trigger := now+lookAhead, false
	for _, l := range fl.slots {
		at := fl.claimAt(l, lookAhead)
		trigger = trigger || at <= now
		if at <= now || at != never && l.next <= ahead {
			round.Claims = append(round.Claims, Claim{Slot: l.number, Epoch: l.epoch, Turn: l.turn, From: l.claimed, To: min(l.reach(ahead), l.claimMost), Behind: l.liesBehind(now - overdue.Milliseconds()), slot: l})
		}
	}
	if !trigger {
		return Claiming{machine: fl.machine}
	}
	for _, c := range round.Claims {
		c.slot.claiming = true
	}
	slices.SortFunc(round.Claims, func(a, b Claim) int { return a.Slot - b.Slot })
	return round
}

// CatchUp returns the slots of which the database calls more claimed than is known here, because
// the reply to a claim was lost. Until End nobody else claims them.
func (fl Owning) CatchUp(slots []store.Slot) Claiming {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	behind := Claiming{machine: fl.machine}
	for _, s := range slots {
		if l := fl.slots[s.Slot]; l != nil && l.epoch == s.Epoch && l.claimed < s.Claimed && !l.claiming {
			l.claiming = true
			behind.Claims = append(behind.Claims, Claim{Slot: l.number, Epoch: l.epoch, From: l.claimed, To: s.Claimed, slot: l})
		}
	}
	return behind
}

// End ends the claims, whether they came about or not.
func (fl Claiming) End() {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, c := range fl.Claims {
		c.slot.claiming = false
	}
}

// Abandoned says whether none of the slots is ours any more.
func (fl Claiming) Abandoned(claims []Claim) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return !slices.ContainsFunc(claims, func(c Claim) bool { return !c.slot.abandoned })
}

// Claimed moves slots to where they are claimed, with the tasks of the claimed places.
func (fl Claiming) Claimed(claims []Claim, entries []line.Entry) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	ours := make(map[int]*ownedSlot, len(claims))
	for _, c := range claims {
		c.slot.claimTo(c.To)
		if !c.slot.abandoned {
			ours[c.Slot] = c.slot
		}
	}
	fl.enter(ours, entries, false)
}

// enter puts claimed tasks, in the order of their slots, into the slots and into the queue for
// bodies.
func (fl *machine) enter(owned map[int]*ownedSlot, entries []line.Entry, doubt bool) {
	now := fl.clock.Millis()
	queue := make([]*Task, 0, len(entries))
	tasks := make([]Task, len(entries)) // one allocation for all
	for i, e := range entries {
		l := owned[e.Slot]
		if l == nil {
			continue
		}
		t := &tasks[i]
		*t = Task{slot: l, seq: e.Seq, pos: e.Pos, at: e.Pos, order: e.Pos, lane: e.Lane, doubt: doubt}
		// A task that came when its own place was claimed already is due before its place says. A
		// task that belongs to the place must not overtake those claimed before.
		if e.Pos == l.before+1 || doubt && e.Due > 0 {
			t.at, t.order = min(t.at, max(e.Due, now)), e.Due
		}
		l.tasks = append(l.tasks, t)
		fl.entries++
		if original := fl.stuck[e.Seq]; original != nil { // with the producer from here
			if original.lateAnswer {
				t.status = leaving
			} else {
				fl.setAside(t, original)
			}
			continue
		}
		queue = append(queue, t)
	}
	slices.SortStableFunc(queue, func(a, b *Task) int { return cmp.Compare(a.at, b.at) })
	fl.backlog.push(queue)
	fl.kicks.Fetch.Now()
}

// claimTo moves claimed. Known places beyond stay known.
func (l *ownedSlot) claimTo(to int64) {
	l.before, l.claimed, l.looked = l.claimed, to, false
	if l.next <= to {
		l.next = never
	}
	if l.urgent <= to && l.next != to+1 { // right behind it stands what came when its own place was claimed already
		l.urgent = never
	}
}

// liesBehind says whether the next task was due before an instant, or may have been: a wake and the
// index tell of single tasks, and only the database of the first.
func (l *ownedSlot) liesBehind(at int64) bool { return l.next < at || !l.looked && l.claimed < at }

// reach returns how far a claim of the slot goes. The slot may be claimed beyond the look-ahead:
// before a burst the look-ahead was longer, or the database's clock was set back. Then late tasks
// stand right behind claimed, and a few places are enough. The pause between claims is longer than
// a few places last, so time catches up. Multiples let slots be claimed together.
func (l *ownedSlot) reach(ahead int64) int64 {
	const few = int64(ClaimPause / time.Millisecond)
	if ahead > l.claimed {
		return ahead
	}
	return (l.claimed/few + 1) * few
}
