// Package consumer handles deliveries: records of the business topics go in, reports come out. A handler's nil becomes
// "ok", an error "retry" (with RetryAfter: after a pause of its choice), Fail "fail", so that notyet knows whether to
// deliver a task of "notyet-ack report" again.
//
// It works over the caller's own kgo.Client. Delivery is at least once: a handler must bear to see a delivery twice, or
// have a Guard that remembers.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Handler handles one message. ctx ends DrainTimeout after Run's context has; a handler that fails then is not reported,
// its message comes again. A panic is an error like any other.
//
// The error of a message that notyet delivered is reported; only a task of "notyet-ack report" is delivered again for it.
// The error of any other message cannot be reported, nobody would send it again: it ends Run with the message
// uncommitted.
type Handler func(ctx context.Context, m Message) error

// Message is a record, with what notyet added to it taken apart.
type Message struct {
	Record *kgo.Record

	// Headers are the business's own.
	Headers []kgo.RecordHeader

	// Delivery is nil if the record was not sent by notyet.
	Delivery *schemas.Delivery
}

// Config of a Consumer; the zero value works.
type Config struct {
	// Reporter sends the reports. Default: the consuming client. A report that Kafka has not answered at the end of
	// DrainTimeout is given up, and with it whatever else the Reporter has buffered for the same partition.
	Reporter *kgo.Client

	// ReportsTopic is where reports go. Default schemas.TopicReports.
	ReportsTopic string

	// Concurrency is how many messages are handled at once, those of one partition and key one after the other. Default
	// 16.
	Concurrency int

	// MaxPoll is how many messages are taken from the client at once. The group cannot rebalance until they are handled,
	// so MaxPoll / Concurrency × a handler's time must stay well below the client's RebalanceTimeout (default 60s).
	// Default 256.
	MaxPoll int

	// DrainTimeout is how long handlers and reports may go on when Run's context has ended, and after them the last
	// commit. Default 10s.
	DrainTimeout time.Duration

	// Guard remembers handled deliveries. Default nil: none.
	Guard Guard

	// OnError hears of every error and panic of a handler or guard, and (with a zero Message) of fetching and of commits
	// that a rebalance has overtaken, after which Run goes on. It is called from several goroutines. Default nil.
	OnError func(Message, error)
}

// Guard makes a handler idempotent by remembering delivery keys, at best in the same database transaction as the
// handler's own effect. Both methods are called from several goroutines and may be called again with the same key.
type Guard interface {
	// Seen tells whether the delivery was handled: then the handler is passed over and "ok" reported again. An error
	// is treated as the handler's.
	Seen(ctx context.Context, deliveryKey string) (bool, error)

	// Done is called when the handler has succeeded. An error goes to OnError; the delivery is done all the same.
	Done(ctx context.Context, deliveryKey string) error
}

// Consumer handles what its client polls.
type Consumer struct {
	client *kgo.Client
	Config
}

// New makes a Consumer over the caller's client, which stays the caller's to close after Run. The client must be in a
// group, with DisableAutoCommit (or messages would be committed that are not handled) and BlockRebalanceOnPoll (or they
// would be committed over another member's head).
func New(client *kgo.Client, c Config) (*Consumer, error) {
	for name, value := range map[string]any{
		"ConsumerGroup":        client.OptValue(kgo.ConsumerGroup) != "",
		"DisableAutoCommit":    client.OptValue(kgo.DisableAutoCommit),
		"BlockRebalanceOnPoll": client.OptValue(kgo.BlockRebalanceOnPoll),
	} {
		if value != true {
			return nil, fmt.Errorf("making consumer: the client lacks kgo.%s", name)
		}
	}
	if c.Concurrency < 0 || c.MaxPoll < 0 || c.DrainTimeout < 0 {
		return nil, errors.New("making consumer: negative Concurrency, MaxPoll or DrainTimeout")
	}
	if c.Reporter == nil {
		c.Reporter = client
	}
	if c.ReportsTopic == "" {
		c.ReportsTopic = schemas.TopicReports
	}
	if c.Concurrency == 0 {
		c.Concurrency = 16
	}
	if c.MaxPoll == 0 {
		c.MaxPoll = 256
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 10 * time.Second
	}
	if c.OnError == nil {
		c.OnError = func(Message, error) {}
	}
	return &Consumer{client: client, Config: c}, nil
}

// Run handles messages until ctx ends (nil), the client is closed, or something happens that it must not pass over: a
// report or a commit that Kafka refuses, or an error about a message that notyet did not deliver.
//
// Order of effects, per poll: handle, report and wait for Kafka to have the reports, then commit the messages before the
// first unhandled one of each partition.
//
// Close the client after Run: what it has polled and not committed comes again to the next owner of the partition, and
// not to this client.
func (c *Consumer) Run(ctx context.Context, handle Handler) error {
	work, stop := outlive(ctx, c.DrainTimeout)
	defer stop()
	for ctx.Err() == nil {
		fetches := c.client.PollRecords(ctx, c.MaxPoll)
		if fetches.IsClientClosed() {
			return fmt.Errorf("polling: %w", kgo.ErrClientClosed)
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil {
				c.OnError(Message{}, fmt.Errorf("fetching %s/%d: %w", topic, partition, err))
			}
		})
		err := c.batch(ctx, work, handle, fetches.Records())
		c.client.AllowRebalance()
		if err != nil {
			return err
		}
	}
	return nil
}

// batch handles, reports and commits what one poll gave.
func (c *Consumer) batch(ctx, work context.Context, handle Handler, records []*kgo.Record) error {
	if len(records) == 0 {
		return nil
	}
	b := newBatch(c, handle, records)
	failure := b.run(ctx, work)
	last, stop := outlive(ctx, c.DrainTimeout) // a bound of its own: the handlers may have used up theirs
	defer stop()
	err := c.client.CommitRecords(last, b.prefix()...)
	switch {
	case err == nil:
	case overtaken(err):
		c.OnError(Message{}, fmt.Errorf("committing: %w", err))
	default:
		failure = errors.Join(failure, fmt.Errorf("committing: %w", err))
	}
	return failure
}

// outlive is a context that ends d after ctx has.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return longer, func() { forget(); cancel() }
}

// overtaken tells whether the group has gone on without this member; what it handled will come again, here or elsewhere.
func overtaken(err error) bool {
	for _, e := range []error{kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.StaleMemberEpoch} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
