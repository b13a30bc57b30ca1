package election

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAssign(t *testing.T) {
	owned := func(owners ...string) map[int]string {
		m := map[int]string{}
		for slot, owner := range owners {
			if owner != "" {
				m[slot] = owner
			}
		}
		return m
	}
	tests := map[string]struct {
		prev    map[int]string
		members []string
		slots   int
		want    map[int]string
	}{
		"nobody":                      {owned("a", "a"), nil, 2, owned()},
		"no slots":                    {owned("a", "a"), []string{"a"}, 0, owned()},
		"first":                       {nil, []string{"a"}, 3, owned("a", "a", "a")},
		"two at once":                 {nil, []string{"b", "a"}, 4, owned("a", "a", "b", "b")},
		"one joins":                   {owned("a", "a", "a", "a"), []string{"a", "b"}, 4, owned("a", "a", "b", "b")},
		"odd share stays where it is": {owned("b", "b", "a"), []string{"a", "b"}, 3, owned("b", "b", "a")},
		"one leaves":                  {owned("a", "b", "c", "a", "b", "c"), []string{"a", "c"}, 6, owned("a", "a", "c", "a", "c", "c")},
		"one is replaced":             {owned("a", "b", "a", "b"), []string{"a", "c"}, 4, owned("a", "c", "a", "c")},
		"slots grow":                  {owned("a", "b"), []string{"a", "b"}, 5, owned("a", "b", "a", "a", "b")},
		"slots shrink":                {owned("a", "b", "a", "b"), []string{"a", "b"}, 2, owned("a", "b")},
		"more members than slots":     {owned("c"), []string{"a", "b", "c"}, 1, owned("c")},
		"an id given twice":           {nil, []string{"a", "a", "b"}, 2, owned("a", "b")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, assign(tt.prev, tt.members, tt.slots))
		})
	}
}

func TestAssignIsEvenAndMovesTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.IntRange(0, 12), 1, 8, rapid.ID[int])
		names := func(label string) []string {
			var out []string
			for _, id := range ids.Draw(t, label) {
				out = append(out, fmt.Sprintf("m%02d", id))
			}
			return out
		}
		before, members := names("before"), names("members")
		slots := rapid.IntRange(0, 60).Draw(t, "slots")
		prev := map[int]string{}
		for slot := range rapid.IntRange(0, 60).Draw(t, "slots before") {
			prev[slot] = rapid.SampledFrom(before).Draw(t, "owner")
		}

		next := assign(prev, members, slots)
		count := map[string]int{}
		for slot := range slots {
			require.Contains(t, members, next[slot])
			count[next[slot]]++
		}
		require.Len(t, next, slots)
		for _, m := range members {
			require.Contains(t, []int{slots / len(members), (slots + len(members) - 1) / len(members)}, count[m])
		}
		require.Equal(t, fewestMoves(prev, members, slots), takenAway(prev, next, members))

		slices.Reverse(members)
		require.Equal(t, next, assign(prev, members, slots), "the order of members does not matter")
		require.Equal(t, next, assign(next, members, slots), "what is even stays")
	})
}

// takenAway counts the slots that a living member owned and does not any more.
func takenAway(prev, next map[int]string, members []string) int {
	n := 0
	for slot, owner := range prev {
		if now, exists := next[slot]; exists && now != owner && slices.Contains(members, owner) {
			n++
		}
	}
	return n
}

// fewestMoves computes the least possible number another way: every living member gives away what
// exceeds the small share, except that slots%n of those which exceed it may keep one more.
func fewestMoves(prev map[int]string, members []string, slots int) int {
	count := map[string]int{}
	for slot, owner := range prev {
		if slot < slots {
			count[owner]++
		}
	}
	over, larger := 0, slots%len(members)
	for _, m := range members {
		if excess := count[m] - slots/len(members); excess > 0 {
			over += excess
			if larger > 0 {
				over--
				larger--
			}
		}
	}
	return over
}
