package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

func TestMissingTopicFailsSoonAndOnlyItself(t *testing.T) {
	_, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	client := newClient(t, kafka.NewProducer, cfg)
	require.NoError(t, produce(t, client, "orders", nil))

	begin := time.Now()
	failed := make(chan error, 1)
	client.Produce(t.Context(), &kgo.Record{Topic: "missing"}, func(_ *kgo.Record, err error) { failed <- err })
	require.NoError(t, produce(t, client, "orders", nil))
	require.Empty(t, failed, "another topic has to wait for nothing")
	err := <-failed
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	require.True(t, kafka.Permanent(err))
	require.Greater(t, time.Since(begin), 2*time.Second, "a topic that was just created needs this long to be known")
}

func TestTopicThatComesLateIsFound(t *testing.T) {
	cluster, cfg := startKafka(t)
	client := newClient(t, kafka.NewProducer, cfg)
	asked := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "late", Observe: true, Count: -1})
	done := make(chan error, 1)
	client.Produce(t.Context(), &kgo.Record{Topic: "late"}, func(_ *kgo.Record, err error) { done <- err })
	require.NoError(t, asked.Wait(t.Context(), 4)) // a second has passed
	require.NoError(t, cluster.CreateTopic("late", 1, nil))
	require.NoError(t, <-done)
}

// Without help, a client would fail every record for ever (and a dispatcher
// would bury them all).
func TestRecreatedTopic(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	client := newClient(t, kafka.NewProducer, cfg)
	require.NoError(t, produce(t, client, "orders", nil))
	for range 2 {
		require.NoError(t, cluster.DeleteTopic("orders"))
		require.NoError(t, cluster.CreateTopic("orders", 1, nil))
		require.Eventually(t, func() bool {
			err := produce(t, client, "orders", nil)
			require.False(t, kafka.Permanent(err), "%v", err)
			return err == nil
		}, patience, 10*time.Millisecond)
	}
	require.NoError(t, cluster.DeleteTopic("orders"))
	require.Eventually(t, func() bool { return kafka.Permanent(produce(t, client, "orders", nil)) }, patience, time.Millisecond)
}

// Whoever makes a client produces to a topic that was created anew.
func TestEachClientFindsARecreatedTopic(t *testing.T) {
	group := func(cfg kafka.Config, log *zap.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
		return kafka.NewConsumerGroup(cfg, "g", []string{"other"}, log, opts...)
	}
	for name, make := range map[string]func(kafka.Config, *zap.Logger, ...kgo.Opt) (*kgo.Client, error){
		"plain": kafka.New, "solo": kafka.NewSoloProducer, "reader": kafka.NewReader, "group": group,
	} {
		t.Run(name, func(t *testing.T) {
			cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders", "other"))
			client := newClient(t, make, cfg, kgo.MetadataMinAge(10*time.Millisecond))
			require.NoError(t, produce(t, client, "orders", nil))
			require.NoError(t, cluster.DeleteTopic("orders"))
			require.NoError(t, cluster.CreateTopic("orders", 1, nil))
			require.Eventually(t, func() bool { return produce(t, client, "orders", nil) == nil }, patience, 10*time.Millisecond)
		})
	}
}

func TestTopicsAreNotCreatedByAsking(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.AllowAutoTopicCreation())
	client := newClient(t, kafka.NewProducer, cfg)
	require.ErrorIs(t, produce(t, client, "typo", nil), kerr.UnknownTopicOrPartition)
	ids, err := kafka.TopicIDs(t.Context(), client, "typo")
	require.NoError(t, err)
	require.Empty(t, ids)
	require.EqualValues(t, -1, cluster.LeaderFor("typo", 0))

	cfg.AllowAutoTopicCreation = true
	require.NoError(t, produce(t, newClient(t, kafka.NewProducer, cfg), "wanted", nil))
}

// The broker is away: nothing fails, whatever was in flight arrives once.
func TestBrokerAwayIsTheWorldsFault(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	client := newClient(t, kafka.NewProducer, cfg)
	cut := 0
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if cut++; cut > 5 {
			return nil, nil, false
		}
		cluster.KeepControl()
		return nil, fmt.Errorf("cut the connection"), true
	})
	require.NoError(t, produce(t, client, "orders", []byte("x")))
	require.Greater(t, cut, 5)
}

func TestClosingIsNotTheRecordsFault(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	client := newClient(t, kafka.NewProducer, cfg)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	done := make(chan error, 1)
	client.Produce(t.Context(), &kgo.Record{Topic: "orders"}, func(_ *kgo.Record, err error) { done <- err })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, client.Flush(ctx), context.DeadlineExceeded)
	client.Close()
	err := <-done
	require.Error(t, err)
	require.False(t, kafka.Permanent(err))
}

// What was too large before compression for one producer is the broker's to
// judge for the other.
func TestSizeLimits(t *testing.T) {
	_, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	client := newClient(t, kafka.NewProducer, cfg)
	solo := newClient(t, kafka.NewSoloProducer, cfg)
	zeros := make([]byte, 4<<20)
	require.ErrorIs(t, produce(t, client, "orders", zeros), kerr.MessageTooLarge)
	require.NoError(t, produce(t, solo, "orders", zeros))
	require.ErrorIs(t, produce(t, solo, "orders", noise(4<<20)), kerr.MessageTooLarge)
	require.NoError(t, produce(t, solo, "orders", nil), "and the next one is none the worse")
}

// The same partitions that Java's default partitioner chooses (murmur2).
func TestKeysGoWhereKafkaPutsThem(t *testing.T) {
	const partitions = 100
	_, cfg := startKafka(t, kfake.SeedTopics(partitions, "orders"))
	client := newClient(t, kafka.NewProducer, cfg)
	for key, murmur2 := range map[string]int32{ // from Kafka's own UtilsTest
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		r := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: []byte(key)})
		got, err := r.First()
		require.NoError(t, err)
		require.EqualValues(t, (murmur2&0x7fffffff)%partitions, got.Partition, key)
	}
}
