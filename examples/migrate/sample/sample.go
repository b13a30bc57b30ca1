// Package sample is what the migration samples share: where Kafka is, topics, and a client. What
// they show is in their own mains.
package sample

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Env is where a sample runs.
type Env struct {
	Brokers         []string
	Intake, Reports string
	prefix          string // of this run's topics and group
}

// patience limits a run. Each takes a few seconds.
const patience = time.Minute

// Main runs a sample. It exits with 1 if the sample fails.
func Main(name string, run func(context.Context, Env) error) {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	e := Env{
		Brokers: strings.Split(env("NOTYET_KAFKA_BROKERS", "127.0.0.1:9092"), ","), // where notyet dev listens
		Intake:  env("NOTYET_INTAKE", schemas.TopicIntake), Reports: env("NOTYET_REPORTS", schemas.TopicReports),
		prefix: env("SAMPLE_PREFIX", "sample-") + hex.EncodeToString(random[:]) + ".",
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := run(ctx, e)
	if err == nil && ctx.Err() != nil {
		err = errors.New("not all has come in time")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

func env(name, or string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return or
}

// Topic is this run's topic of the name.
func (e Env) Topic(name string) string { return e.prefix + name }

// Client makes the topics, and a client that consumes them in a group.
func (e Env) Client(ctx context.Context, topics ...string) (*kgo.Client, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(e.Brokers...),
		kgo.ConsumerGroup(e.prefix+"group"),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.KeepRetryableFetchErrors(), // the consumer pauses after them, the client would not
	)
	if err != nil {
		return nil, fmt.Errorf("making a Kafka client: %w", err)
	}
	admin := kadm.NewClient(client)
	for _, topic := range topics {
		if _, err := admin.CreateTopic(ctx, 1, -1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			client.CloseAllowingRebalance()
			return nil, fmt.Errorf("making topic %s on %s (does `notyet dev` run there?): %w", topic, e.Brokers, err)
		}
	}
	return client, nil
}

// Each handles what the client consumes, record by record, and commits it, until handle returns
// false.
func Each(ctx context.Context, client *kgo.Client, handle func(*kgo.Record) (more bool, err error)) error {
	for {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			more, err := handle(r)
			if err != nil {
				return err
			}
			if err := client.CommitRecords(ctx, r); err != nil {
				return fmt.Errorf("committing: %w", err)
			}
			if !more {
				return nil
			}
		}
		client.AllowRebalance()
		if fetches.Err() != nil { // the client has the error of a partition again at once
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// Header returns a header's value, or "".
func Header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
