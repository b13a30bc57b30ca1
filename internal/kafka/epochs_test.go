package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
)

func TestExtents(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, "in"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client := newClient(t, kafka.NewProducer, kafka.Config{Brokers: cluster.ListenAddrs()}, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	fill := func(n int) {
		for range n {
			require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Value: []byte("v")}).FirstErr())
		}
	}
	fill(3)
	require.NoError(t, cluster.MoveTopicPartition("in", 0, (cluster.LeaderFor("in", 0)+1)%2))
	fill(4)
	require.NoError(t, cluster.DeleteRecords("in", 0, 1))
	extents := func(epoch int32) map[int32]kafka.Extent {
		got, err := kafka.Extents(t.Context(), client, map[string]map[int32]int32{"in": {0: epoch, 1: -1, 9: 0}, "absent": {0: 0}})
		require.NoError(t, err)
		require.NotContains(t, got["absent"], int32(0))
		return got["in"]
	}
	got := extents(0)
	require.Equal(t, kafka.Extent{Start: 1, End: 7, Epoch: 0, EpochEnd: 3}, got[0])
	require.Equal(t, kafka.Extent{Epoch: -1, EpochEnd: -1}, got[1])
	require.NotContains(t, got, int32(9))
	require.Equal(t, kafka.Extent{Start: 1, End: 7, Epoch: 1, EpochEnd: 7}, extents(1)[0])
	require.Equal(t, kafka.Extent{Start: 1, End: 7, Epoch: -1, EpochEnd: -1}, extents(8)[0])
}

// A real broker knows its leader's epoch before anything is written in it, and says so where a log has no later one.
func TestExtentsOfARealBroker(t *testing.T) {
	brokers := os.Getenv("NOTYET_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("NOTYET_KAFKA_BROKERS is not set")
	}
	topic := fmt.Sprintf("test-%x", rand.Uint64())
	client := newClient(t, kafka.NewProducer, kafka.Config{Brokers: strings.Split(brokers, ",")})
	_, err := kafka.EnsureTopics(t.Context(), client, []kafka.TopicSpec{{Name: topic, Partitions: 1, Replication: 1}})
	require.NoError(t, err)
	admin := kadm.NewClient(client)
	t.Cleanup(func() { _, _ = admin.DeleteTopic(context.Background(), topic) })
	for range 5 {
		require.NoError(t, produce(t, client, topic, nil))
	}
	extent := func(epoch int32) kafka.Extent {
		got, err := kafka.Extents(t.Context(), client, map[string]map[int32]int32{topic: {0: epoch}})
		require.NoError(t, err)
		require.NoError(t, got[topic][0].Err)
		return got[topic][0]
	}
	require.Equal(t, kafka.Extent{End: 5, Epoch: 0, EpochEnd: 5}, extent(0))
	require.Equal(t, kafka.Extent{End: 5, Epoch: -1, EpochEnd: -1}, extent(7))
	_, err = admin.DeleteRecords(t.Context(), kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 5}}})
	require.NoError(t, err)
	require.Equal(t, kafka.Extent{Start: 5, End: 5, Epoch: 0, EpochEnd: 5}, extent(0))
	parts, err := kafka.Partitions(t.Context(), client, topic, "absent-"+topic)
	require.NoError(t, err)
	require.Equal(t, map[string][]int32{topic: {0}}, parts)
}
