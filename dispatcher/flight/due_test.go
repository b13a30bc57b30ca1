package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// What falls due in the last moments of a slot that is to be given away is left to its next owner: sent now, it could not be settled
// before the slot goes, and would be sent twice.
func TestNothingIsSentInTheLastMoments(t *testing.T) {
	fl := newFlight(t, Config{DrainTimeout: time.Hour})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	due := &Task{slot: l, seq: 7, pos: 50, at: 40, status: staged, content: &content{topic: "x", due: 40, settings: schemas.DefaultSettings(), record: &kgo.Record{Topic: "x"}}}
	l.tasks, fl.entries = append(l.tasks, due), 1
	fl.due.push(due)
	require.Empty(t, fl.Leavers(nil))
	l.leaving = time.Now().Add(time.Second/2 - time.Hour)
	send, more := fl.TakeDue()
	require.Empty(t, send)
	require.False(t, more)
	transitions, _ := fl.TakeLeaving()
	require.Len(t, transitions, 1)
	require.Equal(t, task.StateLine, transitions[0].State, "it can be cancelled")
	fl.Settled(transitions, nil, line.Settled{}, time.Millisecond)
	fl.Settled(nil, fl.Closable(), line.Settled{}, time.Millisecond)
	require.Equal(t, map[int64][]int{5: {0}}, fl.Leavers(nil), "so it drains")
	require.Zero(t, fl.entries)
}
