package ops

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/reload"
)

// secure adds TLS to a listener. A replaced certificate is used from the next connection on.
func (s *Server) secure(l net.Listener) (net.Listener, error) {
	pair, err := reload.New(func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(s.cfg.Certificate, s.cfg.Key)
		return &c, err
	}, func(err error) {
		s.log.Error("the certificate has changed and cannot be used; the one before stays in force", zap.Error(err))
	}, s.cfg.Certificate, s.cfg.Key)
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("reading http.tls.cert and http.tls.key: %w", err)
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"}, // the limits on connections and time assume it
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(), nil },
	}), nil
}

// handshakes takes the lines of the HTTP server's own log. Every peer of the port can have a
// handshake fail. So there is at most one line a second, with the number of failures since the line
// before.
type handshakes struct {
	log   *zap.Logger
	other io.Writer // takes the other lines
	lines rate.Sometimes
	since atomic.Int64
}

func serverLog(to *zap.Logger) *log.Logger {
	return log.New(&handshakes{log: to, other: zap.NewStdLog(to).Writer(), lines: rate.Sometimes{Interval: time.Second}}, "", 0)
}

// Write implements io.Writer.
func (h *handshakes) Write(line []byte) (int, error) {
	why, failed := bytes.CutPrefix(line, []byte("http: TLS handshake error from "))
	if !failed {
		return h.other.Write(line)
	}
	h.since.Add(1)
	h.lines.Do(func() {
		h.log.Info("TLS handshakes failed", zap.Int64("failed", h.since.Swap(0)), zap.ByteString("last", bytes.TrimSpace(why)))
	})
	return len(line), nil
}
