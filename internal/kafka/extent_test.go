package kafka_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

func TestScanReadsWhatLiesBetween(t *testing.T) {
	_, cfg := startKafka(t, kfake.SeedTopics(1, "in", "other"))
	client := newClient(t, kafka.NewProducer, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 6 {
		r := &kgo.Record{Topic: "in", Value: []byte(strconv.Itoa(i)), Timestamp: time.UnixMilli(int64(1000 * (i + 1)))}
		require.NoError(t, client.ProduceSync(ctx, r).FirstErr())
	}
	ends, err := kafka.Ends(ctx, client, "in", "other", "absent")
	require.NoError(t, err)
	require.Equal(t, kafka.Offsets{"in": {0: 6}, "other": {0: 0}}, ends)
	since, err := kafka.Since(ctx, client, time.UnixMilli(3500), "in", "other")
	require.NoError(t, err)
	require.Equal(t, int64(3), since["in"][0])
	starts, err := kafka.Starts(ctx, client, "in")
	require.NoError(t, err)
	require.Equal(t, kafka.Offsets{"in": {0: 0}}, starts)

	var seen []string
	note := func(r *kgo.Record) bool { seen = append(seen, string(r.Value)); return true }
	require.NoError(t, produce(t, client, "in", []byte("later")))
	require.NoError(t, kafka.Scan(ctx, cfg, since, ends, zap.NewNop(), note))
	require.Equal(t, []string{"3", "4", "5"}, seen)

	seen = nil
	require.NoError(t, kafka.Scan(ctx, cfg, ends, ends, zap.NewNop(), note), "nothing lies between")
	require.Empty(t, seen)
	require.NoError(t, kafka.Scan(ctx, cfg, starts, ends, zap.NewNop(), func(r *kgo.Record) bool { note(r); return len(seen) < 2 }))
	require.Equal(t, []string{"0", "1"}, seen, "enough")
}

// What was given up in a transaction is not there, and neither it nor a marker keeps the end of a partition from being seen.
func TestScanEndsBehindTransactions(t *testing.T) {
	_, cfg := startKafka(t, kfake.SeedTopics(1, "in"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := newClient(t, kafka.New, cfg, kgo.TransactionalID("t"))
	for value, end := range map[string]kgo.TransactionEndTry{"kept": kgo.TryCommit, "given up": kgo.TryAbort} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: []byte(value)}).FirstErr())
		require.NoError(t, client.EndTransaction(ctx, end))
	}
	ends, err := kafka.Ends(ctx, client, "in")
	require.NoError(t, err)
	require.Equal(t, int64(4), ends["in"][0], "two records and two markers")
	var seen []string
	err = kafka.Scan(ctx, cfg, kafka.Offsets{"in": {0: 0}}, ends, zap.NewNop(), func(r *kgo.Record) bool { seen = append(seen, string(r.Value)); return true })
	require.NoError(t, err)
	require.Equal(t, []string{"kept"}, seen)
}

func TestGroupMembers(t *testing.T) {
	_, cfg := startKafka(t, kfake.SeedTopics(1, "in"), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := newClient(t, kafka.NewProducer, cfg)
	members, err := kafka.GroupMembers(ctx, client, "g")
	require.NoError(t, err)
	require.Empty(t, members, "there is no such group")
	member, err := kafka.NewConsumerGroup(cfg, "g", []string{"in"}, zap.NewNop())
	require.NoError(t, err)
	go member.PollFetches(ctx)
	require.Eventually(t, func() bool {
		members, err = kafka.GroupMembers(ctx, client, "g")
		return err == nil && len(members) == 1
	}, patience, 10*time.Millisecond)
	require.Contains(t, members[0], "notyet@")
	member.Close()
	members, err = kafka.GroupMembers(ctx, client, "g")
	require.NoError(t, err)
	require.Empty(t, members)
}

// A batch that cannot be read into memory is one record with nothing in it, and what stands behind it is read.
func TestScanPassesABatchThatIsTooLarge(t *testing.T) {
	_, cfg := startKafka(t, kfake.SeedTopics(1, "in"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := newClient(t, kafka.NewProducer, cfg, kgo.ProducerBatchMaxBytes(100<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.MaxDecompressBatchBytes(1<<30))
	for _, value := range [][]byte{[]byte("before"), make([]byte, 70<<20), []byte("behind"), make([]byte, 70<<20)} {
		require.NoError(t, produce(t, client, "in", value))
	}
	ends, err := kafka.Ends(ctx, client, "in")
	require.NoError(t, err)
	var seen []string
	require.NoError(t, kafka.Scan(ctx, cfg, kafka.Offsets{"in": {0: 0}}, ends, zap.NewNop(), func(r *kgo.Record) bool {
		seen = append(seen, strconv.Itoa(int(r.Offset))+string(r.Value))
		return true
	}))
	require.Equal(t, []string{"0before", "1", "2behind", "3"}, seen)
}
