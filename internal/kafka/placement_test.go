package kafka

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// What Placement says of a key is where the producer puts it, which is where Kafka's own clients put it.
func TestPlacementKnowsWhereKeysGo(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(7, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	where := NewPlacement()
	client, err := NewProducer(Config{Brokers: cluster.ListenAddrs()}, zap.NewNop(), kgo.RecordPartitioner(where))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.Equal(t, int32(-1), where.Of("orders", []byte("a")), "nothing was produced yet")
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: []byte("first")}).FirstErr())
	var records []*kgo.Record
	for i := range 100 {
		records = append(records, &kgo.Record{Topic: "orders", Key: fmt.Append(nil, "key", i)}, &kgo.Record{Topic: "orders"})
	}
	for _, r := range client.ProduceSync(t.Context(), records...) {
		require.NoError(t, r.Err)
		if r.Record.Key != nil {
			require.Equal(t, r.Record.Partition, where.Of("orders", r.Record.Key))
		}
	}
	require.Equal(t, int32(-1), where.Of("orders", nil), "without a key it may go anywhere")
	require.Equal(t, int32(-1), where.Of("others", []byte("a")))
}
