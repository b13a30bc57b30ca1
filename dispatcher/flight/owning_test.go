package flight

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// A task that was set aside unanswered, and is claimed again while it still is, must not be sent beside itself.
func TestStuckTaskIsNotSentAgainByItsOwner(t *testing.T) {
	t.Parallel()
	fl := newFlight(t, Config{})
	l := &ownedSlot{number: 0, epoch: 5}
	original := &Task{slot: l, seq: 9, status: left, content: &content{attempt: 2}}
	fl.stuck[9] = original
	fl.enter(map[int]*ownedSlot{0: l}, []store.Entry{{Place: slots.Place{Slot: 0, Pos: 50, Seq: 9}}, {Place: slots.Place{Slot: 0, Pos: 51, Seq: 10}}}, false)
	require.Equal(t, 1, fl.backlog.queue.size)
	require.Equal(t, int64(10), fl.backlog.queue.take(1, never)[0].seq)
	require.Len(t, fl.inbox.transitions, 1)
	require.Equal(t, task.StateRetry, fl.inbox.transitions[0].State)
	require.Equal(t, 2, fl.inbox.transitions[0].Attempt)
	require.Greater(t, fl.inbox.transitions[0].Pos, nowMillis()+8_000)

	original.lateAnswer = true // and when its end is on the way, it only has to get out of the way
	fl.inbox.transitions = nil
	fl.enter(map[int]*ownedSlot{0: l}, []store.Entry{{Place: slots.Place{Slot: 0, Pos: 90, Seq: 9}}}, false)
	require.Zero(t, fl.backlog.queue.size)
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
			fl.enter(map[int]*ownedSlot{0: again}, []store.Entry{{Place: slots.Place{Slot: 0, Pos: 50, Seq: 0}}}, false)
			require.Equal(t, 1, fl.backlog.queue.size)
			require.Equal(t, entered, again.tasks[0].status)
		})
	}
}
