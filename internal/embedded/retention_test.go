package embedded

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// A record that nobody has read yet is dropped only from a topic that asks for
// it: not for its age (its producer's clock may be wrong by years), and not for
// the room it takes.
func TestOnlyTopicsThatSaySoAreTrimmed(t *testing.T) {
	k, err := StartKafka(Config{Addr: "127.0.0.1:0", Partitions: 1, CreateOnLookup: true, Topics: []Topic{
		{Name: "intake"},
		{Name: "results", Configs: map[string]string{"retention.bytes": "2000000"}},
		{Name: "aged", Configs: map[string]string{"retention.ms": "1000"}},
	}}, zap.NewNop())
	require.NoError(t, err)
	defer k.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer client.Close()

	topics := []string{"intake", "results", "aged", "auto"}
	for range 100 {
		for _, topic := range topics {
			r := &kgo.Record{Topic: topic, Value: make([]byte, 100_000), Timestamp: time.UnixMilli(1)}
			require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
		}
	}
	k.cluster.ApplyRetention()

	starts, err := kadm.NewClient(client).ListStartOffsets(t.Context(), topics...)
	require.NoError(t, err)
	for topic, want := range map[string]int64{"intake": 0, "auto": 0, "results": 81, "aged": 100} {
		at, _ := starts.Lookup(topic, 0)
		require.Equal(t, want, at.Offset, topic)
	}
}
