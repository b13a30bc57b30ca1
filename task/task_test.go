package task

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
)

func TestSeq(t *testing.T) {
	for _, c := range []struct {
		source int
		offset int64
	}{{2, 0}, {16, 1}, {17, 1<<offsetBits - 1}, {1<<15 - 1, 1<<offsetBits - 1}} {
		seq := Seq(c.source, c.offset)
		require.Positive(t, seq)
		source, offset := SplitSeq(seq)
		require.Equal(t, c.source, source)
		require.Equal(t, c.offset, offset)
	}
	require.Less(t, Seq(17, 1<<offsetBits-1), Seq(18, 0), "sources do not overlap")
}

func TestSendNumber(t *testing.T) {
	seen := map[int32]bool{}
	for _, replay := range []int{0, 1, 2, 127} {
		for _, attempt := range []int{1, 2, 3, 1000, 1<<replayShift - 1} {
			n := SendNumber(replay, attempt)
			require.Positive(t, n)
			require.False(t, seen[n], "%d, %d", replay, attempt)
			seen[n] = true
			gotReplay, gotAttempt := SplitSendNumber(n)
			require.Equal(t, replay, gotReplay)
			require.Equal(t, attempt, gotAttempt)
		}
	}
	require.Equal(t, int32(math.MaxInt32), SendNumber(127, 1<<replayShift-1))
}

func TestIdentLeavesNoGarbage(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() { Ident("orders", "notyet.intake/3/1000") }))
}

func TestIdent(t *testing.T) {
	t.Parallel()
	seen := map[[16]byte]string{}
	for _, topic := range []string{"orders", "payments"} {
		for _, id := range []string{"", "/", "1", "a", "a/", "a/1", "a/01", "a/4294967297", "a/18446744073709551615", "a/18446744073709551616", "a/-1", "a/1/", "a/0/1", "b/1"} {
			ident := Ident(topic, id)
			require.Equal(t, ident, Ident(topic, id))
			require.NotContains(t, seen, ident, "%s %s", topic, id)
			seen[ident] = topic + " " + id
		}
	}
	last := Ident("orders", schemas.DefaultID("notyet.intake", 3, 0))
	for offset := int64(1); offset < 3000; offset++ {
		next := Ident([]string{"orders", "payments"}[offset%2], schemas.DefaultID("notyet.intake", 3, offset))
		require.Negative(t, bytes.Compare(last[:], next[:]), "default ids of a partition stand in the order of their offsets")
		last = next
	}
}

func TestPublished(t *testing.T) {
	for _, c := range []struct {
		setting schemas.Events
		state   schemas.State
		want    bool
	}{
		{schemas.EventsAll, schemas.StateScheduled, true},
		{schemas.EventsAll, schemas.StateSucceeded, true},
		{schemas.EventsFinal, schemas.StateScheduled, false},
		{schemas.EventsFinal, schemas.StateRetrying, false},
		{schemas.EventsFinal, schemas.StateSucceeded, true},
		{schemas.EventsFinal, schemas.StateDead, true},
		{schemas.EventsNone, schemas.StateDead, false},
		{schemas.EventsNone, schemas.StateRejected, true},
	} {
		require.Equal(t, c.want, Published(c.setting, c.state), "%v %s", c.setting, c.state)
	}
}
