package flight

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

func TestPieceOf(t *testing.T) {
	small := Transition{}
	large := Transition{Transition: line.Transition{Dead: &task.DeadLetter{Body: make([]byte, pieceBytes/2)}}}
	huge := Transition{Transition: line.Transition{Dead: &task.DeadLetter{Body: make([]byte, 2*pieceBytes)}}}
	for name, c := range map[string]struct {
		transitions []Transition
		want        int
	}{
		"one":             {[]Transition{small}, 1},
		"as many as fit":  {make([]Transition, PieceTasks), PieceTasks},
		"too many":        {make([]Transition, PieceTasks+1), PieceTasks},
		"too many bytes":  {[]Transition{large, small, large, small}, 2},
		"one is too much": {[]Transition{huge, small}, 1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, PieceOf(c.transitions)) })
	}
}

const t0 = 1_700_000_000_000

func TestReduce(t *testing.T) {
	odd := strings.Repeat("\xff\u00e4", 1000)
	dead := &task.DeadLetter{Reason: odd, Body: []byte("body")}
	e := Transition{alive: task.StateRetry, tried: 2, Transition: line.Transition{State: task.StateDead, Attempt: 3, Dead: dead, Events: []schemas.Event{{State: schemas.StateDead, Reason: odd}}}}
	events := e.Events
	require.True(t, e.Reduce(t0))
	require.Equal(t, strings.Repeat("?", shortReason), e.Dead.Reason)
	require.Equal(t, strings.Repeat("?", shortReason), e.Events[0].Reason)
	require.Equal(t, odd, dead.Reason, "another try may still hold it")
	require.Equal(t, odd, events[0].Reason)
	require.True(t, e.Reduce(t0))
	require.Empty(t, e.Dead.Body)
	require.Empty(t, e.Events[0].Reason)
	require.True(t, e.Reduce(t0))
	require.Equal(t, Transition{alive: task.StateRetry, tried: 2, Transition: line.Transition{State: task.StateRetry, Attempt: 2, Pos: t0 + refusedPause.Milliseconds()}, reduced: 3}, e)
	require.False(t, e.Reduce(t0))

	e = Transition{Transition: line.Transition{State: task.StateSucceeded}} // it is delivered: it must not become pending
	require.True(t, e.Reduce(t0))
	require.True(t, e.Reduce(t0))
	require.False(t, e.Reduce(t0))
	require.Equal(t, task.StateSucceeded, e.State)
}

// A task whose dead letter the database refuses stays what it is: nobody may cancel one that may have been sent.
func TestATaskWithoutItsDeadLetter(t *testing.T) {
	for name, c := range map[string]struct {
		task     Task
		made     int // of the dead letter
		endsWait bool
		want     task.State
	}{
		"it was not sent":                        {Task{content: &content{attempt: 1}}, 1, false, task.StateLine},
		"an earlier owner may have sent it":      {Task{doubt: true, content: &content{attempt: 1}}, 1, false, task.StateRetry},
		"it stays the retry that its row says":   {Task{content: &content{attempt: 1, state: task.StateRetry}}, 1, false, task.StateLine},
		"its receiver refused it":                {Task{content: &content{attempt: 1}}, 2, false, task.StateRetry},
		"it waited for a report":                 {Task{content: &content{attempt: 1, state: task.StateReport}}, 1, true, task.StateLine},
		"it waited for a report, taken in doubt": {Task{doubt: true, content: &content{attempt: 1, state: task.StateReport}}, 1, true, task.StateLine},
	} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{})
			c.task.slot = &ownedSlot{}
			fl.leave(&c.task, Transition{Transition: line.Transition{State: task.StateDead, Attempt: c.made, EndsWait: c.endsWait, Dead: &task.DeadLetter{Attempt: c.made}}})
			left, _, _ := fl.inbox.takeLeaving(0)
			for range 3 {
				require.True(t, left[0].Reduce(t0))
			}
			require.Equal(t, c.want, left[0].State)
			require.Equal(t, 1, left[0].Attempt, "the same attempt, with the same key")
		})
	}
}

// A target answers the moment after its backlog was put off. No task is called back before the later place that it was given is
// stored: otherwise it would take that place after its recall.
func TestRecallComesBehindWhatPutOff(t *testing.T) {
	fl := newFlight(t, Config{MemberID: "one"})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	g := &Outlet{outletKey: outletKey{"x", 0}, silence: silentSince(time.Now())}
	fl.outlets.byKey[g.outletKey] = g
	fl.putOff(&Task{slot: l, seq: 7, pos: 50, at: 40, content: &content{topic: "x", due: 40, settings: schemas.DefaultSettings()}}, g)
	transitions, recalls, _ := fl.inbox.takeLeaving(recallMost)
	require.Len(t, transitions, 1)
	fl.Due.respondsAgain(g) // while they are being stored
	require.Empty(t, recalls)
	later, recalls, _ := fl.inbox.takeLeaving(recallMost)
	require.Empty(t, later)
	require.Len(t, recalls, 1)
	now, early := mayRecall(recalls, transitions)
	require.Empty(t, now, "they are not stored")
	require.Len(t, early, 1)
	now, early = mayRecall(recalls, nil)
	require.Len(t, now, 1)
	require.Empty(t, early)
}
