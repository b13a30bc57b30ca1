package slots_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
)

func TestASpreadThatDoesNotChangeIsThatOfItsCount(t *testing.T) {
	for _, n := range []int{1, 2, 7, 64} {
		s := slots.Even(n)
		require.True(t, s.Whole())
		require.Equal(t, []int{n, n, n, n}, []int{s.Base(), s.Target(), s.Rows(), s.Count(0)})
		for i := range 100 {
			key := fmt.Appendf(nil, "key-%d", i)
			require.Equal(t, slots.Of("orders", key, "", n), s.Of("orders", key, ""))
			require.Equal(t, s.Of("orders", key, ""), s.Home("orders", key, ""))
		}
	}
	require.Zero(t, slots.Spread{}.Of("orders", []byte("key"), ""))
}

// Keys of a line that is split are spread over the new count; those of the others stand where they stood.
func TestOnlyLinesThatAreSplitAreSpreadAnew(t *testing.T) {
	for _, c := range []struct{ base, target int }{{4, 6}, {6, 4}} {
		split := []bool{true, false, false, false, true} // line 5 is behind its end: it is not split
		s := slots.Changing(c.base, c.target, 6, split)
		split[1] = true // a spread never changes
		require.False(t, s.Whole())
		require.Equal(t, []int{c.base, c.target, 6}, []int{s.Base(), s.Target(), s.Rows()})
		moved := 0
		for i := range 1000 {
			key := fmt.Appendf(nil, "key-%d", i)
			first, home := slots.Of("orders", key, "", c.base), slots.Of("orders", key, "", c.target)
			want, count := first, c.base
			if first == 0 || first == 4 {
				want, count = home, c.target
			}
			require.Equal(t, want, s.Of("orders", key, ""), "a key of line %d", first)
			require.Equal(t, count, s.Count(first))
			require.Equal(t, home, s.Home("orders", key, ""))
			if want != first {
				moved++
			}
		}
		require.NotZero(t, moved)
		require.Equal(t, c.base, s.Count(5))
	}
}

// Keys leave a line where the way from one count to the other moves some of them.
func TestLeaving(t *testing.T) {
	for _, c := range []struct {
		line, base, target int
		want               bool
	}{
		{0, 4, 6, true}, {3, 4, 6, true}, {4, 4, 6, false}, {5, 4, 6, false},
		{0, 6, 4, false}, {3, 6, 4, false}, {4, 6, 4, true}, {5, 6, 4, true}, {6, 6, 4, false},
		{0, 4, 4, false}, {3, 4, 4, false}, {4, 4, 4, false},
	} {
		require.Equal(t, c.want, slots.Leaving(c.line, c.base, c.target), c)
		if c.line >= c.base {
			continue
		}
		leaves := false
		for i := range 2000 {
			key := fmt.Appendf(nil, "key-%d", i)
			leaves = leaves || slots.Of("orders", key, "", c.base) == c.line && slots.Of("orders", key, "", c.target) != c.line
		}
		require.Equal(t, leaves, c.want, "what keys do, %v", c)
	}
}
