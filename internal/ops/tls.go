package ops

import (
	"crypto/tls"
	"fmt"
	"net"

	"go.uber.org/zap"

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
