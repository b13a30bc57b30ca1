package check

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSampleIsSound(t *testing.T) {
	r := Run(Sample(), Bounds{})
	require.Empty(t, r.Findings)
	require.Equal(t, map[string]int{"delivered": 7, "cancelled": 1, "replaced": 1, "stale": 2, "rejected": 1, "pending": 1, "dead": 1, "unknown": 1}, r.Figures.Fates)
	require.Equal(t, map[string]int{"kill-dispatcher": 1}, r.Figures.Copies)
	require.EqualValues(t, 1, r.Figures.Earliest)
	require.Positive(t, r.Figures.Ordered)
}

func TestPlantedBugsAreCaught(t *testing.T) {
	for _, b := range Bugs {
		t.Run(b.Name, func(t *testing.T) { require.True(t, b.Caught(), "%s went unnoticed", b.Invariant) })
	}
}
