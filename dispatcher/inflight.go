package dispatcher

import (
	"cmp"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/store"
)

// inFlight holds the owned slots and every task that is in flight: claimed, and not closed. Its lock makes one step of what belongs
// together, whichever part takes the step:
//
//   - a slot and its tasks: what comes in for a slot that was abandoned is thrown away, and nothing of it stays counted;
//   - a task's status, what it takes in memory (staging), and that it leaves (leave);
//   - an outlet (see outlets) and the tasks that it has: one that falls silent, and that they leave their slots; an answer, and its
//     outcome;
//   - a slot that is claimed and one that is given back: never both.
//
// Methods of all parts need this lock, and say so. Locks are taken in this order: mu, and then one of those that guard
// queues alone: backlog.mu, inbox.mu, strays.mu, lost.mu, or announcer.mu and then deferred.mu; or that of the election's view, which calls
// nobody. Nobody waits for a database, a broker or the index under any of them.
type inFlight struct {
	*shared
	backlog *backlog // whose bodies are to be read
	inbox   *inbox   // what is to be settled
	lost    lostClaims

	mu        sync.Mutex
	slots     map[int]*ownedSlot     // the owner loop adds; abandon and give-away delete; all read
	arrived   int                    // how often slots came, or were to leave and stay after all; the owner loop counts
	entries   int                    // tasks in slots, with their bodies or without: as slots
	staging   staging                // the fetch loop adds, whoever ends a task removes
	unsettled unsettled              // the release loop and the producers' promises add, the settle loop and abandon remove
	proofs    proofs                 // of tasks in doubt: the owner loop adds, the fetch loop takes
	stuck     map[int64]*claimedTask // sent, unanswered for long, and out of their slot since; by seq. The settle loop writes, enter reads
}

func newInFlight(sh *shared) *inFlight {
	return &inFlight{
		shared: sh, backlog: newBacklog(), inbox: &inbox{}, slots: map[int]*ownedSlot{}, proofs: proofs{}, stuck: map[int64]*claimedTask{},
		staging: staging{maxTasks: sh.cfg.StageTasks, maxBytes: sh.cfg.StageBytes}, unsettled: unsettled{pace: firstPace},
	}
}

// leftoverSources lets one dispatcher look after the events of transitions that were left in the outbox: the owner of slot 0.
func (fl *inFlight) leftoverSources() []int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.slots[0] == nil {
		return nil
	}
	return []int{store.TransitionSource}
}

func (fl *inFlight) endClaim(ready []claimable) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, l := range ready {
		l.claiming = false
	}
}

func (fl *inFlight) allAbandoned(ready []claimable) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return !slices.ContainsFunc(ready, func(l claimable) bool { return !l.abandoned })
}

// takeIn moves slots to where they are claimed, with the tasks that stand there.
func (fl *inFlight) takeIn(ready []claimable, entries []store.Entry) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	ours := make(map[int]*ownedSlot, len(ready))
	for _, l := range ready {
		l.claimTo(l.to)
		if !l.abandoned {
			ours[l.number] = l.ownedSlot
		}
	}
	fl.enter(ours, entries, false)
}

// enter puts claimed tasks into their slots and into the queue for their bodies. They come in the order of their slots. inFlight.mu is held.
func (fl *inFlight) enter(owned map[int]*ownedSlot, entries []store.Entry, doubt bool) {
	now := fl.clock.Millis()
	queue := make([]*claimedTask, 0, len(entries))
	tasks := make([]claimedTask, len(entries)) // one allocation for all
	for i, e := range entries {
		l := owned[e.Slot]
		if l == nil {
			continue
		}
		t := &tasks[i]
		*t = claimedTask{slot: l, seq: e.Seq, pos: e.Pos, at: e.Pos, lane: e.Lane, doubt: doubt}
		// What came when its own place was claimed already is due before its place says. What belongs there must not overtake what was
		// claimed before it.
		if e.Pos == l.before+1 {
			t.at = min(t.at, max(e.Due, now))
		}
		l.tasks = append(l.tasks, t)
		fl.entries++
		if original := fl.stuck[e.Seq]; original != nil { // with the producer from here
			if original.answered {
				t.status = leaving
			} else {
				fl.setAside(t, original)
			}
			continue
		}
		queue = append(queue, t)
	}
	slices.SortStableFunc(queue, func(a, b *claimedTask) int { return cmp.Compare(a.at, b.at) })
	fl.backlog.push(queue)
	fl.kicks.fetch.now()
}

// unstage forgets what staging held, if it still holds it. inFlight.mu is held.
func (fl *inFlight) unstage(t *claimedTask) {
	if fl.staging.remove(t) {
		t.dropContent()
		fl.kicks.fetch.now()
	}
}

type slotView struct {
	slot          int
	claimed, done int64
}

func (fl *inFlight) views() []slotView {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	out := make([]slotView, 0, len(fl.slots))
	for _, l := range fl.slots {
		out = append(out, slotView{l.number, l.claimed, l.done})
	}
	slices.SortFunc(out, func(a, b slotView) int { return a.slot - b.slot })
	return out
}

func slotsOf(views []slotView) []int {
	out := make([]int, len(views))
	for i, v := range views {
		out[i] = v.slot
	}
	return out
}

// ownedEpochs returns the slots that are not to be given away, ascending.
func (fl *inFlight) ownedEpochs() []store.SlotEpoch {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	out := make([]store.SlotEpoch, 0, len(fl.slots))
	for _, l := range fl.slots {
		if l.leaving.IsZero() && !l.abandoned {
			out = append(out, store.SlotEpoch{Slot: l.number, Epoch: l.epoch})
		}
	}
	slices.SortFunc(out, func(a, b store.SlotEpoch) int { return a.Slot - b.Slot })
	return out
}

// owns says that a slot is still ours: neither abandoned nor given back, and not another ownership of the same slot.
func (fl *inFlight) owns(l *ownedSlot) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return !l.abandoned && fl.slots[l.number] == l
}

func (fl *inFlight) ownedSlots() int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return len(fl.slots)
}

// held is a slot as it was known here at some moment.
type held struct {
	slot          *ownedSlot
	claimed, done int64
}

// had returns the slots of this moment, for compare.
func (fl *inFlight) had() map[int]held {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	out := make(map[int]held, len(fl.slots))
	for slot, l := range fl.slots {
		out[slot] = held{l, l.claimed, l.done}
	}
	return out
}

// abandon forgets a slot that is no longer ours. inFlight.mu is held.
func (fl *inFlight) abandon(l *ownedSlot, why string) {
	l.abandoned = true
	fl.lost.note(l.number, l.claimed)
	delete(fl.slots, l.number)
	fl.entries -= len(l.open())
	for _, t := range l.open() {
		fl.unstage(t)
		fl.unsettled.ends(t)
		fl.proofs.forget(t.seq)
	}
	fl.forgetAnswered(l)
	fl.metrics.abandoned.Inc()
	fl.log.Warn("abandoning a slot", zap.String("because", why), zap.Int("slot", l.number), zap.Int64("epoch", l.epoch), zap.Int("tasks", len(l.open())))
	fl.kicks.own.now()
}

func (fl *inFlight) missing(assigned election.Assignment) []int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	var out []int
	for _, slot := range assigned.Slots {
		if fl.slots[slot] == nil {
			out = append(out, slot)
		}
	}
	return out
}

// parkedTasks counts what is remembered. inFlight.mu is held.
func (fl *inFlight) parkedTasks() (n int) {
	for _, l := range fl.slots {
		n += len(l.parked)
	}
	return n
}

// forgetAnswered forgets tasks that were set aside and whose late answers were about to end them: those ends are lost with the slot. If
// the slot comes back, they are claimed like any other. A task without an answer stays known, because the producer still has it. inFlight.mu is held.
func (fl *inFlight) forgetAnswered(l *ownedSlot) {
	for seq, t := range fl.stuck {
		if t.answered && t.slot.number == l.number {
			delete(fl.stuck, seq)
		}
	}
}

// leftAgain marks what was claimed anew of a task whose late answer has ended it. inFlight.mu is held.
func (fl *inFlight) leftAgain(e transition) {
	if l := fl.slots[e.Slot]; l != nil {
		for _, t := range l.open() {
			if t.seq == e.Seq && t.status == leaving {
				t.status = left
			}
		}
	}
}
