package share

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHas(t *testing.T) {
	for _, c := range []struct {
		left, held int
		want       bool
	}{{0, 0, false}, {-1, 0, false}, {1, 0, true}, {15, 1, false}, {16, 1, true}, {80, 9, true}, {80, 10, false}} {
		require.Equal(t, c.want, Has(c.left, c.held), "%d left, %d held", c.left, c.held)
	}
}

func TestHoldersLeaveRoomToTheOthers(t *testing.T) {
	const room = 90_000
	left := room
	for n := 1; n <= 10; n++ {
		held := 0
		for ; Has(left, held); left-- {
			held++
		}
		require.InDelta(t, room*math.Pow(8./9, float64(n)), left, float64(n+1), "after %d", n)
	}
}

func TestOf(t *testing.T) {
	require.Equal(t, 25, Of(100, 0.25))
	require.Equal(t, 1, Of(100, 0), "one always")
}
