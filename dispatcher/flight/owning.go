package flight

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// Owned are questions of any loop about the owned slots: none changes anything.
type Owned struct{ *machine }

// Owning is for the loop that takes and gives back slots.
type Owning struct{ Owned }

// OwnsFirst says whether slot 0 is owned: its owner does the work of one dispatcher for all.
func (fl Owned) OwnsFirst() bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.slots[0] != nil
}

// SlotView is an owned slot at some moment.
type SlotView struct {
	Slot          int
	Claimed, Done int64
}

// Views returns the owned slots, ascending.
func (fl Owned) Views() []SlotView {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	out := make([]SlotView, 0, len(fl.slots))
	for _, l := range fl.slots {
		out = append(out, SlotView{l.number, l.claimed, l.done})
	}
	slices.SortFunc(out, func(a, b SlotView) int { return a.Slot - b.Slot })
	return out
}

// Staying returns the slots not to be given away, ascending.
func (fl Owned) Staying() []store.SlotEpoch {
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

// Owns says whether a task's slot is still ours: neither abandoned nor given back, and not another
// ownership of the same slot.
func (fl Owned) Owns(t *Task) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.owns(t)
}

func (fl *machine) owns(t *Task) bool {
	return !t.slot.abandoned && fl.slots[t.slot.number] == t.slot
}

// Missing returns the assigned slots without an owner here.
func (fl Owning) Missing(assigned []int) []int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.missing(assigned)
}

func (fl Owning) missing(assigned []int) (out []int) {
	for _, slot := range assigned {
		if fl.slots[slot] == nil {
			out = append(out, slot)
		}
	}
	return out
}

// Known returns the slots of this moment, for SlotsRead and Swept.
func (fl Owned) Known() Known {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	out := make(Known, len(fl.slots))
	for slot, l := range fl.slots {
		out[slot] = knownSlot{l, l.claimed, l.done, l.turn}
	}
	return out
}

// Took begins on acquired slots. The entries are the tasks that the previous owner claimed and did
// not close: they are in doubt, less those acknowledged by the send log here.
func (fl Owning) Took(got []store.Slot, epoch int64, entries []line.Entry, proven Proofs) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, s := range got {
		fl.gates.slots = s.Count()
		l := &ownedSlot{number: s.Slot, epoch: epoch, claimed: s.Claimed, done: s.Done, next: never, urgent: never, turn: s.Turn, claimMost: never, callMost: never}
		if s.Changing() { // how far it may be claimed depends on others
			l.claimMost, l.callMost = s.Claimed, 0
			fl.kicks.Slots.Now()
		}
		fl.slots[s.Slot] = l
		delete(fl.lost, s.Slot)
	}
	fl.gates.lookAgain(line.HeldPlace{})
	maps.Copy(fl.proofs, proven)
	fl.enter(fl.slots, entries, true)
	fl.metrics.Doubts.Add(float64(len(entries)))
	fl.kicks.Sweep.Now()
	fl.kicks.Settle.Now()
	fl.kicks.Timers.Now()
}

// SlotsRead holds slots, as they were read, against their state before the reading: a reading says
// nothing about slots taken, claimed or settled meanwhile. All that was known was in the database
// by then, so slots has all of before. A slot is abandoned when it is no longer ours, or when the
// database has forgotten something of the slot: the database was set back, and the slot is to be
// taken anew. SlotsRead returns the slots of which the database has forgotten nothing since its
// start: they are to be confirmed.
func (fl Owning) SlotsRead(slots []store.Slot, before Known) (unsure []Unsure) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	there := make(map[int]bool, len(slots))
	for _, s := range slots {
		there[s.Slot] = true
		fl.gates.slots = s.Count()
		h := before[s.Slot]
		l := fl.slots[s.Slot]
		switch {
		case l == nil || l != h.slot || l.releasing && s.Epoch == l.epoch && s.Owner == "": // it is being given back: see Released
		case s.Epoch < l.epoch:
			fl.abandonOurs(l, "the database was set back: it has forgotten that the slot was taken")
		case s.Epoch != l.epoch || s.Owner != fl.cfg.MemberID:
			fl.abandon(l, "the database says that it is not ours")
		case s.Claimed < h.claimed || s.Done < h.done:
			fl.abandonOurs(l, "the database was set back: it has forgotten what was claimed or settled")
		case s.Turn < h.turn || s.MayHaveMoved():
			fl.abandonOurs(l, "the database was started anew while the number of slots changes: tasks that had moved away may be here again")
		case s.Unsure:
			unsure = append(unsure, Unsure{s, l.claimed}) // not h.claimed: the latest claim may be among what was forgotten
		}
		if l != nil && s.Turn != l.turn {
			fl.kicks.Slots.Now()
		}
	}
	for slot, h := range before {
		if !there[slot] && fl.slots[slot] == h.slot {
			fl.abandon(h.slot, "the database was set back: it has forgotten that the slot was made")
		}
	}
	return unsure
}

// Unsure is a slot of which the database may have forgotten a claim.
type Unsure struct {
	store.Slot
	From int64 // claimed here, by now
}

// Had returns the knowledge here of slots about to be taken or given away: how far abandoned slots,
// not taken since, were claimed, and which tasks the producers have, or have delivered. A database
// that was set back may have forgotten a part: then nobody may cancel a task that was delivered, or
// may yet be, and delivered tasks are in doubt. No owner claims further than Reach, by any clock,
// if all have one configuration.
func (fl Owning) Had(slots []int) line.Known {
	reach := fl.clock.Latest() + fl.cfg.Furthest.Milliseconds()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	out := line.Known{Slots: make([]line.Had, len(slots))}
	for _, seq := range slices.Sorted(maps.Keys(fl.stuck)) {
		out.Sent = append(out.Sent, fl.stuck[seq].asSent())
	}
	for _, slot := range slices.Sorted(maps.Keys(fl.delivered)) {
		out.Sent = append(out.Sent, fl.delivered[slot]...)
	}
	for i, slot := range slots {
		had := fl.lost[slot]
		if l := fl.slots[slot]; l != nil {
			had.claimed, had.turn = max(had.claimed, l.claimed), max(had.turn, l.turn)
		}
		out.Slots[i] = line.Had{Slot: slot, Pos: had.claimed, Turn: had.turn, Reach: reach}
	}
	return out
}

// HeldLater says whether a slot was held here under a later epoch than the database names: the
// database was set back, and the named owner has let go of the slot, or was fenced.
func (fl Owning) HeldLater(s store.Slot) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.lost[s.Slot].epoch > s.Epoch
}

// Forgotten says whether the database has less claimed of a slot than it had when it was held here.
func (fl Owning) Forgotten(s store.Slot) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return s.Claimed < fl.lost[s.Slot].claimed
}

// abandonOurs forgets a slot still ours to the database: the slot is taken anew, or given away.
func (fl *machine) abandonOurs(l *ownedSlot, why string) {
	fl.strays.note([]int{l.number}, l.epoch)
	fl.abandon(l, why)
}

// abandon forgets a lost slot. Its records with a producer stay known until answered.
func (fl *machine) abandon(l *ownedSlot, why string) {
	l.abandoned = true
	before := fl.lost[l.number]
	fl.lost[l.number] = lostSlot{max(before.epoch, l.epoch), max(before.claimed, l.claimed), max(before.turn, l.turn)}
	delete(fl.slots, l.number)
	fl.entries -= len(l.open())
	for _, t := range l.open() {
		if t.status == sending && t.with != nil {
			fl.stuck[t.seq] = t
		}
		fl.keepDelivered(t)
		fl.unstage(t)
		fl.unsettled.ends(t)
		fl.proofs.forget(t.seq)
	}
	fl.forgetParked(l)
	fl.forgetAnswered(l)
	fl.metrics.Abandoned.Inc()
	fl.log.Warn("abandoning a slot", zap.String("because", why), zap.Int("slot", l.number), zap.Int64("epoch", l.epoch), zap.Int("tasks", len(l.open())))
	fl.kicks.Own.Now()
}

// Leavers returns, by epoch, drained slots that are not assigned here. One that takes too long is
// abandoned here first, and then, as a stray, in the database: from then on another may send its
// tasks.
func (fl Owning) Leavers(assigned []int) map[int64][]int {
	drained := map[int64][]int{}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	ending := fl.endingLate()
	for _, l := range fl.slots {
		if _, mine := slices.BinarySearch(assigned, l.number); mine && !l.releasing {
			if !l.leaving.IsZero() {
				fl.stays(l)
			}
			continue
		}
		if l.leaving.IsZero() {
			l.leaving = time.Now()
			fl.gates.leaves(l)
		}
		switch {
		case l.drained() && !ending[l.number]:
			l.releasing = true
			drained[l.epoch] = append(drained[l.epoch], l.number)
		case l.leavingFor() <= fl.cfg.DrainTimeout/2:
		case l.leavingFor() <= fl.cfg.DrainTimeout:
			fl.leaveBehind(l)
		default:
			fl.abandonOurs(l, "it did not drain in time")
		}
	}
	return drained
}

// stays keeps a slot that was to leave. Loops look again at a slot passed over meanwhile.
func (fl Owning) stays(l *ownedSlot) {
	l.leaving = time.Time{}
	fl.gates.lookAgain(line.HeldPlace{})
	fl.kicks.Claim.Now()
	fl.kicks.Timers.Now()
}

// endingLate returns the slots of tasks that were set aside, are answered since, and have no stored
// end. The tasks are out of their slots, and the slots may have drained. Without the ends, the next
// owner sends the tasks again.
func (fl Owning) endingLate() map[int]bool {
	slots := map[int]bool{}
	for _, t := range fl.stuck {
		if t.lateAnswer {
			slots[t.slot.number] = true
		}
	}
	return slots
}

// Released takes the outcome of giving slots back: the kept ones the database still calls ours. It
// returns the others.
func (fl Owning) Released(slots []int, epoch int64, kept []int) (gone []int) {
	gone = slices.DeleteFunc(slices.Clone(slots), func(slot int) bool { return slices.Contains(kept, slot) })
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, slot := range slots {
		if l := fl.slots[slot]; l != nil && l.epoch == epoch {
			if slices.Contains(gone, slot) {
				delete(fl.slots, slot)
				fl.forgetParked(l)
				fl.forgetAnswered(l)
			} else {
				l.releasing = false
			}
		}
	}
	return gone
}

// forgetAnswered forgets tasks set aside and about to end by late answers: their ends are lost with
// the slot. If the slot comes back, the tasks are claimed like any other. A task without an answer
// stays known, because the producer still has it.
func (fl *machine) forgetAnswered(l *ownedSlot) {
	for seq, t := range fl.stuck {
		if t.lateAnswer && t.slot == l {
			delete(fl.stuck, seq)
			fl.keepDelivered(t)
		}
	}
}

// keepDelivered remembers a delivery of a lost slot, until the slot is taken anew or given away: a
// database that was set back may have the task as pending, and callers could cancel it.
func (fl *machine) keepDelivered(t *Task) {
	_, stray := fl.strays[t.slot.number]
	if stray && fl.slots[t.slot.number] == nil && t.content != nil && t.arrived {
		fl.delivered[t.slot.number] = append(fl.delivered[t.slot.number], t.asSent())
	}
}

func (t *Task) asSent() line.Sent {
	return line.Sent{Slot: t.slot.number, Seq: t.seq, Number: t.sendNumber()}
}

// Taking notes slots about to be taken: however the taking ends, the database may call them ours.
func (fl Owning) Taking(slots []int, epoch int64) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.strays.note(slots, epoch)
}

// Clear says that slots under an epoch were clearly begun, or given back.
func (fl Owning) Clear(slots []int, epoch int64) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.strays.settle(slots, epoch)
	maps.DeleteFunc(fl.delivered, func(slot int, _ []line.Sent) bool { _, stray := fl.strays[slot]; return !stray })
}

// Strays returns, by epoch, slots not assigned or worked on here, but maybe ours to the database.
func (fl Owning) Strays(assigned []int) map[int64][]int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.strays.without(assigned)
}

// AsAssigned says whether the assigned slots are owned, and nothing else.
func (fl Owning) AsAssigned(assigned []int) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return len(fl.slots) == len(assigned) && len(fl.missing(assigned)) == 0 && len(fl.strays) == 0
}

// leaveBehind ends delivered tasks one by one, where a task before them holds done back: its target
// does not answer, or its body is not read yet. The task in front may take longer than the slot
// stays here, and the next owner would send all behind it again. A settlement under way may count
// only the tasks that it can close.
func (fl Owning) leaveBehind(l *ownedSlot) {
	to, _ := l.closable()
	for _, t := range l.open() {
		if t.status == settled && t.pos > to {
			fl.settleApart(t)
		}
	}
}

// settleApart ends a delivered task alone.
func (fl *machine) settleApart(t *Task) {
	fl.leave(t, Transition{Transition: line.Transition{State: task.StateSucceeded, Attempt: t.attempt + 1, Lane: t.lane}})
}
