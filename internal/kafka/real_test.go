package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
)

// What kfake might only pretend: the same on a real broker, when
// NOTYET_KAFKA_BROKERS names one.
func TestOnARealBroker(t *testing.T) {
	brokers := os.Getenv("NOTYET_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("NOTYET_KAFKA_BROKERS is not set")
	}
	cfg := kafka.Config{Brokers: strings.Split(brokers, ",")}
	topic := fmt.Sprintf("test-%x", rand.Uint64())
	client := newClient(t, kafka.NewProducer, cfg)
	solo := newClient(t, kafka.NewSoloProducer, cfg)
	admin := kadm.NewClient(client)
	create := func() {
		require.Eventually(t, func() bool { // a deleted name is free only after a while
			created, err := kafka.EnsureTopics(t.Context(), client, []kafka.TopicSpec{{
				Name: topic, Partitions: 1, Replication: 1, Configs: map[string]string{"max.message.bytes": "2000"},
			}})
			return err == nil && len(created) == 1
		}, patience, 50*time.Millisecond)
	}
	remove := func() {
		_, err := admin.DeleteTopic(context.WithoutCancel(t.Context()), topic)
		require.NoError(t, err)
	}

	err := produce(t, client, topic, nil)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	require.True(t, kafka.Permanent(err))

	create()
	require.NoError(t, produce(t, client, topic, nil))
	require.NoError(t, produce(t, solo, topic, nil))
	err = produce(t, solo, topic, noise(4000))
	require.True(t, kafka.Permanent(err) && kafka.MaybeCollateral(err), "%v", err)
	err = produce(t, client, "in valid", nil)
	require.ErrorIs(t, err, kerr.InvalidTopicException)

	ids := func() [16]byte {
		found, err := kafka.TopicIDs(t.Context(), client, topic)
		require.NoError(t, err)
		return found[topic]
	}
	before := ids()
	remove()
	create()
	require.Eventually(t, func() bool { return ids() != before }, patience, 10*time.Millisecond)
	for _, c := range []*kgo.Client{client, solo} {
		require.Eventually(t, func() bool {
			err := produce(t, c, topic, nil)
			require.False(t, kafka.Permanent(err), "%v", err)
			return err == nil
		}, patience, 50*time.Millisecond)
	}
	remove()
	require.Eventually(t, func() bool { return kafka.Permanent(produce(t, client, topic, nil)) }, patience, 50*time.Millisecond)
}
