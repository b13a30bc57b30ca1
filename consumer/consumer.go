// Package consumer handles deliveries: records of the business topics go in, reports come out. A handler's nil becomes
// "ok", an error "retry" (with RetryAfter: after a pause of its choice), Fail "fail", so that notyet knows whether to
// deliver a task of "notyet-ack report" again. A Retrier has any other record delivered again.
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
// Messages of one key in one partition are handled one after the other, others side by side: a message that is slow or
// fails again and again holds up its own key alone.
//
// The error of a message that notyet delivered is reported; only a task of "notyet-ack report" is delivered again for it.
// The error of any other message cannot be reported, nobody would send it again: it ends Run with the message
// uncommitted. A Retrier has such messages delivered again instead.
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

	// MaxPoll is how many messages are taken from the client and not yet handled. Default 256.
	MaxPoll int

	// MaxHold is how long more messages are taken while earlier ones are being handled. The group cannot rebalance
	// meanwhile, nor until the last of them is handled: MaxHold + MaxPoll / Concurrency × a handler's time must stay below
	// the client's RebalanceTimeout (default 60s), or the group goes on without this member. When MaxHold is over, the
	// messages of all keys wait for the slowest handler: raise RebalanceTimeout for handlers that take minutes. Default a
	// third of RebalanceTimeout.
	MaxHold time.Duration

	// DrainTimeout is how long handlers and reports may go on when Run's context has ended; then the handlers' context
	// ends, too, and a second later those that go on are left behind (ErrAbandoned). The last commit has as long again.
	// Default 10s.
	DrainTimeout time.Duration

	// Guard remembers handled deliveries: a TTLGuard, a SQLGuard (whose InTx needs none here). Default nil: none.
	Guard Guard

	// OnError hears of every error and panic of a handler or guard, and (with a zero Message) of fetching and of commits
	// that a rebalance has overtaken, after which Run goes on. It is called from several goroutines. Default nil.
	OnError func(Message, error)
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
	if c.Concurrency < 0 || c.MaxPoll < 0 || c.MaxHold < 0 || c.DrainTimeout < 0 {
		return nil, errors.New("making consumer: negative Concurrency, MaxPoll, MaxHold or DrainTimeout")
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
	if c.MaxHold == 0 {
		c.MaxHold = client.OptValue(kgo.RebalanceTimeout).(time.Duration) / 3
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
// report or a commit that Kafka refuses, an error about a message that notyet did not deliver, a Stop, or ErrAbandoned.
//
// Order of effects, per message: handle, report and wait for Kafka to have the report, then commit, and never past the
// first unhandled message of a partition.
//
// Close the client after Run: what it has polled and not committed comes again to the next owner of the partition, and
// not to this client.
func (c *Consumer) Run(ctx context.Context, handle Handler) error {
	work, stop := outlive(ctx, c.DrainTimeout)
	defer stop()
	for ctx.Err() == nil {
		err := c.window(ctx, work, handle)
		c.client.AllowRebalance()
		if err != nil {
			return err
		}
	}
	return nil
}

// poll takes up to n messages; none when ctx ends.
func (c *Consumer) poll(ctx context.Context, n int) ([]*kgo.Record, error) {
	fetches := c.client.PollRecords(ctx, n)
	if fetches.IsClientClosed() {
		return nil, fmt.Errorf("polling: %w", kgo.ErrClientClosed)
	}
	fetches.EachError(func(topic string, partition int32, err error) {
		if ctx.Err() == nil {
			c.OnError(Message{}, fmt.Errorf("fetching %s/%d: %w", topic, partition, err))
		}
	})
	return fetches.Records(), nil
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
