package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/internal/kafka"
)

func TestPermanent(t *testing.T) {
	for _, c := range []struct {
		err                   error
		permanent, neighbours bool
	}{
		{kerr.UnknownTopicOrPartition, true, false},
		{kerr.InvalidTopicException, true, false},
		{kerr.TopicAuthorizationFailed, true, false},
		{kerr.MessageTooLarge, true, true},
		{kerr.RecordListTooLarge, true, true},
		{kerr.InvalidRecord, true, true},
		{kerr.CorruptMessage, true, true},
		{kerr.InvalidTimestamp, false, false},
		{kerr.UnsupportedForMessageFormat, true, true},
		{kerr.PolicyViolation, true, true},
		{fmt.Errorf("producing: %w (uncompressed_bytes=9)", kerr.MessageTooLarge), true, true},

		{nil, false, false},
		{kerr.UnknownTopicID, false, false},
		{kerr.NotLeaderForPartition, false, false},
		{kerr.NotEnoughReplicas, false, false},
		{kerr.NotEnoughReplicasAfterAppend, false, false},
		{kerr.KafkaStorageError, false, false},
		{kerr.RequestTimedOut, false, false},
		{kerr.UnknownServerError, false, false},
		{kerr.ClusterAuthorizationFailed, false, false},
		{kerr.TransactionalIDAuthorizationFailed, false, false},
		{kerr.SaslAuthenticationFailed, false, false},
		{kerr.InvalidProducerEpoch, false, false},
		{kerr.ProducerFenced, false, false},
		{kerr.OutOfOrderSequenceNumber, false, false},
		{kerr.ThrottlingQuotaExceeded, false, false},
		{kgo.ErrRecordTimeout, false, false},
		{kgo.ErrRecordRetries, false, false},
		{kgo.ErrMaxBuffered, false, false},
		{kgo.ErrAborting, false, false},
		{kgo.ErrClientClosed, false, false},
		{context.DeadlineExceeded, false, false},
		{context.Canceled, false, false},
		{io.EOF, false, false},
		{errors.New("from tomorrow's library"), false, false},
	} {
		require.Equal(t, c.permanent, kafka.Permanent(c.err), "%v", c.err)
		require.Equal(t, c.neighbours, kafka.MaybeCollateral(c.err), "%v", c.err)
		mayCome := c.err == kerr.UnknownTopicOrPartition || c.err == kerr.TopicAuthorizationFailed
		require.Equal(t, mayCome, kafka.TopicMayCome(c.err), "%v", c.err)
	}
}

// The errors as a client delivers them, not as they are written above: a broker
// refuses, once, and the producer gives up or tries again accordingly.
// A broker that refuses a record has not stored it, whatever the reason. Where an answer was lost before, an earlier try may be
// stored.
func TestARefusedRecordIsNotSent(t *testing.T) {
	lost := &kafka.LostConnections{}
	for _, err := range []error{kerr.InvalidTimestamp, kerr.MessageTooLarge, kerr.UnknownTopicOrPartition} {
		require.True(t, kafka.NotSent(lost.Judge(err, lost.Count())), err)
		require.False(t, kafka.NotSent(lost.Judge(err, lost.Count()-1)), err)
	}
}

func TestPermanentAsTheClientTellsIt(t *testing.T) {
	for _, c := range []struct {
		refuse *kerr.Error
		on     kmsg.Key
		gives  bool
	}{
		{kerr.TopicAuthorizationFailed, kmsg.Produce, true},
		{kerr.TopicAuthorizationFailed, kmsg.Metadata, true},
		{kerr.InvalidTopicException, kmsg.Metadata, true},
		{kerr.MessageTooLarge, kmsg.Produce, true},
		{kerr.RecordListTooLarge, kmsg.Produce, true},
		{kerr.InvalidRecord, kmsg.Produce, true},
		{kerr.CorruptMessage, kmsg.Produce, true},
		{kerr.PolicyViolation, kmsg.Produce, true},

		{kerr.NotLeaderForPartition, kmsg.Produce, false},
		{kerr.NotEnoughReplicas, kmsg.Produce, false},
		{kerr.NotEnoughReplicasAfterAppend, kmsg.Produce, false},
		{kerr.KafkaStorageError, kmsg.Produce, false},
		{kerr.RequestTimedOut, kmsg.Produce, false},
		{kerr.LeaderNotAvailable, kmsg.Metadata, false},
		{kerr.CoordinatorLoadInProgress, kmsg.InitProducerID, false},
	} {
		t.Run(fmt.Sprintf("%s on %s", c.refuse.Message, c.on.Name()), func(t *testing.T) {
			t.Parallel()
			cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
			client := newClient(t, kafka.NewProducer, cfg)
			fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{c.on}, Err: c.refuse, TopLevel: c.on == kmsg.InitProducerID})
			err := produce(t, client, "orders", []byte("x"))
			require.EqualValues(t, 1, fault.Hits(), "the fault did not strike")
			if c.gives {
				require.ErrorIs(t, err, c.refuse)
				require.True(t, kafka.Permanent(err))
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// One record that is too large takes its partition's others with it. A solo
// producer tells them apart.
func TestNeighboursAreInnocent(t *testing.T) {
	cluster, cfg := startKafka(t)
	require.NoError(t, cluster.CreateTopic("small", 1, map[string]string{"max.message.bytes": "2000"}))
	client := newClient(t, kafka.NewProducer, cfg, kgo.ManualFlushing())
	// A record whose topic the client does not know yet may be sent in a batch of its own.
	client.Produce(t.Context(), &kgo.Record{Topic: "small", Value: noise(10)}, nil)
	require.NoError(t, client.Flush(t.Context()))
	records := make([]*kgo.Record, 10)
	failed := 0
	for i := range records {
		records[i] = &kgo.Record{Topic: "small", Value: noise(10)}
		if i == 4 {
			records[i].Value = noise(4000)
		}
		client.Produce(t.Context(), records[i], func(_ *kgo.Record, err error) {
			if kafka.Permanent(err) && kafka.MaybeCollateral(err) {
				failed++
			}
		})
	}
	require.NoError(t, client.Flush(t.Context()))
	require.Equal(t, 10, failed, "if this ever falls, MaybeCollateral has lost its reason")

	solo := newClient(t, kafka.NewSoloProducer, cfg)
	for i, r := range records {
		err := produce(t, solo, r.Topic, r.Value)
		require.Equal(t, i == 4, kafka.Permanent(err), "record %d: %v", i, err)
	}
}
