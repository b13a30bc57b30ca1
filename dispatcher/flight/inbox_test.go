package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// A target answers the moment after its backlog was put off. No task is called back before the later place that it was given is
// stored: otherwise it would take that place after its recall.
func TestRecallComesBehindWhatPutOff(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	g := &Outlet{outletKey: outletKey{"x", 0}, closed: newClosed(silent, time.Now())}
	fl.outlets.byKey[g.outletKey] = g
	fl.putOff(&Task{slot: l, seq: 7, pos: 50, at: 40, content: &content{topic: "x", due: 40, settings: schemas.DefaultSettings()}}, g)
	transitions, recalls, _ := fl.inbox.takeLeaving(recallMost)
	require.Len(t, transitions, 1)
	fl.respondsAgain(g) // while they are being stored
	require.Empty(t, recalls)
	later, recalls, _ := fl.inbox.takeLeaving(recallMost)
	require.Empty(t, later)
	require.Len(t, recalls, 1)
	now, early := MayRecall(recalls, transitions)
	require.Empty(t, now, "they are not stored")
	require.Len(t, early, 1)
	now, early = MayRecall(recalls, nil)
	require.Len(t, now, 1)
	require.Empty(t, early)
}
