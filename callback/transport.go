package callback

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// dialFunc connects. In production it is the guard's.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport returns the connections of a Sender. It is used without an http.Client, which would
// follow redirects and keep cookies. It is not made from http.DefaultTransport, which has the
// environment's proxy: a proxy connects for its client, and so around the guard.
func newTransport(c Config, dial dialFunc) *http.Transport {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLS != nil {
		conf = c.TLS.Clone()
	}
	return &http.Transport{
		Proxy:                 nil,
		DialContext:           dial,
		TLSClientConfig:       conf,
		TLSHandshakeTimeout:   10 * time.Second,
		ForceAttemptHTTP2:     true, // a dialer of its own turns it off otherwise
		MaxConnsPerHost:       c.MaxInFlight,
		MaxIdleConnsPerHost:   c.MaxInFlight,
		MaxIdleConns:          c.MaxInFlightTotal,
		IdleConnTimeout:       30 * time.Second,
		ExpectContinueTimeout: time.Second,
		// An answer's body is read as it comes: its first KiB stands in a dead letter.
		DisableCompression: true,
		// 10 MiB by default, for each request in flight.
		MaxResponseHeaderBytes: 64 << 10,
		// A connection of HTTP/2 that has gone silent would be used by request after request.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
}
