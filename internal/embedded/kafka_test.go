package embedded_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/embedded"
)

const patience = time.Minute

func start(t *testing.T, cfg embedded.Config) *embedded.Kafka {
	t.Helper()
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	k, err := embedded.StartKafka(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return k
}

func client(t *testing.T, k *embedded.Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Addr())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func produce(t *testing.T, c *kgo.Client, topic string, n int) {
	t.Helper()
	for i := range n {
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)}
		require.NoError(t, c.ProduceSync(t.Context(), r).FirstErr())
	}
}

// consume reads n records from the start of topic.
func consume(t *testing.T, c *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err(), "%d of %d", len(records), n)
		records = append(records, fetches.Records()...)
	}
	return records
}

func partitions(t *testing.T, k *embedded.Kafka, topic string) int {
	t.Helper()
	topics, err := kadm.NewClient(client(t, k)).ListTopics(t.Context())
	require.NoError(t, err)
	return len(topics[topic].Partitions)
}

func TestTopicsAreThereFromTheStart(t *testing.T) {
	k := start(t, embedded.Config{Partitions: 3, Topics: []embedded.Topic{
		{Name: "notyet.intake"}, {Name: "notyet.results", Partitions: 2, Configs: map[string]string{"retention.bytes": "1000"}},
	}})
	require.Equal(t, 3, partitions(t, k, "notyet.intake"))
	require.Equal(t, 2, partitions(t, k, "notyet.results"))
}

// As with a real broker that creates topics, the client has to allow it.
func TestTopicIsCreatedOnFirstUse(t *testing.T) {
	k := start(t, embedded.Config{})
	c := client(t, k, kgo.UnknownTopicRetries(0))
	require.ErrorIs(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: "typo"}).FirstErr(), kerr.UnknownTopicOrPartition)
	require.Zero(t, partitions(t, k, "typo"))

	produce(t, client(t, k, kgo.AllowAutoTopicCreation()), "orders", 5)
	require.Equal(t, 4, partitions(t, k, "orders"))
	require.Len(t, consume(t, client(t, k, kgo.ConsumeTopics("orders")), 5), 5)

	// What Java's consumer does: subscribe before anything was produced.
	early := client(t, k, kgo.ConsumeTopics("early"), kgo.AllowAutoTopicCreation())
	require.Eventually(t, func() bool { return partitions(t, k, "early") == 4 }, patience, 10*time.Millisecond)
	produce(t, c, "early", 1)
	consume(t, early, 1)

	internal := client(t, k, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	require.ErrorIs(t, internal.ProduceSync(t.Context(), &kgo.Record{Topic: "__secret"}).FirstErr(), kerr.UnknownTopicOrPartition)
}

func TestCreateOnLookup(t *testing.T) {
	k := start(t, embedded.Config{CreateOnLookup: true})
	produce(t, client(t, k), "orders", 1)
	topics, err := kadm.NewClient(client(t, k)).ListTopics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"orders"}, topics.Names(), "asking for all creates none")
}

// What comes out is what went in, by every codec.
func TestRecordsAreUntouched(t *testing.T) {
	k := start(t, embedded.Config{})
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		topic := fmt.Sprintf("t%d", i)
		c := client(t, k, kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(codec))
		sent := []*kgo.Record{
			{Topic: topic, Key: []byte("k"), Value: make([]byte, 5000), Timestamp: time.UnixMilli(12345), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0xff}}, {Key: "h"}}},
			{Topic: topic, Key: []byte("k"), Timestamp: time.UnixMilli(12346)},
		}
		require.NoError(t, c.ProduceSync(t.Context(), sent...).FirstErr())
		for j, r := range consume(t, client(t, k, kgo.ConsumeTopics(topic)), 2) {
			require.Equal(t, sent[j].Key, r.Key)
			require.Equal(t, sent[j].Value, r.Value)
			require.Equal(t, sent[j].Headers, r.Headers)
			require.True(t, sent[j].Timestamp.Equal(r.Timestamp))
		}
	}
}

func TestTransactionsWork(t *testing.T) {
	k := start(t, embedded.Config{Topics: []embedded.Topic{{Name: "orders", Partitions: 1}}})
	c := client(t, k, kgo.TransactionalID("x"))
	for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		require.NoError(t, c.BeginTransaction())
		require.NoError(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: fmt.Append(nil, i)}).FirstErr())
		require.NoError(t, c.EndTransaction(t.Context(), end))
	}
	got := consume(t, client(t, k, kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted())), 1)
	require.Equal(t, "1", string(got[0].Value))
}

func TestAddresses(t *testing.T) {
	k := start(t, embedded.Config{})
	_, err := embedded.StartKafka(embedded.Config{Addr: k.Addr()}, zap.NewNop())
	require.ErrorContains(t, err, k.Addr()+" is in use")
	require.ErrorContains(t, err, "set another kafka address")
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "localhost"} {
		_, err := embedded.StartKafka(embedded.Config{Addr: addr}, zap.NewNop())
		require.ErrorContains(t, err, addr)
	}

	// Clients are told the address that they can reach.
	brokers, err := kadm.NewClient(client(t, k)).ListBrokers(t.Context())
	require.NoError(t, err)
	require.Len(t, brokers, 1)
	require.Equal(t, k.Addr(), net.JoinHostPort(brokers[0].Host, fmt.Sprint(brokers[0].Port)))

	k.Close()
	k.Close()
	again := start(t, embedded.Config{Addr: k.Addr()})
	require.Equal(t, k.Addr(), again.Addr(), "the port is free as soon as Close returns")
}

func TestRedis(t *testing.T) {
	r, err := embedded.StartRedis()
	require.NoError(t, err)
	conn, err := net.Dial("tcp", r.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
	require.NoError(t, err)
	answer := make([]byte, 7)
	_, err = conn.Read(answer)
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", string(answer))
	r.Close()
	_, err = net.Dial("tcp", r.Addr())
	require.Error(t, err)
}

// A request may have 8 MiB, and its client need not compress it.
func TestTheLargestRequestFits(t *testing.T) {
	k, err := embedded.StartKafka(embedded.Config{Addr: "127.0.0.1:0", Topics: []embedded.Topic{{Name: "intake"}}}, zap.NewNop())
	require.NoError(t, err)
	defer k.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.ProducerBatchMaxBytes(16<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer client.Close()
	for _, size := range []int{1 << 20, 8<<20 + 128<<10} {
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "intake", Value: make([]byte, size)}).FirstErr(), size)
	}
}
