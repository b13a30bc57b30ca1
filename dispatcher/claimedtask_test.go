package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// What the send log calls an attempt: no replay is taken for what was sent before it.
func TestSendingNamesAttemptsApart(t *testing.T) {
	seen := map[int32][2]int{}
	for _, replay := range []int{0, 1, 2, 127} {
		for _, attempt := range []int{0, 1, 2, 999, 1<<24 - 2} {
			n := (&content{replay: replay, attempt: attempt}).sendNumber()
			require.Positive(t, n)
			require.NotContains(t, seen, n)
			seen[n] = [2]int{replay, attempt}
		}
	}
	require.Equal(t, int32(1), (&content{}).sendNumber())
	require.Equal(t, int32(3), (&content{attempt: 2}).sendNumber())
	require.Equal(t, int32(1<<24+1), (&content{replay: 1}).sendNumber())
}

// What an earlier owner may have sent is not also told to have expired. What nobody can have sent is.
func TestTasksInDoubtDoNotExpire(t *testing.T) {
	f := newFixture(t, 1, "orders")
	orders := f.read("orders")
	past := time.Now().Add(-time.Minute)
	f.schedule(askMany(5, "orders", "doubt", past, schemas.HeaderMaxLateness, "1s")...)
	_, err := f.store.Acquire(t.Context(), f.slots, 4, "one")
	require.NoError(t, err)
	require.NoError(t, claimTo(t.Context(), f.store, f.slots, 4, nowMillis()))
	f.schedule(askMany(5, "orders", "late", past, schemas.HeaderMaxLateness, "1s")...)
	f.start(f.elect(5), t.TempDir(), Config{MemberID: "two"})
	f.eventually("all is settled", func() bool { return f.settledUpTo(past) })
	dead := func() map[string]string {
		letters, err := f.store.DeadLetters(t.Context(), store.DeadFilter{})
		require.NoError(t, err)
		out := map[string]string{}
		for _, l := range letters {
			out[l.TaskID] = l.Kind
		}
		return out
	}
	f.eventually("those that nobody has sent expire", func() bool { return len(dead()) == 5 })
	f.eventually("the others arrive", func() bool { return orders.count() == 5 })
	for id := range orders.copies() {
		require.Contains(t, id, "doubt")
	}
	for id, kind := range dead() {
		require.Contains(t, id, "late")
		require.Equal(t, schemas.KindExpired, kind)
	}
}

// A task that may have been sent, and whose target does not answer, is put off as one that no caller can cancel any more, and that
// its next claim does not hold to its lateness either.
func TestWhatMayHaveBeenSentStaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		doubt bool
		state task.State
		put   task.State
		held  bool
	}{
		"never handed to anybody": {false, task.StateLine, task.StateLine, true},
		"in doubt":                {true, task.StateLine, task.StateRetry, false},
		"set aside, or retried":   {false, task.StateRetry, task.StateRetry, false},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schemas.DefaultSettings()
			settings.MaxLateness = time.Second
			fl := newInFlight(alone(t, Config{}))
			outs := newOutlets(fl)
			outs.byKey[outletKey{"x", -1}] = &outlet{outage: newOutage(time.Now())}
			s := newSender(newParking(fl, outs), nil, nil, newCalls(nil), nil, kafka.Config{})
			now := s.clock.Millis()
			late := func(due int64) *claimedTask {
				return &claimedTask{slot: &ownedSlot{}, doubt: c.doubt, content: &content{topic: "x", due: due, state: c.state, settings: settings, record: &kgo.Record{}}}
			}
			require.False(t, s.admit(late(now), now, false))
			require.Equal(t, c.put, fl.inbox.transitions[0].State)
			require.False(t, s.admit(late(now-2000), now, false))
			if c.held {
				require.Equal(t, task.StateDead, fl.inbox.transitions[1].State)
				require.Equal(t, schemas.KindExpired, fl.inbox.transitions[1].Dead.Kind)
			} else {
				require.Equal(t, task.StateRetry, fl.inbox.transitions[1].State)
			}
		})
	}
}
