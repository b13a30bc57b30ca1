// Package embedded is the servers that notyet needs, inside the process: an
// address to connect to comes out. For development and tests, not for
// production: there is one broker, no replication, and one machine.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
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
	// Addr is the host:port to listen on, and the one that clients are told, so
	// the host must be one they can reach: not 0.0.0.0. Port 0 takes any free
	// one. Default 127.0.0.1:9092.
	Addr string
	// DataDir keeps topics, records and committed offsets, also through kill -9.
	// One process at a time. Default "": memory, gone with the process.
	DataDir string
	// SyncWrites waits for the disk at every produce (about 2 ms), so that what
	// was acknowledged also survives a power failure. Only with DataDir.
	// Default false.
	SyncWrites bool
	// Topics exist from the start. One that exists already is left as it is.
	Topics []Topic
	// Partitions is the number that a topic gets when nobody says. Default 4.
	Partitions int
	// CreateOnLookup creates a topic when a client merely asks about it by name.
	// Otherwise, as with a real broker, it is created when the client also
	// allows it: Java clients, kafka-python and every librdkafka producer do by
	// themselves, librdkafka consumers (kcat -C) and franz-go do not. With it, a
	// mistyped target topic comes into being too. Default false.
	CreateOnLookup bool
}

// Topic to create.
type Topic struct {
	Name string
	// Partitions is their number; 0 takes Config.Partitions.
	Partitions int32
	// Configs are settings such as retention.bytes. Without retention.ms or
	// retention.bytes a topic keeps everything: no intake record is ever
	// dropped before it was read.
	Configs map[string]string
}

func (c Config) withDefaults() (Config, error) {
	if c.Addr == "" {
		c.Addr = "127.0.0.1:9092"
	}
	if c.Partitions == 0 {
		c.Partitions = 4
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return c, fmt.Errorf("kafka address %q: %w", c.Addr, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return c, fmt.Errorf("kafka address %q: name a host that clients can reach, such as 127.0.0.1; they are told this address", c.Addr)
	}
	if c.SyncWrites && c.DataDir == "" {
		return c, errors.New("kafka sync writes without a data directory")
	}
	return c, nil
}

// ErrDataDirLocked says that another process uses the data directory.
var ErrDataDirLocked = errors.New("the kafka data directory is in use by another process")

// Kafka is a running broker. Unlike a real one it knows no LogAppendTime: records
// keep the time that their producer gave them, whatever message.timestamp.type
// says.
type Kafka struct {
	cluster *kfake.Cluster
	lock    *flock.Flock // nil in memory
	addr    string
	close   sync.Once
}

// StartKafka starts a broker; it serves when StartKafka returns. Errors:
// ErrDataDirLocked; an address in use; a data directory that cannot be read.
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

func options(cfg Config, log *zap.Logger) []kfake.Opt {
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("notyet-dev"),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) { return listen(network, cfg.Addr) }),
		kfake.DefaultNumPartitions(cfg.Partitions),
		kfake.WithLogger(kafkaLog{log}),
		kfake.BrokerConfigs(map[string]string{
			// Nothing is dropped unless its topic says so: not records, and not
			// the committed offsets of a group that was away for a week.
			"log.retention.ms":          "-1",
			"offsets.retention.minutes": "5256000", // 10 years
			// A topic that does have a limit is held to it within a minute. The
			// default is an hour, in which memory can run full.
			"log.cleaner.backoff.ms": "60000",
			// Retention frees memory by whole segments, which are 100 MiB by
			// default.
			"log.segment.bytes": "4194304",
		}),
	}
	if cfg.DataDir != "" {
		opts = append(opts, kfake.DataDir(cfg.DataDir))
	}
	if cfg.SyncWrites {
		opts = append(opts, kfake.SyncWrites())
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

// lockDir guards against a second process. kfake has no guard of its own, and
// two brokers on one directory destroy it.
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

// Addr is the host:port to connect to.
func (k *Kafka) Addr() string { return k.addr }

// Close stops the broker and saves what is to be kept. Closing again does
// nothing.
func (k *Kafka) Close() {
	k.close.Do(func() {
		if k.cluster != nil {
			k.cluster.Close()
		}
		if k.lock != nil {
			_ = k.lock.Unlock() // the process's end does it at the latest
		}
	})
}

// kafkaLog carries the broker's messages to zap. Its Info is one per request.
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
