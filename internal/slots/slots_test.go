package slots_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/notyet/notyet/internal/slots"
)

// A change of any value here loses every task that is already stored.
func TestOfIsForEver(t *testing.T) {
	for _, c := range []struct {
		topic string
		key   []byte
		id    string
		n     int
		want  int
	}{
		{"orders", []byte("customer-1"), "a", 64, 40},
		{"orders", []byte("customer-1"), "b", 64, 40},
		{"orders", []byte("customer-1"), "a", 1024, 340},
		{"orders", []byte("customer-2"), "a", 1024, 512},
		{"orders", []byte{}, "a", 1024, 368},
		{"orders", nil, "a", 1024, 283},
		{"orders", nil, "", 1024, 298},
		{"payments", []byte("customer-1"), "a", 1024, 868},
		{"payments", nil, "notyet.intake/3/8812345", 1024, 842},
		{"p", []byte{0x00, 0xff, 0x80}, "x", 100000, 35272},
		{"p", []byte("k"), "x", 1, 0},
		{"p", []byte("k"), "x", 0, 0},
		{"p", []byte("k"), "x", -3, 0},
	} {
		require.Equal(t, c.want, slots.Of(c.topic, c.key, c.id, c.n), "%q %q %q %d", c.topic, c.key, c.id, c.n)
	}
}

// The hash itself is pinned too: an upgrade that changed it would still pass a
// property test.
func TestHashFunctionIsXXH64(t *testing.T) {
	require.Equal(t, uint64(0xef46db3751d8e999), xxhash.Sum64String(""))
}

func TestKeyDecidesAloneWhenThereIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.StringMatching(`[a-z.]{1,20}`).Draw(t, "topic")
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		if key == nil {
			key = []byte{}
		}
		n := rapid.IntRange(1, 5000).Draw(t, "n")
		a := slots.Of(topic, key, rapid.String().Draw(t, "a"), n)
		require.Equal(t, a, slots.Of(topic, key, rapid.String().Draw(t, "b"), n))
		require.GreaterOrEqual(t, a, 0)
		require.Less(t, a, n)
	})
}

// A nil key, an empty key, and an id that looks like a key are three things.
func TestNilKeyIsNotEmptyKey(t *testing.T) {
	const n = 1 << 30 // so wide that equality by chance is out of the question
	require.NotEqual(t, slots.Of("orders", nil, "", n), slots.Of("orders", []byte{}, "", n))
	require.NotEqual(t, slots.Of("orders", nil, "k", n), slots.Of("orders", []byte("k"), "", n))
	require.NotEqual(t, slots.Of("ab", []byte("c"), "", n), slots.Of("a", []byte("bc"), "", n))
}

func TestGrowthMovesOnlyTheShareThatMust(t *testing.T) {
	const tasks = 50_000
	for _, c := range []struct{ from, to int }{{4, 6}, {16, 17}, {64, 128}, {1000, 1024}} {
		moved := 0
		for i := range tasks {
			key := fmt.Appendf(nil, "key-%d", i)
			before, after := slots.Of("orders", key, "", c.from), slots.Of("orders", key, "", c.to)
			if before == after {
				continue
			}
			moved++
			require.GreaterOrEqual(t, after, c.from, "a task may only move to a new slot")
		}
		p := float64(c.to-c.from) / float64(c.to)
		// Five standard deviations of a binomial.
		bound := 5 * math.Sqrt(tasks*p*(1-p))
		require.InDelta(t, tasks*p, moved, bound, "%d to %d", c.from, c.to)
	}
}

func TestSlotsAreEven(t *testing.T) {
	const n, perSlot = 64, 1000
	for name, of := range map[string]func(i int) int{
		"keys":   func(i int) int { return slots.Of("orders", fmt.Appendf(nil, "%d", i), "", n) },
		"ids":    func(i int) int { return slots.Of("orders", nil, fmt.Sprintf("notyet.intake/0/%d", i), n) },
		"topics": func(i int) int { return slots.Of(fmt.Sprintf("t%d", i), []byte("k"), "", n) },
	} {
		var count [n]int
		for i := range n * perSlot {
			count[of(i)]++
		}
		for slot, c := range count {
			require.InDelta(t, perSlot, c, 5*math.Sqrt(perSlot), "%s, slot %d", name, slot)
		}
	}
}

func TestOfDoesNotAllocate(t *testing.T) {
	key := []byte("a key of a length that does not fit into one stripe of the hash, for good measure")
	id := "notyet.intake/3/8812345"
	require.Zero(t, testing.AllocsPerRun(100, func() { slots.Of("orders", key, id, 1024) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { slots.Of("orders", nil, id, 1024) }))
}

func BenchmarkOf(b *testing.B) {
	key := []byte("customer-4711")
	b.ReportAllocs()
	for b.Loop() {
		slots.Of("orders.payment.due", key, "", 1024)
	}
}
