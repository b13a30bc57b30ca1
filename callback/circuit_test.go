package callback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	retry     = Outcome{Verdict: Retry, Status: 503}
	noAnswer  = Outcome{Verdict: Retry}
	delivered = Outcome{Verdict: Delivered, Status: 200}
)

// openCircuit returns one that has just opened.
func openCircuit(t *testing.T, now time.Time) *circuit {
	t.Helper()
	c := &circuit{}
	for i := range failuresToOpen {
		require.Zero(t, c.wait(now))
		require.False(t, c.enter())
		want := unchanged
		if i == failuresToOpen-1 {
			want = opened
		}
		require.Equal(t, want, c.leave(noAnswer, false, now))
	}
	return c
}

func TestCircuitOpensAfterTenFailuresInARow(t *testing.T) {
	now := time.Now()
	require.Equal(t, firstPause, openCircuit(t, now).wait(now))

	// An answer in between begins anew, also one that is a dead letter: the origin does answer.
	for _, answer := range []Outcome{delivered, {Verdict: Dead, Status: 404}} {
		c := &circuit{}
		for range 5 {
			for range failuresToOpen - 1 {
				require.Equal(t, unchanged, c.leave(retry, false, now))
			}
			require.Equal(t, unchanged, c.leave(answer, false, now))
			require.Zero(t, c.wait(now))
		}
	}

	// What says nothing about the origin changes nothing.
	c := &circuit{}
	for range 100 {
		require.Equal(t, unchanged, c.leave(Outcome{Verdict: Interrupted}, false, now))
		require.Equal(t, unchanged, c.leave(refusal("no"), false, now))
	}
	require.Zero(t, c.wait(now))
}

// A request that says nothing about an origin that is down does not make its pause longer.
func TestAnOpenCircuitAfterAQuestionThatSaysNothing(t *testing.T) {
	now := time.Now()
	c := openCircuit(t, now)
	now = now.Add(firstPause)
	require.True(t, c.enter())
	require.Equal(t, unchanged, c.leave(Outcome{Verdict: NotSent, After: firstPause}, true, now))
	require.Equal(t, firstPause, c.wait(now))
	require.Zero(t, c.wait(now.Add(firstPause)))
}

func TestAnOpenCircuitIsAskedByOneAtATime(t *testing.T) {
	now := time.Now()
	c := openCircuit(t, now)
	require.Equal(t, unchanged, c.leave(noAnswer, false, now), "sent before it opened")
	pause := firstPause
	for range 10 {
		require.Equal(t, pause, c.wait(now))
		require.Positive(t, c.wait(now.Add(pause-time.Nanosecond)))
		now = now.Add(pause)
		require.Zero(t, c.wait(now))
		require.True(t, c.enter())
		require.Equal(t, firstPause, c.wait(now), "one is under way")
		require.Equal(t, firstPause, c.wait(now.Add(time.Hour)))
		require.Equal(t, unchanged, c.leave(noAnswer, true, now))
		pause = min(2*pause, longestPause)
	}
	require.Equal(t, longestPause, pause)

	now = now.Add(pause)
	require.True(t, c.enter())
	require.Equal(t, closed, c.leave(delivered, true, now))
	require.Zero(t, c.wait(now))
	require.Equal(t, firstPause, openCircuit(t, now).wait(now), "the next outage begins with the first pause")
}

// Retry-After puts off the task that it answers for as long, and the others of its origin for a minute at most: the origin may be shared.
func TestAnOpenCircuitHeedsRetryAfterForAMinute(t *testing.T) {
	now := time.Now()
	c := openCircuit(t, now)
	now = now.Add(firstPause)
	require.True(t, c.enter())
	c.leave(Outcome{Verdict: Retry, Status: 429, After: 20 * time.Second}, true, now)
	require.Equal(t, 20*time.Second, c.wait(now))
	now = now.Add(20 * time.Second)
	require.True(t, c.enter())
	c.leave(Outcome{Verdict: Retry, Status: 429, After: time.Hour}, true, now)
	require.Equal(t, longestPause, c.wait(now))
}

// A request that asked and was interrupted leaves the question open to the next one.
func TestAnInterruptedQuestionIsAskedAgain(t *testing.T) {
	now := time.Now()
	c := openCircuit(t, now)
	now = now.Add(firstPause)
	require.True(t, c.enter())
	require.Equal(t, unchanged, c.leave(Outcome{Verdict: Interrupted}, true, now))
	require.Zero(t, c.wait(now))
	require.True(t, c.enter())
}

// An answer to a request from before the outage ends it as well.
func TestALateAnswerClosesTheCircuit(t *testing.T) {
	now := time.Now()
	c := openCircuit(t, now)
	now = now.Add(firstPause)
	require.True(t, c.enter())
	require.Equal(t, closed, c.leave(delivered, false, now))
	require.Zero(t, c.wait(now))
	require.Equal(t, unchanged, c.leave(noAnswer, true, now), "its own answer is one failure of a healthy origin")
	require.Zero(t, c.wait(now))
}
