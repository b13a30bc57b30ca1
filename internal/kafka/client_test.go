package kafka_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

func TestConfigIsChecked(t *testing.T) {
	for want, cfg := range map[string]kafka.Config{
		"user name":      {SASL: "PLAIN"},
		"a token":        {SASL: "OAUTHBEARER", Credentials: as("u", "secret")},
		"an access key":  {SASL: "AWS_MSK_IAM", Credentials: as("u", "secret")},
		"without a SASL": {Credentials: as("u", "secret")},
		`"GSSAPI"`:       {SASL: "GSSAPI", Credentials: as("u", "secret")},
	} {
		_, err := kafka.New(cfg, zap.NewNop())
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := kafka.NewConsumerGroup(kafka.Config{}, "", []string{"a"}, zap.NewNop())
	require.ErrorContains(t, err, "group")
	_, err = kafka.NewConsumerGroup(kafka.Config{}, "g", nil, zap.NewNop())
	require.ErrorContains(t, err, "topic")
}

func TestPingAndAuthentication(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "secret"), kfake.Superuser("PLAIN", "p", "secret"))
	ping := func(cfg kafka.Config) error {
		client := newClient(t, kafka.New, cfg, kgo.RequestRetries(0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return kafka.Ping(ctx, client)
	}
	require.ErrorContains(t, ping(cfg), "pinging kafka")
	cfg.SASL, cfg.Credentials = "SCRAM-SHA-256", as("u", "secret")
	require.NoError(t, ping(cfg))
	cfg.Credentials = as("u", "wrong")
	require.Error(t, ping(cfg))
	cfg.SASL, cfg.Credentials = "PLAIN", as("p", "secret")
	require.NoError(t, ping(cfg))
	cluster.Close()
	require.Error(t, ping(cfg))
}

// A member sees everything from the start, nothing uncommitted, and commits only
// what it is told to.
func TestConsumerGroup(t *testing.T) {
	_, cfg := startKafka(t, kfake.SeedTopics(1, "orders"))
	txn := newClient(t, kafka.NewProducer, cfg, kgo.TransactionalID("x"))
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		require.NoError(t, txn.BeginTransaction())
		require.NoError(t, produce(t, txn, "orders", []byte{byte(i)}))
		require.NoError(t, txn.EndTransaction(t.Context(), end))
	}
	read := func() (values []byte) {
		client, err := kafka.NewConsumerGroup(cfg, "scanner", []string{"orders"}, zap.NewNop())
		require.NoError(t, err)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for len(values) < 2 {
			fetches := client.PollFetches(ctx)
			require.NoError(t, fetches.Err())
			fetches.EachRecord(func(r *kgo.Record) { values = append(values, r.Value...) })
		}
		return values
	}
	require.Equal(t, []byte{0, 2}, read())
	require.Equal(t, []byte{0, 2}, read(), "nothing was committed by itself")

	admin := kadm.NewClient(newClient(t, kafka.New, cfg))
	offsets, err := admin.FetchOffsets(t.Context(), "scanner")
	require.NoError(t, err)
	require.Empty(t, offsets.Offsets())
}

// A host that is gone answers nothing at all, not even that it is gone. That is not Kafka's silence.
func TestPingPassesABrokerThatIsSilent(t *testing.T) {
	cluster, cfg := startKafka(t, kfake.NumBrokers(3))
	for _, silent := range [][]int{{0}, {1}, {2}, {0, 1}} {
		var gone []string
		for _, n := range silent {
			gone = append(gone, cluster.ListenAddrs()[n])
		}
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if slices.Contains(gone, address) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		err := errors.New("not yet")
		for tries := 0; tries < 5 && err != nil; tries++ { // a machine may stand still
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			err = kafka.Ping(ctx, newClient(t, kafka.NewProducer, cfg))
			cancel()
		}
		require.NoError(t, err, silent)
	}
}
