package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/notyet/notyet/consumer"
)

// A partition that its broker answers with an error, beside one that is well, is not asked for without a pause.
func TestFetchErrorsDoNotSpin(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.NotLeaderForPartition} {
		t.Run(refusal.Message, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{1}, Err: refusal, Count: -1})
			client, err := kgo.NewClient(append(groupOpts(), kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.KeepRetryableFetchErrors())...)
			require.NoError(t, err)
			t.Cleanup(client.CloseAllowingRebalance)
			c, err := consumer.New(client, consumer.Config{})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx, func(context.Context, consumer.Message) error { return nil }) }()
			first, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			require.NoError(t, refused.Wait(first, 1))
			began := time.Now()
			time.Sleep(2 * time.Second)
			cancel()
			require.NoError(t, <-ended)
			hits, took := refused.Hits(), time.Since(began)
			require.Less(t, hits, 50+int(20*took.Seconds()))
		})
	}
}
