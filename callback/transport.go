package callback

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"time"
)

// dialFunc connects. In production the guard's dial.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

const handshakeTimeout = 10 * time.Second

// requestKey is the key of a request's context in the context of its dial.
type requestKey struct{}

// withRequest returns ctx with ctx itself as a value: dials keep values, and lose the cancellation.
func withRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, ctx)
}

// untilRequestEnds ends a dial together with its request. The transport would continue the dial for
// others. Dials would then have no bound: a task may ask for a timeout of a millisecond, and a name
// may lead to where nobody answers.
func untilRequestEnds(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancel(ctx)
	request, ok := ctx.Value(requestKey{}).(context.Context)
	if !ok {
		return bounded, cancel
	}
	stop := context.AfterFunc(request, cancel)
	return bounded, func() {
		stop()
		cancel()
	}
}

func (dial dialFunc) plain(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := untilRequestEnds(ctx)
	defer cancel()
	return dial(ctx, network, address)
}

// secure connects and completes the handshake, for the reason above: the transport's own handshake
// would go on without its request, too.
func (dial dialFunc) secure(conf *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := untilRequestEnds(ctx)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := conf.Clone()
		if c.ServerName == "" {
			c.ServerName, _, _ = net.SplitHostPort(address)
		}
		limited, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		secured := tls.Client(conn, c)
		if err := secured.HandshakeContext(limited); err != nil {
			conn.Close()
			if errors.Is(err, context.DeadlineExceeded) {
				err = &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
			}
			return nil, err
		}
		return secured, nil
	}
}

// newTransport returns the connections of a Sender, for use without an http.Client, which would
// follow redirects and keep cookies. http.DefaultTransport is no base because of the environment's
// proxy: a proxy connects for its client, and so around the guard.
func newTransport(secured *tls.Config, inFlight, total int, dial dialFunc) *http.Transport {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if secured != nil {
		conf = secured.Clone()
	}
	conf.NextProtos = []string{"h2", "http/1.1"}
	return &http.Transport{
		Proxy:                 nil,
		DialContext:           dial.plain,
		DialTLSContext:        dial.secure(conf),
		ForceAttemptHTTP2:     true, // a dialer of its own turns it off otherwise
		MaxConnsPerHost:       inFlight,
		MaxIdleConnsPerHost:   inFlight,
		MaxIdleConns:          total,
		IdleConnTimeout:       30 * time.Second,
		ExpectContinueTimeout: time.Second,
		// The first KiB of an answer's body, as received, stands in a dead letter.
		DisableCompression: true,
		// 10 MiB by default, for each request in flight.
		MaxResponseHeaderBytes: 64 << 10,
		// Without pings request after request would use a silent connection of HTTP/2.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
}
