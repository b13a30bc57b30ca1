package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutage(t *testing.T) {
	now := time.Now()
	o := newOutage(now)
	require.False(t, o.claim(now), "it was just found unresponsive")
	for _, pause := range []time.Duration{10, 20, 40, 47, 47} {
		now = o.next
		require.True(t, o.claim(now))
		require.False(t, o.claim(now), "one at a time")
		require.Equal(t, pause*time.Second, o.wait(now))
		require.False(t, o.claim(o.next), "however long it takes")
		require.Equal(t, time.Second, o.wait(o.next.Add(-time.Millisecond)))
		require.Equal(t, pause*time.Second, o.wait(o.next))
		o.probing = false
	}
	require.True(t, o.readsProbe(o.next), "one is read to ask with")
	require.False(t, o.readsProbe(o.next))
	require.True(t, o.readsProbe(o.next.Add(time.Second)), "and another, if nothing came of it")
	require.False(t, o.over(o.next.Add(outageForgotten)))
	require.True(t, o.over(o.next.Add(outageForgotten+1)))
}
