package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

// A target answers the moment after its backlog was put off. No task is called back before the later place that it was given is
// stored: otherwise it would take that place after its recall.
func TestRecallComesBehindWhatPutOff(t *testing.T) {
	f := newFixture(t, 1, "x")
	d := f.stepped(f.elect(5), Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	d.flight.slots[0] = l
	g := &outlet{outletKey: outletKey{"x", 0}, outage: newOutage(time.Now())}
	d.sender.outlets.byKey[g.outletKey] = g
	d.sender.parking.putOff(&claimedTask{slot: l, seq: 7, pos: 50, at: 40, content: &content{topic: "x", due: 40, settings: schemas.DefaultSettings()}}, g)
	transitions, recalls, _ := d.flight.inbox.takeLeaving(recallMost)
	require.Len(t, transitions, 1)
	d.sender.parking.respondsAgain(g) // while they are being stored
	require.Empty(t, recalls)
	later, recalls, _ := d.flight.inbox.takeLeaving(recallMost)
	require.Empty(t, later)
	require.Len(t, recalls, 1)
	now, early := mayRecall(recalls, transitions)
	require.Empty(t, now, "they are not stored")
	require.Len(t, early, 1)
	now, early = mayRecall(recalls, nil)
	require.Len(t, now, 1)
	require.Empty(t, early)
}
