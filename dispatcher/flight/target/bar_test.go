package target

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAClosedBarIsAskedByOneAtATime(t *testing.T) {
	for why, waits := range map[Why][]time.Duration{Silent: {10, 20, 40, 47, 47}, Refused: {2, 4, 8, 10, 10}, ClockDiffers: {2, 4, 8, 10, 10}} {
		now := time.Now()
		b := &Bar{}
		require.True(t, b.IsOpen())
		require.False(t, b.PutsOff(now))
		b.Close(why, now)
		require.Equal(t, why, b.Why())
		require.True(t, b.PutsOff(now.Add(time.Hour)), "without an end")
		require.False(t, b.MayAsk(now), "it was just found closed")
		for _, wait := range waits {
			now = b.next
			require.True(t, b.MayAsk(now))
			b.Ask(now)
			require.False(t, b.MayAsk(now), "one at a time")
			require.Equal(t, wait*time.Second, b.Wait(now))
			require.False(t, b.MayAsk(b.next), "however long it takes")
			require.Equal(t, time.Second, b.Wait(b.next.Add(-time.Millisecond)))
			require.Equal(t, wait*time.Second, b.Wait(b.next))
			b.Asked()
		}
		require.True(t, b.ReadToAsk(b.next), "one is read to ask with")
		require.False(t, b.ReadToAsk(b.next))
		require.True(t, b.ReadToAsk(b.next.Add(time.Second)), "and another, if nothing came of it")
		require.False(t, b.IsOver(b.next.Add(pauses[why].quiet)))
		require.True(t, b.IsOver(b.next.Add(pauses[why].quiet+1)))
		b.Open()
		require.Equal(t, Bar{}, *b)
		require.False(t, b.IsOver(now.Add(time.Hour)), "an open one has nothing to forget")
	}
}

// Who asks may have its answer after the Bar was opened and closed again. Until then nobody else asks.
func TestAnAskerOutlastsItsBar(t *testing.T) {
	now := time.Now()
	b := &Bar{}
	b.Close(Silent, now)
	b.Ask(b.next)
	b.Open()
	b.Close(Silent, now)
	require.False(t, b.MayAsk(b.next))
	b.Asked()
	require.True(t, b.MayAsk(b.next))
}

// Refusals count once for all that were sent together. Another cause, or a long quiet, begins anew.
func TestRefusals(t *testing.T) {
	now := time.Now()
	ends, b := now.Add(time.Minute), &Bar{}
	require.True(t, b.Refuse(Refused, ends, 0, now))
	before := *b
	require.False(t, b.Refuse(Refused, ends.Add(time.Hour), 0, now))
	require.Equal(t, before, *b, "another of those that were sent together")
	late := now.Add(2 * time.Second)
	require.False(t, b.Refuse(Refused, ends.Add(time.Hour), 0, late))
	require.Equal(t, late.Add(time.Second), b.next, "an answer that came late")
	require.True(t, b.PutsOff(ends.Add(-1)))
	require.False(t, b.PutsOff(ends), "now each is sent, and told what becomes of it")
	require.False(t, b.IsOpen())

	require.True(t, b.Refuse(ClockDiffers, time.Time{}, 0, now))
	require.True(t, b.PutsOff(now.Add(time.Hour)), "a clock may be wrong for long")
	require.True(t, b.Refuse(Refused, ends, 0, now), "another cause has patience of its own")
	quiet := b.next.Add(pauses[Refused].quiet + 1)
	require.True(t, b.Refuse(Refused, quiet.Add(time.Minute), 0, quiet), "patience begins anew")
	require.True(t, b.PutsOff(quiet))
	require.True(t, b.Refuse(ClockDiffers, time.Time{}, 0, quiet))
	require.True(t, b.Refuse(Refused, ends.Add(-time.Hour), 0, now), "no patience at all")
	require.False(t, b.PutsOff(now))

	b = &Bar{}
	b.Refuse(Refused, now.Add(time.Hour), 250, now)
	require.Equal(t, 3*time.Second, b.next.Sub(now), "one of many asks more seldom")
	b = &Bar{}
	b.Refuse(Refused, now.Add(time.Hour), 2000, now)
	require.Equal(t, pauses[Refused].longest, b.next.Sub(now))
}

// No pause between attempts makes the wait for a target longer than the configuration says.
func TestRefusalsRestNoLongerThanTheirPatience(t *testing.T) {
	now := time.Now()
	ends, b := now.Add(6500*time.Millisecond), &Bar{}
	b.Refuse(Refused, ends, 0, now)
	for _, pause := range []time.Duration{2, 4} {
		now = b.next
		require.True(t, b.MayAsk(now))
		b.Ask(now)
		require.LessOrEqual(t, b.Wait(now), pause*time.Second)
		b.Asked()
	}
	require.Equal(t, ends, b.next, "the pause would be 4 s")
	require.Equal(t, time.Millisecond, b.Wait(ends.Add(-time.Millisecond)), "of a task that came later")
	require.True(t, b.PutsOff(ends.Add(-1)))
	require.False(t, b.PutsOff(ends))
	b = &Bar{}
	b.Refuse(Refused, now.Add(100*time.Millisecond), 0, now)
	require.Equal(t, 100*time.Millisecond, b.next.Sub(now))
}
