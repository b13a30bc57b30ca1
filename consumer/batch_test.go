package consumer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

func TestChains(t *testing.T) {
	r := func(partition int32, key string) *kgo.Record {
		return &kgo.Record{Partition: partition, Key: []byte(key)}
	}
	null := &kgo.Record{}
	got := chains([]*kgo.Record{r(0, "a"), r(0, "b"), r(1, "a"), r(0, "a"), null, null, r(0, ""), r(0, ""), r(0, "b")})
	require.Equal(t, [][]int{{0, 3}, {1, 8}, {2}, {4}, {5}, {6, 7}}, got)
}

// TestPrefix: whatever was handled, the committed offset is right behind the messages before the first unhandled one.
func TestPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBatch(nil, nil, nil)
		next := map[int32]int64{}
		want := map[int32]int64{} // last offset to commit
		open := map[int32]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "messages") {
			p := rapid.Int32Range(0, 2).Draw(t, "partition")
			handled := rapid.IntRange(0, 4).Draw(t, "handled") > 0
			b.records = append(b.records, &kgo.Record{Topic: "t", Partition: p, Offset: next[p]})
			b.handled = append(b.handled, handled)
			if !handled {
				open[p] = true
			} else if !open[p] {
				want[p] = next[p]
			}
			next[p]++
		}
		got := map[int32]int64{}
		for _, r := range b.prefix() {
			got[r.Partition] = r.Offset
		}
		require.Equal(t, want, got)
	})
}
