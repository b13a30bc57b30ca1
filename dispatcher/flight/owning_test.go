package flight

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// A task that was set aside unanswered, and is claimed again while it still is, must not be sent beside itself.
func TestStuckTaskIsNotSentAgainByItsOwner(t *testing.T) {
	t.Parallel()
	fl := newFlight(t, Config{})
	l := &ownedSlot{number: 0, epoch: 5}
	original := &Task{slot: l, seq: 9, status: left, content: &content{attempt: 2}}
	fl.stuck[9] = original
	fl.enter(map[int]*ownedSlot{0: l}, []line.Entry{{Place: slots.Place{Slot: 0, Pos: 50, Seq: 9}}, {Place: slots.Place{Slot: 0, Pos: 51, Seq: 10}}}, false)
	require.Equal(t, 1, fl.backlog.size())
	require.Equal(t, int64(10), fl.backlog.takeTurns(1, never)[0].seq)
	require.Len(t, fl.inbox.transitions, 1)
	require.Equal(t, task.StateRetry, fl.inbox.transitions[0].State)
	require.Equal(t, 2, fl.inbox.transitions[0].Attempt)
	require.Greater(t, fl.inbox.transitions[0].Pos, nowMillis()+8_000)

	original.lateAnswer = true // and when its end is on the way, it only has to get out of the way
	fl.inbox.transitions = nil
	fl.enter(map[int]*ownedSlot{0: l}, []line.Entry{{Place: slots.Place{Slot: 0, Pos: 90, Seq: 9}}}, false)
	require.Zero(t, fl.backlog.size())
	require.Empty(t, fl.inbox.transitions)
	require.Equal(t, leaving, l.tasks[len(l.tasks)-1].status)
}

// The late answer of a task that was set aside is about to end it when its slot is lost: that end is lost with it. Should the slot come
// back, the task is claimed and sent like any other; it held up its line for ever. One that is unanswered still is with the producer.
func TestAnsweredTasksOfALostSlotAreForgotten(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(fl *Flight, l *ownedSlot){
		"abandoned": func(fl *Flight, l *ownedSlot) { fl.abandon(l, "a test") },
		"forgotten": func(fl *Flight, l *ownedSlot) { delete(fl.slots, l.number); fl.forgetAnswered(l) },
	} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{})
			l := &ownedSlot{number: 0, epoch: 5}
			fl.slots[0] = l
			for seq := range int64(3) {
				other := l
				if seq == 2 {
					other = &ownedSlot{number: 1}
				}
				fl.stuck[seq] = &Task{slot: other, seq: seq, status: left, lateAnswer: seq != 1, content: &content{attempt: 2}}
			}
			lose(fl, l)
			require.Len(t, fl.stuck, 2)
			require.Contains(t, fl.stuck, int64(1), "unanswered")
			require.Contains(t, fl.stuck, int64(2), "of another slot")

			again := &ownedSlot{number: 0, epoch: 6}
			fl.enter(map[int]*ownedSlot{0: again}, []line.Entry{{Place: slots.Place{Slot: 0, Pos: 50, Seq: 0}}}, false)
			require.Equal(t, 1, fl.backlog.size())
			require.Equal(t, entered, again.tasks[0].status)
		})
	}
}

// A slot that is abandoned, and that the database calls ours, is given back, so that its next owner does not wait for us.
func TestSlotsThatTheDatabaseStillCallsOurs(t *testing.T) {
	t.Parallel()
	row := store.Slot{Slot: 0, Epoch: 5, Owner: "one", Claimed: 100, Done: 50}
	for name, c := range map[string]struct {
		lose  func(fl *Flight, l *ownedSlot)
		stray bool
	}{
		"a claim is forgotten": {func(fl *Flight, _ *ownedSlot) {
			forgot := row
			forgot.Claimed = 90
			fl.Owning.SlotsRead([]store.Slot{forgot}, fl.Known())
		}, true},
		"a settlement is forgotten": {func(fl *Flight, _ *ownedSlot) {
			forgot := row
			forgot.Done = 40
			fl.Owning.SlotsRead([]store.Slot{forgot}, fl.Known())
		}, true},
		"other tasks": {func(fl *Flight, l *ownedSlot) {
			Attempt{fl.machine, nil, []closing{{line.Done{Slot: 0, Epoch: 5, From: 50, To: 100}, l}}}.Settled(line.Settled{Mismatch: []int{0}}, 0)
		}, true},
		"that the slot was made": {func(fl *Flight, _ *ownedSlot) { fl.Owning.SlotsRead(nil, fl.Known()) }, false},
		"a step of a change": {func(fl *Flight, _ *ownedSlot) {
			seen, forgot := row, row
			seen.Turn = 2
			fl.Owning.SlotsSeen([]store.Slot{seen})
			forgot.Turn = 1
			fl.Owning.SlotsSeen([]store.Slot{forgot}) // whoever reads it first
			fl.Owning.SlotsRead([]store.Slot{forgot}, fl.Known())
			require.Equal(t, int64(2), fl.Owning.Had([]int{0}).Slots[0].Turn)
		}, true},
		"where tasks had moved, perhaps": {func(fl *Flight, _ *ownedSlot) {
			unsure := row
			unsure.Unsure, unsure.Base, unsure.Target = true, 1, 2
			fl.Owning.SlotsRead([]store.Slot{unsure}, fl.Known())
		}, true},
		"another owner": {func(fl *Flight, _ *ownedSlot) {
			theirs := row
			theirs.Owner, theirs.Epoch = "two", 6
			fl.Owning.SlotsRead([]store.Slot{theirs}, fl.Known())
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{})
			fl.Owning.Took([]store.Slot{row}, 5, nil, nil)
			c.lose(fl, fl.slots[0])
			require.Empty(t, fl.slots)
			require.Equal(t, c.stray, len(fl.Owning.Strays(nil)[5]) == 1)
			had := fl.Owning.Had([]int{0}).Slots
			require.Len(t, had, 1)
			require.Equal(t, int64(100), had[0].Pos)
		})
	}
}

// A slot is taken while the number of slots changes. Before its owner has looked again, the database forgets that it was taken, and the
// change with it: the owner still knows of the change.
func TestTheTurnOfASlotThatWasTaken(t *testing.T) {
	t.Parallel()
	fl := newFlight(t, Config{})
	row := store.Slot{Slot: 0, Epoch: 5, Owner: "one", Claimed: 100, Done: 100, Change: store.Change{Base: 1, Target: 2, Spread: 1, Turn: 3}}
	fl.Owning.Took([]store.Slot{row}, 5, nil, nil)
	fl.slots[0].next = 101
	require.EqualValues(t, never, fl.Claims.claimAt(fl.slots[0], 1000), "it is not claimed before its owner has looked")
	require.Nil(t, fl.Changing.Begin(0), "nor split")
	fl.Owning.SlotsRead([]store.Slot{{Slot: 0, Epoch: 4, Claimed: 100, Done: 100, Change: store.Change{Base: 1, Target: 1, Spread: 1}}}, fl.Known())
	require.Empty(t, fl.slots)
	require.Equal(t, int64(3), fl.Owning.Had([]int{0}).Slots[0].Turn)
}

// While the slots are read, one of them is claimed, the database is started anew, and has forgotten the claim: the slot does not become
// sure again by what was known before.
func TestClaimWhileTheSlotsAreRead(t *testing.T) {
	t.Parallel()
	fl := newFlight(t, Config{})
	row := store.Slot{Slot: 0, Epoch: 5, Owner: "one", Claimed: 100, Done: 50}
	fl.Owning.Took([]store.Slot{row}, 5, nil, nil)
	before := fl.Known()
	Claiming{machine: fl.machine}.Claimed([]Claim{{Slot: 0, Epoch: 5, From: 100, To: 200, slot: fl.slots[0]}}, nil)
	row.Unsure = true
	require.Equal(t, []Unsure{{row, 200}}, fl.Owning.SlotsRead([]store.Slot{row}, before))
	require.Empty(t, fl.Owning.SlotsRead([]store.Slot{row}, fl.Known()))
	require.Empty(t, fl.slots, "it is to be taken anew")
}

// A record is refused late: its task is known as one that was never sent, unless it was in doubt.
func TestALateRefusalIsInDoubt(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		fl := newFlight(t, Config{})
		l := &ownedSlot{number: 0, epoch: 5}
		original := &Task{slot: l, seq: 9, status: left, doubt: doubt, content: &content{topic: "orders"}}
		fl.slots[0], fl.stuck[9] = l, original
		fl.Outcomes.answeredLate(outcome{task: original, err: kerr.MessageTooLarge, alone: true})
		ends, _, _ := fl.inbox.takeLeaving(0)
		require.Len(t, ends, 1)
		require.NotNil(t, ends[0].Dead)
		require.Equal(t, doubt, ends[0].MaybeSent)
	}
}

// The producer has a task when its slot is lost. Another owner may move the task to another slot of ours, and the slot comes back: until the
// answer has come, the task is not sent from there either. The answer ends nothing.
func TestWhatTheProducerHasOfALostSlot(t *testing.T) {
	fl := newFlight(t, Config{})
	row := store.Slot{Slot: 3, Owner: "one", Claimed: 100}
	sent := func(seq int64, then status) *Task {
		return &Task{slot: fl.slots[3], seq: seq, pos: 50, status: then, content: &content{topic: "orders", attempt: 2, record: &kgo.Record{Topic: "orders"}}}
	}
	enter := func(slot int, pos int64) *Task {
		l := fl.slots[slot]
		fl.enter(map[int]*ownedSlot{slot: l}, []line.Entry{{Place: slots.Place{Slot: slot, Pos: pos, Seq: 9}}}, false)
		return l.tasks[len(l.tasks)-1]
	}
	for name, set := range map[string]func(t *Task){
		"in its place": func(t *Task) { t.slot.tasks = append(t.slot.tasks, t) },
		"set aside":    func(t *Task) { t.status = left; fl.stuck[t.seq] = t },
	} {
		t.Run(name, func(t *testing.T) {
			fl = newFlight(t, Config{})
			fl.Owning.Took([]store.Slot{row, {Slot: 70, Owner: "one"}}, 5, nil, nil)
			original := sent(9, sending)
			fl.outlets.beginSending(fl.outlets.of(original), original)
			set(original)
			answered := sent(10, sending)
			fl.slots[3].tasks = append(fl.slots[3].tasks, answered)

			fl.abandon(fl.slots[3], "a test")
			require.Equal(t, []line.Sent{{Slot: 3, Seq: 9, Number: original.sendNumber()}}, fl.Owning.Had([]int{70}).Sent, "for each slot that is taken or given away")
			fl.Owning.Took([]store.Slot{row}, 7, nil, nil)
			for _, slot := range []int{3, 70} {
				require.Equal(t, leaving, enter(slot, 50).status)
				ends, _, _ := fl.inbox.takeLeaving(0)
				require.Len(t, ends, 1)
				require.Equal(t, task.StateRetry, ends[0].State)
				require.Equal(t, 2, ends[0].Attempt)
			}

			fl.Due.Answered(original, Answer{})
			fl.inbox.logged(1)
			fl.Outcomes.Conclude()
			ends, _, _ := fl.inbox.takeLeaving(0)
			require.Empty(t, ends)
			require.Empty(t, fl.Owning.Had([]int{3}).Sent)
			require.Equal(t, entered, enter(70, 90).status, "it is sent from where it stands")
		})
	}
}

// The database was set back, and may have what was delivered as pending: whoever takes the slot knows of it, whether the answer came before
// the slot was lost or after, and however far its end had come.
func TestDeliveriesOfALostSlotAreKnownUntilItIsTaken(t *testing.T) {
	t.Parallel()
	row := store.Slot{Slot: 0, Epoch: 5, Owner: "one", Claimed: 100, Done: 50}
	forgot := row
	forgot.Claimed = 90
	setBack := func(fl *Flight) { fl.Owning.SlotsRead([]store.Slot{forgot}, fl.Known()) }
	maybe := kerr.RequestTimedOut
	for name, c := range map[string]struct {
		before, after error // the answer, before the slot is lost or after; kafka.ErrNotSent: none
		settled       bool  // by then
		lose          func(fl *Flight)
		knows         bool
	}{
		"answered before":              {before: nil, after: kafka.ErrNotSent, lose: setBack, knows: true},
		"and the answer was looked at": {before: nil, after: kafka.ErrNotSent, settled: true, lose: setBack, knows: true},
		"perhaps, before":              {before: maybe, after: kafka.ErrNotSent, lose: setBack, knows: true},
		"answered after":               {before: kafka.ErrNotSent, after: nil, lose: setBack, knows: true},
		"perhaps, after":               {before: kafka.ErrNotSent, after: maybe, lose: setBack, knows: true},
		"refused before":               {before: kerr.MessageTooLarge, after: kafka.ErrNotSent, lose: setBack},
		"refused after":                {before: kafka.ErrNotSent, after: kerr.MessageTooLarge, lose: setBack},
		"the slot is another's": {before: nil, after: kafka.ErrNotSent, lose: func(fl *Flight) {
			theirs := row
			theirs.Owner, theirs.Epoch = "two", 6
			fl.Owning.SlotsRead([]store.Slot{theirs}, fl.Known())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{})
			fl.Owning.Took([]store.Slot{row}, 5, nil, nil)
			one := &Task{slot: fl.slots[0], seq: 9, pos: 60, status: sending, content: &content{topic: "orders", attempt: 1, record: &kgo.Record{}}}
			fl.slots[0].tasks = []*Task{one}
			fl.outlets.beginSending(fl.outlets.of(one), one)
			conclude := func() {
				fl.Outcomes.ToLog().Logged()
				fl.Outcomes.Conclude()
			}
			if c.before != kafka.ErrNotSent {
				fl.Due.Answered(one, Answer{Err: c.before, Alone: true})
			}
			if c.settled {
				conclude()
				require.Equal(t, settled, one.status)
			}
			c.lose(fl)
			require.Empty(t, fl.slots)
			if c.after != kafka.ErrNotSent {
				require.Len(t, fl.Owning.Had(nil).Sent, 1)
				fl.Due.Answered(one, Answer{Err: c.after, Alone: true})
			}
			if !c.settled {
				conclude()
			}
			want := []line.Sent{{Seq: 9, Number: task.SendNumber(0, 2)}}
			if !c.knows {
				want = nil
			}
			require.Equal(t, want, fl.Owning.Had([]int{0}).Sent)
			fl.Owning.Taking([]int{1}, 6)
			fl.Owning.Clear([]int{1}, 6)
			require.Equal(t, want, fl.Owning.Had([]int{0}).Sent, "another slot was taken")
			fl.Owning.Taking([]int{0}, 6)
			fl.Owning.Clear([]int{0}, 6)
			require.Empty(t, fl.Owning.Had([]int{0}).Sent, "the database knows")
		})
	}
}
