package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// Who may look where the results topic ends, and not read it, is told so. What time mends is waited for, and not asked for without a pause.
func TestTailOfATopicThatCannotBeRead(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.NotLeaderForPartition, kerr.UnknownServerError} {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "results"))
		require.NoError(t, err)
		t.Cleanup(cluster.Close)
		refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{1}, Err: refusal, Count: -1})
		client, err := kafka.NewReader(kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
		require.NoError(t, err)
		t.Cleanup(client.Close)
		results := &tail{client: client, topic: "results"}
		require.NoError(t, results.seek(t.Context(), false))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		go func() { // two seconds from the first refusal: the client may ask for the other partition alone before it, and wait there
			for refused.Hits() == 0 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(2 * time.Second)
			cancel()
		}()
		_, err = results.next(ctx)
		if refusal == kerr.TopicAuthorizationFailed {
			require.ErrorIs(t, err, refusal)
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		hits, took := refused.Hits(), time.Since(began)
		require.Less(t, hits, 50+int(20*took.Seconds()))
	}
}
