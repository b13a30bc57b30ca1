package flight

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// A suspect that was set aside while it waited for its turn is not sent from memory, though its target answers again: a report may have ended
// it meanwhile. It comes from its later place.
func TestSuspectThatWasSetAsideIsNotSent(t *testing.T) {
	fl := newFlight(t, Config{})
	l := &ownedSlot{number: 0, epoch: 5}
	fl.slots[0] = l
	suspect := &Task{slot: l, seq: 9, status: left, content: &content{topic: "x", size: 100, attempt: 2}}
	g := &Outlet{outletKey: outletKey{"x", 0}, trying: true}
	fl.outlets.byKey[g.outletKey] = g
	require.False(t, fl.Suspects.NotNow(g, suspect))
	fl.stuck[9] = suspect
	require.True(t, fl.Suspects.NotNow(g, suspect))
	fl.Outcomes.answeredLate(outcome{task: suspect, err: kafka.ErrNotSent, alone: true})
	require.Empty(t, fl.stuck)
	fl.enter(map[int]*ownedSlot{0: l}, []line.Entry{{Place: slots.Place{Slot: 0, Pos: 50, Seq: 9}}}, false)
	require.Equal(t, 1, fl.backlog.size(), "it is read, if it is there, and sent")
}

// A suspect is set aside, since its target falls silent, and then its slot is lost. Nobody else knows of its answer: should the slot come
// back, the task is claimed and sent like any other. It was put off again and again for ever.
func TestSuspectOfALostSlotIsForgotten(t *testing.T) {
	fl := newFlight(t, Config{})
	lost := &ownedSlot{number: 0, epoch: 5, abandoned: true}
	suspect := &Task{slot: lost, seq: 9, status: leaving, content: &content{topic: "x", size: 100, attempt: 2}}
	g := &Outlet{outletKey: outletKey{"x", 0}, trying: true, suspects: []Sendable{{Task: suspect}}}
	fl.outlets.byKey[g.outletKey] = g
	fl.outlets.beginSending(g, suspect)
	fl.stuck[9] = suspect

	one, ok := fl.Suspects.Next(g)
	require.True(t, ok)
	fl.Suspects.Lost(one.Task)
	require.Zero(t, fl.outlets.buffered)
	fl.enter(map[int]*ownedSlot{0: {number: 0, epoch: 6}}, []line.Entry{{Place: slots.Place{Slot: 0, Pos: 50, Seq: 9}}}, false)
	require.Equal(t, 1, fl.backlog.size(), "it is read and sent")
	_, ok = fl.Suspects.Next(g)
	require.False(t, ok)
	require.Empty(t, fl.outlets.byKey)
}

// A refusal that came after a lost connection proves nothing: the record may be in its topic. Such a task comes from its row, in which nobody can cancel it.
func TestARefusalThatIsDoubtedMakesNoSuspect(t *testing.T) {
	fl := newFlight(t, Config{})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	s := &Task{slot: l, seq: 9, pos: 50, status: sending, content: &content{topic: "x", size: 100, record: &kgo.Record{Topic: "x"}}}
	l.tasks = []*Task{s}
	maybe := new(kafka.LostConnections).Judge(kerr.InvalidRecord, -1)
	require.True(t, kafka.Permanent(maybe) && !kafka.NotSent(maybe))
	fl.mu.Lock()
	defer fl.mu.Unlock()
	_, isolate := fl.Outcomes.conclude(outcome{task: s, err: maybe})
	require.Nil(t, isolate)
	out, _, _ := fl.inbox.takeLeaving(10)
	require.Len(t, out, 1)
	require.Equal(t, task.StateRetry, out[0].State)
}
