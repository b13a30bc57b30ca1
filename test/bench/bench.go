// Package bench puts load on a running installation and measures it. Requests go to its intake
// topic; the bench reads its deliveries from a target topic of its own; a Result comes out.
//
// Time is the broker's. The target topic has message.timestamp.type=LogAppendTime, so lateness is
// the time at which the broker received a delivery, minus its due time. The bench reads the topic
// only after the load, so that reading does not disturb it. During the load it only asks for the
// topic's end offsets.
package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// Config configures the measurements. Kafka and Intake are required.
type Config struct {
	Kafka kafka.Config
	// Intake, Reports and Results are the installation's topics.
	Intake, Reports, Results string
	// Limits are the intake's limits. The bench refuses what the intake would refuse.
	Limits schemas.Limits
	// DSN is the installation's MySQL or MariaDB. Default none: `scheduled` events then show what
	// is stored, and what is settled is unknown.
	DSN string
	// BeforeConnect, when set, says before each connection to it who connects, and how. Default what DSN says.
	BeforeConnect func(context.Context, *mysql.Config) error
	// Topic is the target topic, which the bench creates. Default notyet-bench- and eight random
	// characters.
	Topic string
	// Partitions of the target topic. Default 8.
	Partitions int
	// ValueBytes is the size of each task's value in bytes, at least 16. Default 200.
	ValueBytes int
	// Keep keeps the target topics and stored tasks.
	Keep bool
	// IdleTimeout is how long nothing may arrive before missing tasks count as lost. Default 1m.
	IdleTimeout time.Duration
	// Processes are measured for CPU time and memory. They run on this machine.
	Processes []Process
	// Say receives messages about the progress. Default none.
	Say func(format string, args ...any)
}

// Limits of a run's settings.
const (
	MinValueBytes = headBytes
	maxPartitions = 1000
)

func (c Config) withDefaults() Config {
	if c.Topic == "" {
		var b [4]byte
		_, _ = rand.Read(b[:])
		c.Topic = "notyet-bench-" + hex.EncodeToString(b[:])
	}
	c.Partitions = cmp.Or(c.Partitions, 8)
	c.ValueBytes = cmp.Or(c.ValueBytes, 200)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	if c.Say == nil {
		c.Say = func(string, ...any) {}
	}
	return c
}

func (c Config) check() error {
	switch {
	case c.ValueBytes < MinValueBytes:
		return fmt.Errorf("a value of %d bytes is too small: from %d up, since it carries a number and a due time", c.ValueBytes, MinValueBytes)
	case c.Partitions < 1 || c.Partitions > maxPartitions:
		return fmt.Errorf("%d partitions: 1 to %d", c.Partitions, maxPartitions)
	case c.IdleTimeout < 0:
		return errors.New("idle timeout must be positive")
	}
	return nil
}

// Bench is connected to one installation. It is not for concurrent use.
type Bench struct {
	cfg    Config
	log    *zap.Logger
	admin  *kadm.Client
	intake *kgo.Client // for requests
	db     *database   // nil: none
	made   []string    // topics to delete
}

// intakeLinger collects requests into batches. They are due much later, and one Kafka request for
// each would load the measured machine more than the installation itself.
const intakeLinger = 5 * time.Millisecond

// Open connects, creates the target topic and delivers a few tasks, so that connections, metadata
// and caches are ready.
func Open(ctx context.Context, cfg Config, log *zap.Logger) (*Bench, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bench{cfg: cfg, log: log}
	if err := b.open(ctx); err != nil {
		b.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return b, nil
}

func (b *Bench) open(ctx context.Context) error {
	sample := newRequests(b.cfg.Topic, b.cfg.ValueBytes, Variant{}).record(b.cfg.Intake, 0, time.Now().UnixMilli())
	sample.Timestamp = time.Now()
	if _, err := schemas.Decode(sample, b.cfg.Limits); err != nil {
		return fmt.Errorf("the intake %s would reject the load: %w", b.cfg.Intake, err)
	}
	kcfg := b.cfg.Kafka
	kcfg.Linger = intakeLinger
	var err error
	if b.intake, err = kafka.NewProducer(kcfg, b.log); err != nil {
		return err
	}
	b.admin = kadm.NewClient(b.intake)
	if strings.Contains(b.cfg.DSN, "@") { // the embedded database has no address and allows no second process
		if b.db, err = openDatabase(ctx, b.cfg.DSN, b.cfg.BeforeConnect); err != nil {
			return err
		}
	}
	if err := b.topic(ctx, b.cfg.Topic); err != nil {
		return err
	}
	return b.warmUp(ctx)
}

// topic creates a target topic.
func (b *Bench) topic(ctx context.Context, name string) error {
	made, err := kafka.EnsureTopics(ctx, b.intake, []kafka.TopicSpec{{
		Name: name, Partitions: int32(b.cfg.Partitions), Configs: map[string]string{"message.timestamp.type": "LogAppendTime"},
	}})
	b.made = append(b.made, made...)
	if err == nil && len(made) == 0 {
		err = fmt.Errorf("topic %s exists: name one that does not, it is deleted afterwards", name)
	}
	return err
}

// warmUpTasks are delivered before measuring: some for each partition.
const warmUpTasks = 200

func (b *Bench) warmUp(ctx context.Context) error {
	b.cfg.Say("warming up with %d tasks", warmUpTasks)
	end, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return err
	}
	run := b.newLoad(Variant{})
	now := time.Now().UnixMilli()
	for range warmUpTasks {
		run.sendAs(ctx, warmUpIndex, now)
	}
	if err := run.flush(ctx); err != nil {
		return err
	}
	if err := b.await(ctx, end, warmUpTasks, time.Now()); err != nil {
		return fmt.Errorf("warming up: %w (are a scanner and a dispatcher running, and does `notyet get` find the task?)", err)
	}
	return nil
}

// Close deletes what the bench created, unless it is to be kept, and disconnects.
func (b *Bench) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if len(b.made) > 0 && !b.cfg.Keep {
		answers, err := b.admin.DeleteTopics(ctx, b.made...)
		if err == nil {
			err = answers.Error()
		}
		if err != nil {
			b.log.Warn("the bench's topics could not be deleted", zap.Strings("topics", b.made), zap.Error(err))
		}
	}
	if b.db != nil {
		b.db.close()
	}
	if b.intake != nil {
		b.intake.Close()
	}
}
