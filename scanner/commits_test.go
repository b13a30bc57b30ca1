package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/store/intake"
)

// What Kafka did not take is committed with the next, unless the partition is further or gone.
func TestAFailedCommitIsRepeated(t *testing.T) {
	p := newPartitions(zap.NewNop())
	for part := range int32(2) {
		p.sources[partitionKey{"in", part}] = nil
	}
	c := newCommits(p, "", zap.NewNop())
	c.due["in"] = map[int32]kgo.EpochOffset{1: {Offset: 8}}
	c.takeBack(map[string]map[int32]kgo.EpochOffset{"in": {0: {Offset: 5}, 1: {Offset: 5}, 2: {Offset: 5}}})
	require.Equal(t, map[int32]kgo.EpochOffset{0: {Offset: 5}, 1: {Offset: 8}}, c.due["in"])
	p.drop(map[string][]int32{"in": {0}})
	c.forget(map[string][]int32{"in": {0}})
	c.takeBack(map[string]map[int32]kgo.EpochOffset{"in": {0: {Offset: 5}}})
	require.Equal(t, map[int32]kgo.EpochOffset{1: {Offset: 8}}, c.due["in"], "of one that was revoked nothing is committed")
}

// While a database that was set back catches up, Kafka keeps the offset that it has: by that, whoever takes the partition next knows what was
// accepted before.
func TestNoCommitGoesBack(t *testing.T) {
	key := partitionKey{"in", 0}
	c := newCommits(newPartitions(zap.NewNop()), "shop", zap.NewNop())
	taken := func() int64 {
		t.Helper()
		due, _ := c.take()
		at, some := due["in"][0]
		require.True(t, some)
		return at.Offset
	}
	c.claim(key, 500, 1000)
	require.EqualValues(t, 1000, taken(), "the group is claimed all the same")
	c.note(key, intake.Source{Next: 600})
	require.Empty(t, c.due)
	c.note(key, intake.Source{Next: 1000})
	require.EqualValues(t, 1000, taken())
	c.note(key, intake.Source{Next: 1100})
	require.EqualValues(t, 1100, taken())
	c.note(key, intake.Source{Next: 700})
	require.Empty(t, c.due, "it was set back meanwhile")
	c.forget(map[string][]int32{"in": {0}})
	c.claim(key, 0, -1)
	require.Zero(t, taken(), "of another log of that name")
	c.note(key, intake.Source{Next: 5})
	require.EqualValues(t, 5, taken())
}
