package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRefusals(t *testing.T) {
	began := time.Now()
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	r := refusals{patience: time.Minute}
	require.False(t, r.putsOff("a", at(0), false))
	require.False(t, r.accepted("a"))
	require.False(t, r.refused("a", false, at(0)))
	require.False(t, r.refused("a", false, at(0.1)), "another of those that were sent together")
	require.Equal(t, firstRefusedPause, r.pause("a", at(0)))
	require.Equal(t, unsentPause, r.pause("b", at(0)))
	require.True(t, r.putsOff("a", at(0.9), false))
	require.False(t, r.putsOff("b", at(0.9), false), "another target")
	require.False(t, r.putsOff("a", at(1), false), "one asks again")
	require.True(t, r.putsOff("a", at(1), true), "and only one")
	for i, pause := range []time.Duration{2, 4, 8, 10, 10} {
		require.False(t, r.refused("a", false, at(float64(i+1)*10)))
		require.Equal(t, pause*time.Second, r.pause("a", at(float64(i+1)*10)))
	}
	require.True(t, r.refused("a", false, at(60)))
	require.False(t, r.putsOff("a", at(60), true), "now each is sent, and told what becomes of it")

	require.True(t, r.accepted("a"))
	require.False(t, r.refused("a", false, at(70)), "a new row")
	require.False(t, r.refused("a", false, at(70).Add(refusedQuiet+1)), "nothing was sent for long: a new row")
	r.forget(at(70).Add(2 * refusedQuiet))
	require.Len(t, r.topics, 1)
	r.forget(at(70).Add(2*refusedQuiet + 2))
	require.Empty(t, r.topics)

	require.False(t, r.refused("a", true, at(0)))
	require.False(t, r.refused("a", true, at(60*60)), "a clock may be wrong for long")
	require.True(t, r.putsOff("a", at(60*60), true), "and one task at a time asks")
	require.Equal(t, []int{1, 0}, []int{r.count(true), r.count(false)})
	require.False(t, r.refused("a", false, at(60*60)), "another reason begins its own row")
	require.Equal(t, []int{0, 1}, []int{r.count(true), r.count(false)})
}

// No pause between attempts makes the wait for a target longer than the configuration says.
func TestRefusalsRestNoLongerThanTheirPatience(t *testing.T) {
	began := time.Now()
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	r := refusals{patience: 5 * time.Second}
	require.False(t, r.refused("a", false, at(0)))
	require.False(t, r.refused("a", false, at(1)))
	require.False(t, r.refused("a", false, at(3)), "the next pause would be 4 s")
	require.Equal(t, 2*time.Second, r.pause("a", at(3)))
	require.Equal(t, time.Second, r.pause("a", at(4)), "of a task that came later")
	require.True(t, r.putsOff("a", at(4.9), false))
	require.False(t, r.putsOff("a", at(5), false))
	require.True(t, r.refused("a", false, at(5)))
}
