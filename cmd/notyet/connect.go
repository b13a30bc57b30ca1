package main

import (
	"context"
	"crypto/tls"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/console"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/ops"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/store"
)

// electionConfig is what a member and a reader of the members have in common.
func electionConfig(cfg *config.Config, log *zap.Logger) (election.Config, error) {
	if cfg.Election.Kind == config.KindMySQL {
		return election.Config{SessionTimeout: cfg.Election.SessionTimeout}, nil
	}
	t, err := command.TLSConfig("zookeeper.tls", cfg.ZooKeeper.TLS, log)
	z := cfg.ZooKeeper
	return election.Config{Servers: z.Servers, Root: z.Root, SessionTimeout: z.SessionTimeout, Auth: z.Auth, TLS: t}, err
}

// jwtConfig says whose JWTs are accepted.
func jwtConfig(cfg *config.Config, log *zap.Logger) (access.JWT, error) {
	j := cfg.HTTP.JWT
	t, err := command.TLSConfig("http.jwt", config.TLS{Enabled: true, CA: j.CA}, log)
	return access.JWT{Issuer: j.Issuer, Audience: j.Audience, GroupsClaim: j.GroupsClaim, NameClaim: j.NameClaim, TLS: t}, err
}

// opsConfig configures the HTTP server of a service. common is asked once the service has its store.
func opsConfig(cfg *config.Config, common func() console.Common, log *zap.Logger) (ops.Config, error) {
	h := cfg.HTTP
	out := ops.Config{Addr: h.Addr, OpsAddr: cfg.Ops.Addr, MaxConns: h.MaxConns, Pprof: h.Pprof}
	if h.TLS.Enabled {
		if h.TLS.Cert == "" {
			return out, command.Usage("http.tls.enabled needs a certificate in a service: set http.tls.cert and http.tls.key to PEM files")
		}
		if _, err := tls.LoadX509KeyPair(h.TLS.Cert, h.TLS.Key); err != nil {
			return out, command.Usage("http.tls.cert and http.tls.key: %v: name the PEM files of one pair", err)
		}
		out.Certificate, out.Key = h.TLS.Cert, h.TLS.Key
	}
	acfg := access.Config{Tokens: h.Tokens, Hosts: h.Hosts}
	var err error
	if acfg.JWT, err = jwtConfig(cfg, log); err != nil {
		return out, err
	}
	acfg.SignIn = access.SignIn{ClientID: h.SignIn.ClientID, Scopes: h.SignIn.Scopes, PublicURL: h.PublicURL}
	if acfg.SignIn.Secret, err = command.ClientSecret(cfg, log); err != nil {
		return out, err
	}
	if out.Guard, err = access.New(acfg, log); err != nil {
		return out, command.UsageError{Err: err}
	}
	out.Front = console.NewSessions(console.Config{Guard: out.Guard, Common: common, PublicURL: h.PublicURL, Version: command.Version(), Log: log}).Front
	return out, nil
}

// openStore connects to a migrated database.
func openStore(ctx context.Context, cfg *config.Config, log *zap.Logger) (*store.Store, error) {
	scfg, err := command.StoreConfig(cfg, log)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, scfg, log)
	if err != nil {
		return nil, err
	}
	if err := st.CheckMigrated(ctx); err != nil {
		_ = st.Close()
		return nil, err
	}
	return st, nil
}

// nearFuture is the index, of either kind.
type nearFuture interface {
	scanner.Index
	dispatcher.Index
	deadletter.Index
	Ping(ctx context.Context) error
	Close()
}

// openIndex prepares the index of the database's installation.
func openIndex(ctx context.Context, cfg *config.Config, st *store.Store, log *zap.Logger) (nearFuture, error) {
	if cfg.Index.Kind == config.KindMySQL {
		kcfg, err := command.KafkaConfig(cfg, log)
		if err != nil {
			return nil, err
		}
		id, err := st.Installation(ctx)
		if err != nil {
			return nil, err
		}
		return index.NewDatabase(st, kcfg, cfg.Wakes.Topic, id, log), nil
	}
	icfg, err := command.IndexConfig(cfg, log)
	if err == nil {
		icfg.Installation, err = st.Installation(ctx)
	}
	if err != nil {
		return nil, err
	}
	return index.New(icfg, log)
}

// intakes returns the intake topics for the API.
func intakes(cfg *config.Config) []api.Intake {
	var out []api.Intake
	for _, name := range cfg.IntakeNames() {
		limits, _ := cfg.Limits(name)
		out = append(out, api.Intake{Topic: name, Limits: limits})
	}
	return out
}

// publishing returns the configuration of a command that sends a request, and the intake topic with
// the given name, or the one for the target. A request that names no target needs an intake that has one.
func (a *app) publishing(s command.Settings, more command.Servers, name, topic, url string) (*config.Config, api.Intake, error) {
	cfg, err := a.Client(s, more)
	if err != nil {
		return nil, api.Intake{}, err
	}
	if _, err := command.Intake(cfg, name); err != nil {
		return nil, api.Intake{}, err
	}
	in, _ := api.Pick(intakes(cfg), name, topic)
	if topic == "" && url == "" && in.Limits.Target == "" {
		return nil, in, command.Usage("missing flags: write --topic (-t) or --url, or --intake with an intake topic that has a target of its own")
	}
	return cfg, in, nil
}

// publisher connects a producer for single records and checks that Kafka answers. The client alone
// would retry forever.
func publisher(ctx context.Context, cfg *config.Config, log *zap.Logger) (*kgo.Client, error) {
	kcfg, err := command.KafkaConfig(cfg, log)
	if err != nil {
		return nil, err
	}
	client, err := kafka.NewSoloProducer(kcfg, log, kgo.RecordPartitioner(api.Partitioner()))
	if err != nil {
		return nil, err
	}
	if err := command.Reach(ctx, cfg, client); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}
