package flight

import (
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/tracingtest"
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
		"set aside, or retried":   {false, task.StateRetry, task.StateLine, false}, // it stays the retry that its row says
	} {
		t.Run(name, func(t *testing.T) {
			settings := schemas.DefaultSettings()
			settings.MaxLateness = time.Second
			fl := newFlight(t, Config{})
			outs := fl.outlets
			outs.byKey[outletKey{"x", -1}] = &Outlet{silence: silentSince(time.Now())}
			now := fl.clock.Millis()
			late := func(due int64) *Task {
				return &Task{slot: &ownedSlot{}, doubt: c.doubt, content: &content{topic: "x", due: due, state: c.state, settings: settings, record: &kgo.Record{}}}
			}
			require.False(t, fl.admits(late(now), now))
			require.Equal(t, c.put, fl.inbox.transitions[0].State)
			require.False(t, fl.admits(late(now-2000), now))
			if c.held {
				require.Equal(t, task.StateDead, fl.inbox.transitions[1].State)
				require.Equal(t, schemas.KindExpired, fl.inbox.transitions[1].Dead.Kind)
			} else {
				require.Equal(t, c.put, fl.inbox.transitions[1].State)
			}
		})
	}
}

func TestTracesAreFreeWhenOff(t *testing.T) {
	headers := []kgo.RecordHeader{{Key: "traceparent", Value: []byte(tracingtest.Traceparent(true))}}
	var off *tracing.Tracer
	one, r := &Task{content: &content{topic: "orders"}}, &kgo.Record{}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		one.trace = newTraced(off.Caller(headers), "key")
		one.trace.begins()
		one.trace.sent(one, time.Time{}, r, kerr.MessageTooLarge)
		one.trace.called(one, "", time.Time{}, callback.Outcome{})
	}))
}

func TestProofIsOfOneTaskAndAttempt(t *testing.T) {
	of := func(id, body string, attempt int) *Task {
		return &Task{seq: 7, content: &content{topic: "orders", id: id, body: []byte(body), attempt: attempt - 1}}
	}
	for name, c := range map[string]struct {
		task *Task
		want int64
	}{
		"it":              {of("a", "body", 2), 20},
		"another attempt": {of("a", "body", 3), 0},
		"another id":      {of("b", "body", 2), 0},
		"another content": {of("a", "other", 2), 0},
	} {
		proven := func(attempt int32) sendlog.Proof {
			return sendlog.Proof{Subject: sendlog.SubjectOf(7, "orders", "a", xxhash.Sum64String("body")), Attempt: attempt}
		}
		p := Proofs{7: {proven(1): 10, proven(2): 20}, 8: {}}
		at, ok := p.take(c.task)
		require.Equal(t, c.want, at, name)
		require.Equal(t, c.want != 0, ok, name)
		require.Len(t, p, 1, "used")
	}
}
