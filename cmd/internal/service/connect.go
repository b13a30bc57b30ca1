package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// ElectionConfig is the common configuration of a member and a reader of the members.
func ElectionConfig(cfg *config.Config, log *zap.Logger) (election.Config, error) {
	if cfg.Election.Kind == config.KindMySQL {
		return election.Config{SessionTimeout: cfg.Election.SessionTimeout}, nil
	}
	t, err := command.TLSConfig("zookeeper.tls", cfg.ZooKeeper.TLS, log)
	z := cfg.ZooKeeper
	return election.Config{Servers: z.Servers, Root: z.Root, SessionTimeout: z.SessionTimeout, Auth: z.Auth, TLS: t}, err
}

// OpenDatabase connects to a database, maybe without tables yet.
func OpenDatabase(ctx context.Context, cfg *config.Config, log *zap.Logger) (*store.Store, error) {
	scfg, err := command.StoreConfig(cfg, log)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, scfg, log)
}

// OpenStore connects to a migrated database.
func OpenStore(ctx context.Context, cfg *config.Config, log *zap.Logger) (*store.Store, error) {
	st, err := OpenDatabase(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	if err := withRelease(st.CheckMigrated(ctx)); err != nil {
		_ = st.Close()
		return nil, err
	}
	return st, nil
}

// withRelease says which release is too old.
func withRelease(err error) error {
	if errors.Is(err, store.ErrRequired) {
		return fmt.Errorf("release %s: %w", command.Version(), err)
	}
	return err
}

// Index is the index, of either kind.
type Index interface {
	scanner.Index
	dispatcher.Index
	deadletter.Index
	Ping(ctx context.Context) error
	Close()
}

// OpenIndex prepares the index of the database's installation.
func OpenIndex(ctx context.Context, cfg *config.Config, st *store.Store, log *zap.Logger) (Index, error) {
	id, err := st.Installation(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.Index.Kind == config.KindMySQL {
		kcfg, err := command.KafkaConfig(cfg, log)
		if err != nil {
			return nil, err
		}
		return index.NewDatabase(st, kcfg, cfg.Wakes.Topic, id, log), nil
	}
	icfg, err := command.IndexConfig(cfg, log)
	if err != nil {
		return nil, err
	}
	icfg.Installation = id
	return index.New(icfg, log)
}

// Intakes returns the intake topics for the API.
func Intakes(cfg *config.Config) []api.Intake {
	var out []api.Intake
	for _, name := range cfg.IntakeNames() {
		limits, _ := cfg.Limits(name)
		out = append(out, api.Intake{Topic: name, Limits: limits})
	}
	return out
}

// Publisher connects a producer for single records.
func Publisher(ctx context.Context, cfg *config.Config, log *zap.Logger) (*kgo.Client, error) {
	return command.ConnectKafka(ctx, cfg, log, kafka.NewSoloProducer, kgo.RecordPartitioner(api.Partitioner()))
}

// Local returns the API's backend on the database, in the name of who. Without an index,
// dispatchers find replayed tasks at their next look. client reaches Kafka, for cancels of many and
// for how far the intake is stored.
func Local(cfg *config.Config, st *store.Store, ix Index, who string, client func(context.Context) (*kgo.Client, error), log *zap.Logger) *api.Local {
	local := api.NewLocal(st, deadletter.NewLocal(st, ix, who, log))
	local.Cancels.Topic, local.Cancels.Kafka = cfg.Cancels.Topic, client
	local.Lag = func(ctx context.Context) ([]api.Lag, error) {
		kafka, err := client(ctx)
		if err != nil {
			return nil, err
		}
		found, err := (&scanner.Operator{Kafka: kafka, Store: st, Topics: cfg.ReadTopics(), Quick: true}).Partitions(ctx)
		out := make([]api.Lag, 0, len(found))
		for _, p := range found {
			out = append(out, api.Lag{Topic: p.Topic, Partition: p.Partition, State: p.State, Detail: p.Detail, Next: p.Next, End: p.End, Lag: p.Lag})
		}
		return out, err
	}
	return local
}

// CheckKafka fails with admin.ErrOtherKafka if the database belongs to another Kafka cluster.
func CheckKafka(ctx context.Context, st *store.Store, client *kgo.Client, moved bool) error {
	ctx, cancel := context.WithTimeout(ctx, command.DialTimeout)
	defer cancel()
	cluster, err := kafka.ClusterID(ctx, client)
	if err != nil || cluster == "" {
		return err
	}
	err = admin.New(st).OnKafka(ctx, cluster, moved)
	if errors.Is(err, admin.ErrOtherKafka) {
		return fmt.Errorf("%w: correct kafka.brokers or mysql.dsn; if the installation has moved to this Kafka, run notyet migrate --kafka-moved", err)
	}
	return err
}

func callbackRules(c config.Callback) callback.URLRules {
	return callback.URLRules{Enabled: c.Enabled, AllowHTTP: c.AllowHTTP, AllowedHosts: c.AllowedHosts, AllowedNetworks: c.Networks(), AllowedPorts: c.Ports()}
}

func callbackConfig(c config.Callback) (callback.Config, error) {
	out := callback.Config{
		URLRules: callbackRules(c), Secrets: c.Secrets, MaxInFlight: c.MaxInFlight, MaxInFlightTotal: c.MaxInFlightTotal,
		MaxTimeout: c.MaxTimeout, UserAgent: "notyet/" + command.Version(),
	}
	if c.CA == "" {
		return out, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	out.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return out, command.AddCA(roots, "callback.ca", c.CA)
}
