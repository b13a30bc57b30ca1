package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// server is one of the servers to ask. ask returns a function that keeps the answers.
type server struct {
	name       string
	fix        string // when it does not answer
	configured func(Config) bool
	where      func(Config) string
	ask        func(context.Context, Config, *zap.Logger) (keep func(*answers), err error)
}

var servers = []server{
	{
		name: "mysql", fix: "see that the server runs and is reached, and that mysql.dsn (address, user, password) and mysql.tls are right",
		configured: func(c Config) bool { return c.Store != nil },
		where:      databaseAt,
		ask:        askDatabase,
	},
	{
		name: "kafka", fix: "see that a broker of kafka.brokers runs and is reached, and that kafka.tls and kafka.sasl are right",
		configured: func(c Config) bool { return c.Kafka != nil },
		where:      kafkaAt,
		ask:        askKafka,
	},
	{
		name: "redis", fix: "see that the server runs and is reached, and that redis.user and redis.password may do what docs/security.md lists; meanwhile tasks are delivered, up to a second late",
		configured: func(c Config) bool { return c.Index != nil },
		where:      redisAt,
		ask:        askRedis,
	},
	{
		name: "zookeeper", fix: "see that a server of zookeeper.servers runs and is reached, and that zookeeper.auth and zookeeper.tls are those of all dispatchers",
		configured: func(c Config) bool { return c.Election != nil },
		where:      ensembleAt,
		ask:        askEnsemble,
	},
	{
		name: "sendlog", fix: "give the dispatcher's user a directory of its own on a local disk (sendlog.dir)",
		configured: func(c Config) bool { return c.Disk },
		where:      sendLogAt,
		ask:        askDisk,
	},
	{
		name: "issuer", fix: "see that the OpenID provider runs and is reached from here, and that http.jwt.issuer and http.jwt.ca are right; meanwhile nobody can sign in there, and JWTs count whose keys were read before",
		configured: func(c Config) bool { return c.Issuer != nil },
		where:      issuerAt,
		ask:        askIssuer,
	},
}

// Where each server is, as findings name the place.
func databaseAt(c Config) string { return store.Address(c.Store.DSN) }
func kafkaAt(c Config) string    { return strings.Join(c.Kafka.Brokers, ",") }
func redisAt(c Config) string    { return strings.Join(c.Index.Addrs, ",") }
func ensembleAt(c Config) string { return strings.Join(c.Election.Servers, ",") + c.Election.Root }
func sendLogAt(c Config) string  { return c.Settings.SendLog.Dir }
func issuerAt(c Config) string   { return c.Issuer.Issuer }

type database struct {
	store.Examined
	migrated error // nil: the tables are those of this program
	locks    error // nil: row locks hold
	services []admin.Service
	// The installation's id, and the id of its Kafka cluster.
	installation, kafka string
	elected, indexed    string // how dispatchers elect, and the kind of the index, as they are noted; "": not yet
}

func askDatabase(ctx context.Context, c Config, log *zap.Logger) (func(*answers), error) {
	cfg := *c.Store
	cfg.MaxConns = 2
	st, err := store.Open(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = st.Close() }()
	var d database
	if d.Examined, err = st.Examine(ctx); err != nil {
		return nil, err
	}
	if d.migrated = st.CheckMigrated(ctx); d.migrated == nil {
		d.locks = st.CheckRowLocks(ctx)
		if d.services, err = look.New(st).Services(ctx); err != nil {
			return nil, err
		}
		if d.installation, err = st.Installation(ctx); err != nil {
			return nil, err
		}
		if d.kafka, err = admin.New(st).KafkaCluster(ctx); err != nil {
			return nil, err
		}
		if d.elected, err = admin.New(st).ElectedBy(ctx); err != nil {
			return nil, err
		}
		if d.indexed, err = admin.New(st).IndexedBy(ctx); err != nil {
			return nil, err
		}
	}
	return func(a *answers) { a.database = &d }, nil
}

type cluster struct {
	id       string
	versions []string
	topics   map[string]kafka.Topic
	mayJoin  bool // the scanners' group
	groupErr error
	recent   map[string]placed // newest requests, by intake
}

// placed counts requests, and those of them elsewhere than Kafka's default partitioner puts them.
type placed struct{ all, elsewhere int }

func askKafka(ctx context.Context, c Config, log *zap.Logger) (func(*answers), error) {
	client, err := kafka.New(*c.Kafka, log)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := kafka.Ping(ctx, client); err != nil {
		return nil, err
	}
	var k cluster
	if k.id, err = kafka.ClusterID(ctx, client); err != nil {
		return nil, err
	}
	if k.versions, err = kafka.Versions(ctx, client); err != nil {
		return nil, err
	}
	if k.topics, err = kafka.ExamineTopics(ctx, client, append(c.Settings.OwnTopics(), c.Targets...)...); err != nil {
		return nil, err
	}
	k.recent = lookAtRequests(ctx, c, client, log)
	k.mayJoin, k.groupErr = kafka.MayJoin(ctx, client, c.Settings.Scanner.Group)
	return func(a *answers) { a.cluster = &k }, nil
}

const (
	recentRequests = 10 // of each partition
	recentPatience = 3 * time.Second
)

// lookAtRequests reads the newest requests of each intake, as far as it comes.
func lookAtRequests(ctx context.Context, c Config, client *kgo.Client, log *zap.Logger) map[string]placed {
	ctx, cancel := context.WithTimeout(ctx, recentPatience)
	defer cancel()
	var topics []string
	for _, t := range c.Settings.Intake.Topics {
		topics = append(topics, t.Topic)
	}
	from, _ := kafka.Starts(ctx, client, topics...)
	to, _ := kafka.Ends(ctx, client, topics...)
	for topic, ends := range to {
		for part, end := range ends {
			if first, known := from[topic][part]; known {
				from.Set(topic, part, max(first, end-recentRequests))
			}
		}
	}
	out := map[string]placed{}
	_ = kafka.Scan(ctx, *c.Kafka, from, to, log, func(r *kgo.Record) bool {
		p := out[r.Topic]
		p.all++
		if kafka.Elsewhere(r, len(to[r.Topic])) {
			p.elsewhere++
		}
		out[r.Topic] = p
		return true
	})
	return out
}

func askRedis(ctx context.Context, c Config, log *zap.Logger) (func(*answers), error) {
	x, err := index.New(*c.Index, log)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	seen, err := x.Examine(ctx)
	return func(a *answers) { a.redis = &seen }, err
}

func askEnsemble(ctx context.Context, c Config, log *zap.Logger) (func(*answers), error) {
	seen, err := election.Examine(ctx, *c.Election, log)
	return func(a *answers) { a.ensemble = &seen }, err
}

func askDisk(_ context.Context, c Config, _ *zap.Logger) (func(*answers), error) {
	seen, err := sendlog.Examine(c.Settings.SendLog.Dir)
	return func(a *answers) { a.disk = &seen }, err
}

func askIssuer(ctx context.Context, c Config, _ *zap.Logger) (func(*answers), error) {
	seen, err := access.Examine(ctx, *c.Issuer)
	return func(a *answers) { a.issuer = &seen }, err
}
