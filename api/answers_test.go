package api

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// A partition that its broker answers with an error neither holds up the answers of the others, nor is asked for without a pause.
func TestAFailingPartitionDoesNotHoldUpAnswers(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "results"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{1}, Err: kerr.NotLeaderForPartition, Count: -1})
	answers := NewAnswers("results", func() (*kgo.Client, error) {
		return kafka.NewReader(kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	}, zap.NewNop())
	t.Cleanup(answers.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	began := time.Now()
	const many = 20 // one after the other
	soon := 0
	for i := range many {
		asked := time.Now()
		request := strconv.Itoa(i)
		w, err := answers.expect(t.Context(), "a")
		require.NoError(t, err)
		require.NoError(t, client.ProduceSync(t.Context(), schemas.EncodeEvent("results", schemas.Event{ID: "a", State: schemas.StateStale, Request: request})).FirstErr())
		_, ok := answers.answer(t.Context(), w, request)
		require.True(t, ok)
		answers.leave(w)
		if time.Since(asked) < time.Second*3/4 {
			soon++
		}
	}
	took := time.Since(began)
	require.Positive(t, soon, "a second for each would be too long; a machine that stalls delays some")
	require.NotZero(t, refused.Hits())
	require.Less(t, refused.Hits(), 50+int(20*took.Seconds()))
}
