package callback

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/schemas"
)

var (
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	everyone = URLRules{Enabled: true, AllowHTTP: true, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, AllowedPorts: []uint16{}}
)

// newTestSender returns a sender that really connects, under the rules.
func newTestSender(t *testing.T, cfg Config) *Sender {
	t.Helper()
	s, err := New(cfg, zaptest.NewLogger(t), prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// memory is a network inside the process, so that time can be virtual.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	stop  sync.Once
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.stop.Do(func() { close(m.done) })
	return nil
}

func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case m.conns <- server:
		return client, nil
	case <-m.done:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serveMemory runs a server in the bubble of a synctest, and returns a sender to it and a function
// that ends both.
func serveMemory(t *testing.T, cfg Config, h http.HandlerFunc) (*Sender, func()) {
	t.Helper()
	m := &memory{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: h}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(m) })
	if !cfg.URLRules.Enabled {
		cfg.URLRules = everyone
	}
	cfg.Dial = m.dial
	s, err := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(t, err)
	return s, func() {
		s.Close()
		_ = server.Close()
		running.Wait()
		synctest.Wait() // its handlers end
	}
}

func requestTo(url string) Request {
	return Request{
		URL: url, Body: []byte("\x00body\xff"), Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/octet-stream")}},
		Delivery: schemas.Delivery{ID: "order-1", Due: 1790000060000, Attempt: 2, Key: "a-key"},
	}
}
