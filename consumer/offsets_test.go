package consumer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// TestTakeCommittable: in whatever order messages are handled, the committed offset is that of the
// first unhandled one. Each record is returned once, and all others are kept.
func TestTakeCommittable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l offsetTracker
		var all []*entry
		next := map[int32]int64{}
		committed := map[int32]int64{} // next offset
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				p := rapid.Int32Range(0, 2).Draw(t, "partition")
				all = append(all, &entry{record: &kgo.Record{Topic: "t", Partition: p, Offset: next[p]}})
				l.add(all[len(all)-1])
				next[p]++
			case 1:
				if len(all) > 0 {
					rapid.SampledFrom(all).Draw(t, "entry").handled = true
				}
			case 2:
				for _, r := range l.takeCommittable() {
					require.Greater(t, r.Offset+1, committed[r.Partition])
					committed[r.Partition] = r.Offset + 1
				}
				want, open := expected(all)
				require.Equal(t, want, committed)
				require.Equal(t, open, l.size)
			}
		}
	})
}

// expected returns the first unhandled offset of every partition where it is not 0, and how many
// messages follow.
func expected(all []*entry) (next map[int32]int64, open int) {
	next, closed := map[int32]int64{}, map[int32]bool{}
	for _, e := range all {
		p := e.record.Partition
		if closed[p] = closed[p] || !e.handled; closed[p] {
			open++
		} else {
			next[p] = e.record.Offset + 1
		}
	}
	return next, open
}
