package kafka_test

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
)

// onUsersListeners runs a test where users sign in with SCRAM: on kfake, and on a real broker if NOTYET_KAFKA_BROKERS names one.
func onUsersListeners(t *testing.T, test func(t *testing.T, users string, admin *kadm.Client)) {
	t.Run("kfake", func(t *testing.T) {
		cluster, cfg := startKafka(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "admin", "admin"))
		cfg.SASL, cfg.Credentials = "SCRAM-SHA-256", as("admin", "admin")
		test(t, cluster.ListenAddrs()[0], kadm.NewClient(newClient(t, kafka.New, cfg)))
	})
	t.Run("real", func(t *testing.T) {
		brokers := os.Getenv("NOTYET_KAFKA_BROKERS")
		if brokers == "" {
			t.Skip("NOTYET_KAFKA_BROKERS is not set")
		}
		admin := kadm.NewClient(newClient(t, kafka.New, kafka.Config{Brokers: strings.Split(brokers, ",")}))
		configs, err := admin.DescribeBrokerConfigs(t.Context(), 1)
		require.NoError(t, err)
		for _, broker := range configs {
			for _, c := range broker.Configs {
				for listener := range strings.SplitSeq(c.MaybeValue(), ",") {
					if users, ok := strings.CutPrefix(listener, "SASL_PLAINTEXT://"); ok && c.Key == "advertised.listeners" {
						test(t, users, admin)
						return
					}
				}
			}
		}
		t.Skip("this broker has no listener where users sign in")
	})
}

// A password changes while a producer works: its connections go on, a new one is made with what is the password by then, and what
// is sent meanwhile waits.
func TestAPasswordChangesWhileConnected(t *testing.T) {
	onUsersListeners(t, func(t *testing.T, users string, admin *kadm.Client) {
		user := "rotates-" + strings.ToLower(rand.Text())
		topic := user
		set := func(password string) {
			_, err := admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password}})
			require.NoError(t, err)
		}
		remove := func(ctx context.Context) {
			_, _ = admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: user, Mechanism: kadm.ScramSha256}}, nil)
		}
		set("first")
		_, err := admin.CreateTopic(t.Context(), 1, 1, nil, topic)
		require.NoError(t, err)
		acl := kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).Allow("User:" + user).AllowHosts("*").Operations(kadm.OpWrite).Topics(topic)
		_, err = admin.CreateACLs(t.Context(), acl)
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx := context.Background()
			remove(ctx)
			_, _ = admin.DeleteTopics(ctx, topic)
			_, _ = admin.DeleteACLs(ctx, acl)
		})
		ping := func(password string) error {
			client := newClient(t, kafka.New, kafka.Config{Brokers: []string{users}, SASL: "SCRAM-SHA-256", Credentials: as(user, password)}, kgo.RequestRetries(0))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return kafka.Ping(ctx, client)
		}
		taken := func(password string) {
			require.Eventually(t, func() bool { return ping(password) == nil }, patience, 20*time.Millisecond)
		}
		taken("first")
		require.Error(t, ping("wrong"))

		var password atomic.Value
		password.Store("first")
		var asked atomic.Int64
		var mu sync.Mutex
		var conns []net.Conn
		cfg := kafka.Config{Brokers: []string{users}, SASL: "SCRAM-SHA-256",
			Credentials: func() (string, string) { asked.Add(1); return user, password.Load().(string) },
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				mu.Lock()
				defer mu.Unlock()
				conns = append(conns, conn)
				return conn, err
			},
		}
		p := newClient(t, kafka.NewProducer, cfg)
		require.Eventually(t, func() bool { return produce(t, p, topic, nil) == nil }, patience, 20*time.Millisecond, "a broker may not know the right yet")
		set("second")
		taken("second")
		require.NoError(t, produce(t, p, topic, nil), "open connections go on")
		require.Error(t, ping("first"))

		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		before, ended := asked.Load(), make(chan error, 1)
		p.Produce(t.Context(), &kgo.Record{Topic: topic}, func(_ *kgo.Record, err error) { ended <- err })
		require.Eventually(t, func() bool { return asked.Load() >= before+3 }, patience, 10*time.Millisecond)
		require.Empty(t, ended, "the record waits")
		password.Store("second")
		require.NoError(t, <-ended)

		remove(t.Context())
		require.Eventually(t, func() bool { return ping("second") != nil }, patience, 20*time.Millisecond, "a user who is gone")
	})
}
