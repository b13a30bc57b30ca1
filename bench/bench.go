// Package bench loads a running installation and measures it: requests go to its intake topic, what it delivers is read
// back from a target topic of the bench's own, and a Result comes out.
//
// The clock is the broker's. The target topic has message.timestamp.type=LogAppendTime, so lateness is the instant at
// which the broker had a delivery, less its due time; the bench itself reads the topic only when the load is over and does
// not disturb. While the load runs it asks for nothing but the topic's end offsets.
package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// Config says what to measure. Kafka and Intake are required.
type Config struct {
	Kafka kafka.Config
	// Intake, Reports and Results are the installation's topics.
	Intake, Reports, Results string
	// Limits is what the intake accepts; what it would refuse is refused here.
	Limits schemas.Limits
	// DSN is the installation's MySQL or MariaDB. Default none: what is stored is then known from `scheduled` events, and
	// what is settled is not known.
	DSN string
	// Topic is the target topic, made for the run. Default notyet-bench- and eight random characters.
	Topic string
	// Partitions of the target topic. Default 8.
	Partitions int
	// ValueBytes is the size of each task's value, from 16 up. Default 200.
	ValueBytes int
	// Keep leaves the target topics and stored tasks where they are.
	Keep bool
	// IdleTimeout is how long nothing may arrive before what is missing counts as lost. Default 1m.
	IdleTimeout time.Duration
	// Processes are those whose CPU time and memory go into the results. They run on this machine.
	Processes []Process
	// Say is told how far the run is. Default: nobody is.
	Say func(format string, args ...any)
}

// Bounds of a run's settings.
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
	if c.Partitions == 0 {
		c.Partitions = 8
	}
	if c.ValueBytes == 0 {
		c.ValueBytes = 200
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = time.Minute
	}
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
		return errors.New("patience must be positive")
	}
	return nil
}

// Bench is connected to one installation. It is not for concurrent use.
type Bench struct {
	cfg    Config
	log    *zap.Logger
	admin  *kadm.Client
	intake *kgo.Client // requests go through here
	db     *database   // nil: none
	made   []string    // topics to delete
}

// intakeLinger lets requests gather into batches: they are due much later, and a request for each would cost the machine
// that is measured more than what it measures.
const intakeLinger = 5 * time.Millisecond

// Open connects, makes the target topic and sees a few tasks through, so that connections, metadata and caches are warm.
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
	if strings.Contains(b.cfg.DSN, "@") { // the embedded database has no address, and no second process in it
		if b.db, err = openDatabase(ctx, b.cfg.DSN); err != nil {
			return err
		}
	}
	if err := b.topic(ctx, b.cfg.Topic); err != nil {
		return err
	}
	return b.warmUp(ctx)
}

// topic makes a target topic.
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

// warmUpTasks go through before anything is measured: some for each partition.
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

// Close deletes what was made, unless it is to be kept, and disconnects.
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
