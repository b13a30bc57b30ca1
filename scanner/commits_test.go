package scanner

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
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
