package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/test/testcert"
)

// breakable is a network whose connections can all be cut, after which every dial fails at once: say, a certificate has expired.
type breakable struct {
	mu      sync.Mutex
	conns   []net.Conn
	refuses bool
	refused atomic.Int64
}

func (b *breakable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuses {
		b.refused.Add(1)
		return nil, &tls.CertificateVerificationError{Err: errors.New("x509: certificate has expired")}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	b.conns = append(b.conns, conn)
	return conn, err
}

func (b *breakable) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuses = true
	for _, c := range b.conns {
		_ = c.Close()
	}
}

// A producer that has no id yet, and whose broker it cannot talk to, asks for one without a pause: it must not spin.
func TestABrokerThatFailsIsNotDialledWithoutAPause(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	b := &breakable{}
	p, err := NewProducer(Config{Brokers: cluster.ListenAddrs(), Dial: b.dial}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	known := make(chan struct{})
	var once sync.Once
	cluster.Control(func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if kmsg.Key(kreq.Key()) == kmsg.InitProducerID { // the topic is known by now
			once.Do(func() { close(known) })
			b.cut()
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
	answered := make(chan error, 1)
	p.Produce(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("x")}, func(_ *kgo.Record, err error) { answered <- err })
	<-known
	began := time.Now()
	const dials, together = 60, 4 // some connections are dialled side by side
	require.Eventually(t, func() bool { return b.refused.Load() >= dials }, 2*time.Minute, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), (dials/together-1)*failedDialPause)
}

// What the dialling of the library does: TLS for the host's own name, and an error that says what failed.
func TestDialSaysWhatFailed(t *testing.T) {
	began := time.Now()
	_, err := Config{}.dialer()(t.Context(), "tcp", "127.0.0.1:1")
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "dial", op.Op)
	require.GreaterOrEqual(t, time.Since(began), failedDialPause)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = Config{}.dialer()(ctx, "tcp", "127.0.0.1:1")
	require.Error(t, err)
}

// Over TLS the broker's name is checked, and nothing is asked of one that another authority vouches for.
func TestKafkaOverTLS(t *testing.T) {
	certs := testcert.New(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(certs.Server(t)))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	for _, c := range []struct {
		name    string
		trusted func() *tls.Config
		ok      bool
	}{{"its own authority", certs.Client(t), true}, {"another authority", testcert.New(t).Client(t), false}} {
		t.Run(c.name, func(t *testing.T) {
			client, err := New(Config{Brokers: cluster.ListenAddrs(), TLS: c.trusted}, zap.NewNop())
			require.NoError(t, err)
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err = Ping(ctx, client)
			if c.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "certificate")
		})
	}
}
