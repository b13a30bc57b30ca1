package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
)

// KafkaConfig returns how clients reach the configured Kafka.
func KafkaConfig(cfg *config.Config) (kafka.Config, error) {
	t, err := TLSConfig("kafka.tls", cfg.Kafka.TLS)
	return kafka.Config{
		Brokers: cfg.Kafka.Brokers, ClientID: cfg.Kafka.ClientID, TLS: t,
		SASL: cfg.Kafka.SASL.Mechanism, Username: cfg.Kafka.SASL.User, Password: cfg.Kafka.SASL.Password,
	}, err
}

// TLSConfig returns nil if TLS is off.
func TLSConfig(key string, t config.TLS) (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil // off is a valid result
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, Usage("%s.ca: %v: name a PEM file that notyet can read", key, err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, Usage("%s.ca %q: there is no certificate in PEM form in it: name the file of the authority's certificate", key, t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, Usage("%s.cert and %s.key: %v: name the PEM files of one pair", key, key, err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// DialTimeout is how long a command tries to reach Kafka before it fails.
const DialTimeout = 5 * time.Second

// Reach fails unless Kafka answers soon. The client alone would retry for ever.
func Reach(ctx context.Context, cfg *config.Config, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	if err := kafka.Ping(ctx, client); err != nil {
		return fmt.Errorf("no answer from Kafka at %s (kafka.brokers): %w", strings.Join(cfg.Kafka.Brokers, ","), err)
	}
	return nil
}
