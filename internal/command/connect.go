package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/reload"
	"github.com/notyet/notyet/store"
)

// KafkaConfig returns how clients reach the configured Kafka. Changed files are read again; log
// gets the errors of unusable ones.
func KafkaConfig(cfg *config.Config, log *zap.Logger) (kafka.Config, error) {
	k := cfg.Kafka
	out := kafka.Config{Brokers: k.Brokers, ClientID: k.ClientID, SASL: k.SASL.Mechanism}
	var err error
	if out.TLS, err = TLSConfig("kafka.tls", k.TLS, log); err != nil {
		return out, err
	}
	s := k.SASL
	var now identities
	switch {
	case s.Mechanism == "":
		return out, nil
	case s.TokenFile != "":
		now, err = watched("kafka.sasl", source{}, source{File: s.TokenFile}, source{}, log)
		out.Token = func(context.Context) (string, error) { return now().password, nil }
		return out, err
	}
	if now, err = watched("kafka.sasl", source{s.User, s.UserFile}, source{s.Password, s.PasswordFile}, source{s.SessionToken, s.SessionTokenFile}, log); err != nil {
		return out, err
	}
	switch s.Mechanism {
	case "OAUTHBEARER":
		out.Token = kafka.NewTokens(kafka.TokenEndpoint{URL: s.TokenURL, Scopes: s.Scopes, Credentials: now.pair})
	case "AWS_MSK_IAM":
		out.AWS = func() (string, string, string) { i := now(); return i.user, i.password, i.session }
	default:
		out.Credentials = now.pair
	}
	return out, nil
}

// APIConfig returns how commands reach the API of a service. user is the command's user.
func APIConfig(cfg *config.Config, user string) (api.ClientConfig, error) {
	h := cfg.HTTP
	out := api.ClientConfig{Addr: h.Addr, Token: h.Token, User: user}
	t, err := TLSConfig("http.tls", config.TLS{Enabled: h.TLS.Enabled, CA: h.TLS.CA, ServerName: h.TLS.ServerName}, zap.NewNop())
	if t != nil {
		out.TLS = t()
	}
	return out, err
}

// StoreConfig returns how to reach the configured database, likewise.
func StoreConfig(cfg *config.Config, log *zap.Logger) (store.Config, error) {
	m := cfg.MySQL
	out := store.Config{DSN: m.DSN, MaxConns: m.MaxConns}
	var err error
	if out.TLS, err = TLSConfig("mysql.tls", m.TLS, log); err != nil {
		return out, err
	}
	switch {
	case m.PasswordFile != "":
		user, _, _, err := store.Credentials(m.DSN)
		if err != nil {
			return out, Usage("mysql.dsn: %v", err)
		}
		out.Credentials, err = credentials("mysql", source{Value: user}, source{File: m.PasswordFile}, log)
		return out, err
	case m.DSNFile != "":
		now, err := reading("mysql.dsn-file", func() (identity, error) { return identityOfDSN(m) }, log, m.DSNFile)
		out.Credentials = now.pair
		return out, err
	}
	return out, err
}

// identityOfDSN returns the user and password. The rest of the DSN stays as at the start: another
// server or database would be another installation.
func identityOfDSN(m config.MySQL) (identity, error) {
	dsn, err := reload.ReadText(m.DSNFile)
	if err != nil {
		return identity{}, err
	}
	_, _, before, err := store.Credentials(m.DSN)
	if err != nil {
		return identity{}, err
	}
	user, password, rest, err := store.Credentials(dsn)
	if err == nil && rest != before {
		err = errors.New("more than user and password has changed: restart notyet to use another address, database or parameter")
	}
	return identity{user: user, password: password}, err
}

// IndexConfig returns how to reach the configured Redis, likewise.
func IndexConfig(cfg *config.Config, log *zap.Logger) (index.Config, error) {
	r := cfg.Redis
	out := index.Config{Addrs: r.Addrs, DB: r.DB, Cluster: r.Cluster, MasterName: r.Master, Prefix: r.Prefix}
	var err error
	if out.TLS, err = TLSConfig("redis.tls", r.TLS, log); err != nil {
		return out, err
	}
	if r.User != "" || r.Password != "" {
		if out.Credentials, err = credentials("redis", source{Value: r.User}, source{r.Password, r.PasswordFile}, log); err != nil {
			return out, err
		}
	}
	if r.SentinelUser != "" || r.SentinelPassword != "" {
		out.SentinelCredentials, err = credentials("redis.sentinel", source{Value: r.SentinelUser}, source{r.SentinelPassword, r.SentinelPasswordFile}, log)
	}
	return out, err
}

// ClientSecret returns notyet's secret at the issuer, likewise.
func ClientSecret(cfg *config.Config, log *zap.Logger) (func() string, error) {
	s := cfg.HTTP.SignIn
	now, err := watched("http.sign-in.client-secret", source{}, source{s.ClientSecret, s.ClientSecretFile}, source{}, log)
	return func() string { return now().password }, err
}

// source is the value of a setting, or the file with the value.
type source struct{ Value, File string }

func (t source) read() (string, error) {
	if t.File == "" {
		return t.Value, nil
	}
	return reload.ReadText(t.File)
}

// identity is a user with a password. session goes with temporary credentials only.
type identity struct{ user, password, session string }

type identities func() identity

func (now identities) pair() (user, password string) {
	i := now()
	return i.user, i.password
}

// credentials are read from files, again after a change. name begins the names of the settings.
func credentials(name string, user, password source, log *zap.Logger) (func() (user, password string), error) {
	now, err := watched(name, user, password, source{}, log)
	return now.pair, err
}

func watched(name string, user, password, session source, log *zap.Logger) (identities, error) {
	return reading(name, func() (i identity, err error) {
		if i.user, err = user.read(); err != nil {
			return i, err
		}
		if i.password, err = password.read(); err != nil {
			return i, err
		}
		i.session, err = session.read()
		return i, err
	}, log, given(user.File, password.File, session.File)...)
}

func given(files ...string) []string {
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

func reading(name string, read func() (identity, error), log *zap.Logger, files ...string) (identities, error) {
	now, err := reload.New(read, func(err error) {
		log.Warn("a secret has changed and cannot be used; the previous one stays in force", zap.String("setting", name), zap.Strings("files", files), zap.Error(err))
	}, files...)
	if err != nil {
		return nil, Usage("%s: %v", name, err)
	}
	return now.Get, nil
}

// TLSConfig returns a source of configurations for new connections; nil if TLS is off.
func TLSConfig(key string, t config.TLS, log *zap.Logger) (func() *tls.Config, error) {
	if !t.Enabled {
		return nil, nil // off is a valid result
	}
	files := given(t.CA, t.Cert, t.Key)
	now, err := reload.New(func() (*tls.Config, error) { return readTLS(key, t) }, func(err error) {
		log.Warn("certificates have changed and cannot be used; the previous ones stay in force", zap.String("setting", key), zap.Strings("files", files), zap.Error(err))
	}, files...)
	if err != nil {
		return nil, err
	}
	return now.Get, nil
}

func readTLS(key string, t config.TLS) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		out.RootCAs = x509.NewCertPool()
		if err := AddCA(out.RootCAs, key+".ca", t.CA); err != nil {
			return nil, err
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

// AddCA adds the authorities of a PEM file. key is the file's setting.
func AddCA(roots *x509.CertPool, key, file string) error {
	pem, err := os.ReadFile(file)
	if err != nil {
		return Usage("%s: %v: name a PEM file that notyet can read", key, err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return Usage("%s %q: there is no certificate in PEM form in it: name the file of the authority's certificate", key, file)
	}
	return nil
}

// ConnectKafka makes a client, such as kafka.New does, and fails unless Kafka answers soon. The
// client alone would retry for ever.
func ConnectKafka(ctx context.Context, cfg *config.Config, log *zap.Logger, open func(kafka.Config, *zap.Logger, ...kgo.Opt) (*kgo.Client, error), opts ...kgo.Opt) (*kgo.Client, error) {
	kcfg, err := KafkaConfig(cfg, log)
	if err != nil {
		return nil, err
	}
	client, err := open(kcfg, log, opts...)
	if err != nil {
		return nil, err
	}
	if err := Reach(ctx, cfg, client); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// DialTimeout is how long a command tries to reach Kafka before it fails.
const DialTimeout = 5 * time.Second

// Reach fails unless Kafka answers soon. The client alone would retry for ever.
func Reach(ctx context.Context, cfg *config.Config, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	if err := kafka.Ping(ctx, client); err != nil {
		key := "kafka.brokers"
		if !cfg.IsSet(key) {
			key += " is not set"
		}
		if errors.Is(err, kafka.ErrSignIn) {
			return fmt.Errorf("kafka at %s: %w", strings.Join(cfg.Kafka.Brokers, ","), err)
		}
		return fmt.Errorf("no answer from Kafka at %s (%s): %w", strings.Join(cfg.Kafka.Brokers, ","), key, err)
	}
	return nil
}
