// Command quota accounts for the space that the users of a network disk fill. Every uploaded chunk
// requests one update of the quota table, and notyet merges the chunks of one file into one update.
// See README.md.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/consumer"
	"github.com/notyet/notyet/producer"
	"github.com/notyet/notyet/schemas"
)

// options of a run.
type options struct {
	brokers, dsn, intake, reports, topic string
	users, files, chunks                 int
	pace, delay, maxWait                 time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.intake, "intake", schemas.TopicIntake, "notyet's intake `topic`")
	flag.StringVar(&o.reports, "reports", schemas.TopicReports, "notyet's reports `topic`")
	flag.StringVar(&o.topic, "topic", "quota.updates", "`topic` that the updates are delivered to; made if it is not there")
	flag.IntVar(&o.users, "users", 3, "users who upload at once")
	flag.IntVar(&o.files, "files", 2, "files that each of them uploads at once")
	flag.IntVar(&o.chunks, "chunks", 200, "chunks of each file")
	flag.DurationVar(&o.pace, "pace", 10*time.Millisecond, "pause between the chunks of a file")
	flag.DurationVar(&o.delay, "delay", 2*time.Second, "how long a file must be quiet before its chunks are written")
	flag.DurationVar(&o.maxWait, "max-wait", 30*time.Second, "how long after a file's first chunk they are written at the latest")
	flag.Parse()
	if o.users < 1 || o.files < 1 || o.chunks < 1 {
		fmt.Fprintln(os.Stderr, "quota: -users, -files and -chunks must be at least 1")
		os.Exit(2)
	}
	o.dsn = os.Getenv("NOTYET_MYSQL_DSN")
	if o.brokers = os.Getenv("NOTYET_KAFKA_BROKERS"); o.brokers == "" {
		o.brokers = "127.0.0.1:9092" // where notyet dev listens
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quota:", err)
		os.Exit(1)
	}
}

// run uploads, waits until everything is accounted for, and checks the sums.
func run(ctx context.Context, o options, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	table, err := openTable(ctx, o.dsn)
	if err != nil {
		return err
	}
	defer table.close()

	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	name := "quota-" + hex.EncodeToString(random[:])
	client, err := newClient(ctx, o, name)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()

	updates, err := consumer.New(client, consumer.Config{ReportsTopic: o.reports, OnError: func(_ consumer.Message, err error) {
		fmt.Fprintln(os.Stderr, "quota: handling:", err)
	}})
	if err != nil {
		return err
	}
	handled := make(chan error, 1)
	go func() { handled <- updates.Run(ctx, table.handler()) }()

	uploads := upload{options: o, producer: producer.New(client, producer.Config{Intake: o.intake}), run: name}
	want, err := uploads.all(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d chunks uploaded: %d users, %d files each\n", o.users*o.files*o.chunks, o.users, o.files)

	got, err := settle(ctx, o, table, want, handled)
	stop()
	report(out, want, got)
	return errors.Join(err, verify(o, want, got))
}

// newClient consumes this run's updates in a group of its own, and creates their topic.
func newClient(ctx context.Context, o options, group string) (*kgo.Client, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(o.brokers, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(o.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // earlier runs' updates are about other users
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.KeepRetryableFetchErrors(), // the consumer pauses after them, the client would not
	)
	if err != nil {
		return nil, fmt.Errorf("making a Kafka client: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = kadm.NewClient(client).CreateTopic(limited, 4, -1, nil, o.topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		client.CloseAllowingRebalance()
		return nil, fmt.Errorf("making topic %s on %s (does `notyet dev` run there?): %w", o.topic, o.brokers, err)
	}
	return client, nil
}

// settle waits until all chunks are accounted for, and then for as long as a duplicate update would
// take to show.
func settle(ctx context.Context, o options, table *table, want map[string]usage, handled <-chan error) (map[string]usage, error) {
	late := time.After(o.maxWait + o.delay + time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var quiet <-chan time.Time
	for {
		got, err := table.read(ctx, want)
		if err != nil {
			return got, err
		}
		if quiet == nil && total(got).Chunks >= total(want).Chunks {
			quiet = time.After(o.delay + time.Second)
		}
		select {
		case <-quiet:
			return table.read(ctx, want)
		case <-late:
			return got, errors.New("not all chunks are accounted for in time")
		case err := <-handled:
			return got, fmt.Errorf("the consumer has ended: %w", err)
		case <-ctx.Done():
			return got, ctx.Err()
		case <-tick.C:
		}
	}
}

func report(out io.Writer, want, got map[string]usage) {
	for _, user := range slices.Sorted(maps.Keys(want)) {
		w, g := want[user], got[user]
		fmt.Fprintf(out, "%s: %d chunks, %d bytes uploaded; %d bytes on the account, in %d updates\n", user, w.Chunks, w.Bytes, g.Bytes, g.updates)
	}
	fmt.Fprintf(out, "%d updates written for %d chunks\n", total(got).updates, total(want).Chunks)
}

// verify checks what the example shows: exact sums, and far fewer updates than chunks.
func verify(o options, want, got map[string]usage) error {
	for user, w := range want {
		if g := got[user]; g.Bytes != w.Bytes || g.Chunks != w.Chunks {
			return fmt.Errorf("%s uploaded %d bytes in %d chunks, and %d bytes in %d chunks are on the account", user, w.Bytes, w.Chunks, g.Bytes, g.Chunks)
		}
	}
	// A file of one chunk has nothing to merge.
	if updates, chunks := total(got).updates, total(want).Chunks; updates >= chunks && o.chunks > 1 {
		return fmt.Errorf("nothing was merged: %d updates for %d chunks", updates, chunks)
	}
	return nil
}
