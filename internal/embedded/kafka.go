// Package embedded runs notyet's servers inside the process. A directory or none goes in; an
// address to connect to comes out. The package is for development and tests, not for production:
// one broker, one machine, no replication.
package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/gofrs/flock"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// Config of an embedded broker. The zero Config keeps everything in
// memory and serves on 127.0.0.1:9092.
type Config struct {
	// Addr is the host:port to listen on and to announce to clients. Clients must be able to reach
	// the host: no 0.0.0.0. Port 0 means any free port. Default 127.0.0.1:9092.
	Addr string
	// DataDir stores topics, records and committed offsets. All survive kill -9. One process at a
	// time may use the directory. Default "": memory only.
	DataDir string
	// Topics are created at the start. Existing ones are not changed.
	Topics []Topic
	// Partitions is a topic's default number of partitions. Default 4.
	Partitions int
	// CreateOnLookup creates a topic whenever a client looks it up by name, even a mistyped one.
	// Otherwise the client must also allow the creation, as with a real broker: Java clients,
	// kafka-python and all librdkafka producers do by default; librdkafka consumers (kcat -C) and
	// franz-go do not. Default false.
	CreateOnLookup bool
}

// Topic is a topic to create.
type Topic struct {
	Name string
	// Partitions of the topic; 0 takes Config.Partitions.
	Partitions int32
	// Configs are settings such as retention.bytes. Without retention.ms or retention.bytes a topic
	// keeps everything, so no intake record is dropped unread.
	Configs map[string]string
}

func (c Config) withDefaults() (Config, error) {
	c.Addr = cmp.Or(c.Addr, "127.0.0.1:9092")
	c.Partitions = cmp.Or(c.Partitions, 4)
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return c, fmt.Errorf("kafka address %q: %w", c.Addr, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return c, fmt.Errorf("kafka address %q: name a host that clients can reach, such as 127.0.0.1; they are told this address", c.Addr)
	}
	return c, nil
}

// ErrDataDirLocked means: another process uses the data directory.
var ErrDataDirLocked = errors.New("the kafka data directory is in use by another process")

// Kafka is a running broker. Unlike a real one, Kafka ignores message.timestamp.type and does not
// support LogAppendTime: records keep the producer's timestamp.
type Kafka struct {
	cluster *kfake.Cluster
	lock    *flock.Flock // nil in memory
	addr    string
	close   sync.Once
}

// StartKafka starts a broker, ready when StartKafka returns. Errors: ErrDataDirLocked; an address
// in use; an unreadable data directory.
func StartKafka(cfg Config, log *zap.Logger) (*Kafka, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("starting embedded kafka: %w", err)
	}
	k := &Kafka{}
	if err := k.start(cfg, log); err != nil {
		k.Close()
		return nil, fmt.Errorf("starting embedded kafka: %w", err)
	}
	return k, nil
}

func (k *Kafka) start(cfg Config, log *zap.Logger) (err error) {
	if cfg.DataDir != "" {
		if k.lock, err = lockDir(cfg.DataDir); err != nil {
			return err
		}
	}
	if k.cluster, err = kfake.NewCluster(options(cfg, log)...); err != nil {
		return err
	}
	k.addr = k.cluster.ListenAddrs()[0]
	k.cluster.ControlKey(int16(kmsg.Metadata), k.createAsked(cfg, log))
	for _, t := range cfg.Topics {
		if err := k.cluster.CreateTopic(t.Name, t.Partitions, t.Configs); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("creating topic %q: %w", t.Name, err)
		}
	}
	return nil
}

// maxBatch is the largest batch of records, as sent. Kafka's own default has no room for an
// uncompressed value of 1 MiB, and a request may have 8 MiB.
const maxBatch = 16 << 20

func options(cfg Config, log *zap.Logger) []kfake.Opt {
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("notyet-dev"),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) { return listen(network, cfg.Addr) }),
		kfake.DefaultNumPartitions(cfg.Partitions),
		kfake.WithLogger(kafkaLog{log}),
		kfake.BrokerConfigs(map[string]string{
			// Keep everything unless a topic says otherwise: records, and the committed offsets of
			// a group that was away for a week.
			"log.retention.ms":          "-1",
			"offsets.retention.minutes": "5256000", // 10 years
			// Enforce a topic's limits within a minute. In the default hour memory can run full.
			"log.cleaner.backoff.ms": "60000",
			// Retention frees memory by whole segments, by default of 100 MiB.
			"log.segment.bytes": "4194304",
			"message.max.bytes": strconv.Itoa(maxBatch),
		}),
	}
	if cfg.DataDir != "" {
		opts = append(opts, kfake.DataDir(cfg.DataDir))
	}
	return opts
}

func listen(network, addr string) (net.Listener, error) {
	l, err := net.Listen(network, addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use: stop what listens there, or set another kafka address: %w", addr, err)
	}
	if err != nil {
		return nil, err
	}
	return &guard{Listener: l}, nil
}

// lockDir protects against a second process. kfake does not, and two brokers destroy the directory.
func lockDir(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	if !held {
		return nil, fmt.Errorf("%w: %s", ErrDataDirLocked, dir)
	}
	return lock, nil
}

// Addr returns the host:port to connect to.
func (k *Kafka) Addr() string { return k.addr }

// Close stops the broker and saves the state. Closing again does nothing.
func (k *Kafka) Close() {
	k.close.Do(func() {
		if k.cluster != nil {
			k.cluster.Close()
		}
		if k.lock != nil {
			_ = k.lock.Unlock() // the end of the process releases it at the latest
		}
	})
}

// kafkaLog passes the broker's messages to zap. kfake's Info level has one message per request.
type kafkaLog struct{ to *zap.Logger }

func (l kafkaLog) Logf(level kfake.LogLevel, format string, args ...any) {
	message := func() zap.Field { return zap.String("message", strings.TrimSpace(fmt.Sprintf(format, args...))) }
	switch level {
	case kfake.LogLevelError, kfake.LogLevelWarn:
		l.to.Warn("embedded kafka", message())
	default:
		if l.to.Core().Enabled(zap.DebugLevel) {
			l.to.Debug("embedded kafka", message())
		}
	}
}

// control handles a request before the broker does; handled=false passes the request on.
type control = func(kmsg.Request) (resp kmsg.Response, err error, handled bool)

// createAsked creates the topics of a metadata request before the broker answers.
//
// kfake alone saves its list of topics only when a topic is created explicitly. After kill -9 a
// topic created by kfake itself is gone with all records. A topic created here is in the file
// before any client hears of it.
func (k *Kafka) createAsked(cfg Config, log *zap.Logger) control {
	return func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req, ok := kreq.(*kmsg.MetadataRequest)
		if !ok || !req.AllowAutoTopicCreation && !cfg.CreateOnLookup {
			return nil, nil, false
		}
		for _, t := range req.Topics {
			// Looked up by id, or internal: never created.
			if t.Topic == nil || *t.Topic == "" || strings.HasPrefix(*t.Topic, "__") {
				continue
			}
			switch err := k.cluster.CreateTopic(*t.Topic, -1, nil); {
			case err == nil:
				log.Info("topic created on first use", zap.String("topic", *t.Topic), zap.Int("partitions", cfg.Partitions))
			case !errors.Is(err, kerr.TopicAlreadyExists):
				log.Warn("creating a topic on first use failed", zap.String("topic", *t.Topic), zap.Error(err))
			}
		}
		return nil, nil, false
	}
}
