package kafka_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

const patience = time.Minute

func startKafka(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, kafka.Config) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, kafka.Config{Brokers: c.ListenAddrs()}
}

func newClient(t *testing.T, make func(kafka.Config, *zap.Logger, ...kgo.Opt) (*kgo.Client, error), cfg kafka.Config, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := make(cfg, zap.NewNop(), opts...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// as returns credentials that never change.
func as(user, password string) func() (string, string) {
	return func() (string, string) { return user, password }
}

func produce(t *testing.T, client *kgo.Client, topic string, value []byte) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: value}).FirstErr()
}

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
