package kafka

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

type dial func(ctx context.Context, network, address string) (net.Conn, error)

const (
	dialTimeout = 10 * time.Second // the library's own
	// failedDialPause is the least time of a failed dial. While dials fail at once, and for good,
	// as with an expired certificate, the library asks for a producer id again and again without a
	// pause: that took a core, and a log line each time.
	failedDialPause = 100 * time.Millisecond
)

func (c Config) dialer() dial {
	if c.Dial != nil {
		return unhurried(c.Dial)
	}
	plain := &net.Dialer{Timeout: dialTimeout}
	if c.TLS != nil {
		return unhurried(func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{NetDialer: plain, Config: c.TLS()}).DialContext(ctx, network, address)
		})
	}
	return unhurried(plain.DialContext)
}

// unhurried lets a failed dial take a while.
func unhurried(connect dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := connect(ctx, network, address)
		if err != nil {
			loop.Rest(ctx, failedDialPause)
		}
		return conn, err
	}
}
