package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/kafka"
)

// values reads what a partition's log has.
func values(t *testing.T, cluster *kfake.Cluster, topic string) (values []string) {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer reader.Close()
	for end := cluster.PartitionInfo(topic, 0).HighWatermark; int64(len(values)) < end; {
		reader.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// A producer that forgets a topic has its next records acknowledged, and they are not stored.
func TestAcknowledgementOfWhatIsNotStored(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	client := newClient(t, kafka.NewProducer, cfg)
	var acked kafka.Acknowledged
	send := func(value string) error {
		r, err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(value)}).First()
		require.NoError(t, err, "the client never notices")
		return acked.Judge(r, err)
	}
	alone := func(value string) {
		r, err := newClient(t, kafka.NewSoloProducer, cfg).ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(value)}).First()
		require.NoError(t, err)
		acked.Corrects(r)
	}
	var want []string
	for i := range 3 {
		want = append(want, fmt.Sprint("first ", i))
		require.NoError(t, send(want[i]))
	}
	client.PurgeTopicsFromProducing("orders")
	for i := range 6 {
		value := fmt.Sprint("second ", i)
		if err := send(value); err != nil {
			require.ErrorIs(t, err, kafka.ErrNotStored)
			require.False(t, kafka.NotSent(err) || kafka.Permanent(err))
			require.Less(t, i, 3, "the broker has only these to mistake it for")
			alone(value)
		}
		want = append(want, value)
	}
	require.Equal(t, want, values(t, cluster, "orders"))
}

func TestAcknowledgedOffsets(t *testing.T) {
	var acked kafka.Acknowledged
	at := func(partition int32, offset int64) *kgo.Record {
		return &kgo.Record{Topic: "orders", Partition: partition, Offset: offset}
	}
	refused := kerr.MessageTooLarge
	require.NoError(t, acked.Judge(at(0, 7), nil))
	require.NoError(t, acked.Judge(at(0, 8), nil))
	require.NoError(t, acked.Judge(at(1, 0), nil), "another partition")
	require.NoError(t, acked.Judge(&kgo.Record{Topic: "mails"}, nil), "another topic")
	require.ErrorIs(t, acked.Judge(at(0, -1), refused), refused)
	require.ErrorIs(t, acked.Judge(at(0, 8), nil), kafka.ErrNotStored)
	require.ErrorIs(t, acked.Judge(at(2, -1), nil), kafka.ErrNotStored, "no offset proves nothing")
	require.NoError(t, acked.Judge(at(0, 9), nil))
	require.Equal(t, []string{"payments"}, acked.Never([]string{"orders", "payments", "mails"}))

	acked.Corrects(at(0, 12)) // the log goes on as before
	require.NoError(t, acked.Judge(at(0, 10), nil), "the producer's own answer came later")
	acked.Corrects(at(0, 3)) // it lost its end
	require.NoError(t, acked.Judge(at(0, 4), nil))
	require.ErrorIs(t, acked.Judge(at(0, 4), nil), kafka.ErrNotStored)

	require.ErrorIs(t, acked.Judge(at(0, -1), kerr.UnknownTopicID), kerr.UnknownTopicID)
	require.NoError(t, acked.Judge(at(0, 0), nil), "of the topic that has the name now")
	require.NoError(t, acked.Judge(at(1, 0), nil))
	require.NoError(t, acked.Judge(&kgo.Record{Topic: "mails", Offset: 1}, nil))
	require.ErrorIs(t, acked.Judge(&kgo.Record{Topic: "mails", Offset: 1}, nil), kafka.ErrNotStored)
}

// Failures of records of a deleted topic that are seen late do not make the producer forget the one that has the name now.
func TestRecreatedTopicIsForgottenOnce(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	core, logs := observer.New(zap.WarnLevel)
	client, err := kafka.NewProducer(cfg, zap.New(core))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, produce(t, client, "orders", []byte("old")))
	require.NoError(t, cluster.DeleteTopic("orders"))
	require.NoError(t, cluster.CreateTopic("orders", 1, nil))

	// The first failure has the topic forgotten. The others are not seen before something is in the new log.
	hold, failed := make(chan struct{}), 0
	stored := func() int64 { return cluster.PartitionInfo("orders", 0).HighWatermark }
	forgotten := func() int { return logs.FilterMessage("topic was deleted and created again").Len() }
	var want []string
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for n := 0; n < 2 || stored() == 0; n++ {
		value := fmt.Sprint("new ", n)
		client.Produce(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(value)}, func(_ *kgo.Record, err error) {
			<-hold
			if err == nil {
				want = append(want, value)
			} else {
				failed++
			}
		})
		<-pace.C
	}
	close(hold)
	require.NoError(t, client.Flush(t.Context()))
	require.Greater(t, failed, 1)

	for n := range 5 {
		value := fmt.Sprint("later ", n)
		require.NoError(t, produce(t, client, "orders", []byte(value)))
		want = append(want, value)
	}
	require.Equal(t, want, values(t, cluster, "orders"))
	require.Equal(t, 1, forgotten())
}
