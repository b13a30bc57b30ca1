package kafka_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/internal/kafka"
)

// deafConn loses the answer to what is written once it is deaf, and ends with it.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.CompareAndSwap(true, false) {
		return 0, io.EOF
	}
	return n, err
}

// The broker stores a record, its answer is lost, and the client's own second try is refused.
func TestRefusalAfterALostAnswerProvesNothing(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	var deaf atomic.Bool
	lost := new(kafka.LostConnections)
	client := newClient(t, kafka.NewProducer, cfg, kgo.WithHooks(lost), kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return deafConn{conn, &deaf}, err
	}))
	require.NoError(t, produce(t, client, "orders", nil))
	tries := 0
	refusal := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1, When: func(kmsg.Request) bool {
		tries++
		deaf.CompareAndSwap(false, tries == 1)
		return tries > 1
	}})

	before := lost.Count()
	err := lost.Judge(produce(t, client, "orders", []byte("stored, but nobody heard")), before)
	require.True(t, kafka.Permanent(err))
	require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	require.False(t, kafka.NotSent(err))
	require.ErrorContains(t, err, "may have been stored")

	before = lost.Count()
	err = lost.Judge(produce(t, client, "orders", nil), before)
	require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	require.True(t, kafka.NotSent(err), "this is the first answer")

	refusal.Remove()
	before = lost.Count()
	require.NoError(t, lost.Judge(produce(t, client, "orders", nil), before))
}

// The broker stores a record and says that its replicas lag. The client tries again over the same connection, and is refused.
func TestRefusalAfterALateReplicaProvesNothing(t *testing.T) {
	for _, first := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(first.Message, func(t *testing.T) {
			cluster, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
			lost := new(kafka.LostConnections)
			client := newClient(t, kafka.NewProducer, cfg, lost.Opts()...)
			require.NoError(t, produce(t, client, "orders", nil))
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: first})
			tries := 0
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1, When: func(kmsg.Request) bool { tries++; return tries > 1 }})

			before := lost.Count()
			err := lost.Judge(produce(t, client, "orders", []byte("stored, but not by enough")), before)
			require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
			require.False(t, kafka.NotSent(err))

			before = lost.Count()
			err = lost.Judge(produce(t, client, "orders", nil), before)
			require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
			require.True(t, kafka.NotSent(err), "this is the first answer")
		})
	}
}

// A topic that is not there is looked for again and again, and no record of it was ever sent.
func TestAMissingTopicIsAFirstAnswer(t *testing.T) {
	_, cfg := startKafka(t)
	lost := new(kafka.LostConnections)
	client := newClient(t, kafka.NewProducer, cfg, lost.Opts()...)
	before := lost.Count()
	err := lost.Judge(produce(t, client, "missing", nil), before)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	require.True(t, kafka.NotSent(err))
}
