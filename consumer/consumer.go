// Package consumer handles deliveries: records of the business topics go in, reports come out. A
// handler's error becomes the report, by which notyet decides whether to deliver a task of
// "notyet-ack report" again: nil becomes "ok", an error "retry" (RetryAfter sets the pause), Fail
// "fail". A Retrier delivers any other record again.
//
// It works over the caller's own kgo.Client. Delivery is at least once: a handler must tolerate a
// second copy of a delivery, or use a Guard, the memory of handled deliveries.
package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
)

// Handler handles one message. Its ctx ends DrainTimeout after Run's context has ended. A failure
// after that is not reported; the message comes again. A panic counts as an error.
//
// Messages of one key in one partition are handled one after the other, all others concurrently. A
// message that is slow or fails repeatedly holds up its own key alone.
//
// The error of a message from notyet is reported. Only a task of "notyet-ack report" is then
// delivered again. The error of any other message cannot be reported, because nobody would send it
// again: Run ends with the message uncommitted. Use a Retrier for further deliveries.
type Handler func(ctx context.Context, m Message) error

// Message is a record, with the headers added by notyet taken apart.
type Message struct {
	Record *kgo.Record

	// Headers are the business's own, without notyet's.
	Headers []kgo.RecordHeader

	// Delivery is nil if notyet did not send the record.
	Delivery *schemas.Delivery
}

// Config of a Consumer. The zero value works.
type Config struct {
	// Reporter sends the reports. Default: the consuming client. A report that Kafka has not
	// acknowledged at the end of DrainTimeout is given up, and so is everything else in the
	// Reporter's buffer for the same partition.
	Reporter *kgo.Client

	// ReportsTopic receives the reports. Default schemas.TopicReports.
	ReportsTopic string

	// Concurrency is how many messages are handled at once. Messages of one partition and key are
	// handled one after the other. Default 16.
	Concurrency int

	// MaxPoll limits the messages taken from the client and not yet handled. Default 256.
	MaxPoll int

	// MaxHold is how long the consumer takes more messages while earlier ones are being handled.
	// The group cannot rebalance until the last of them is handled. MaxHold + MaxPoll / Concurrency
	// × a handler's time must stay below the client's RebalanceTimeout (default 60s); otherwise the
	// group removes this member. After MaxHold all keys wait for the slowest handler: raise
	// RebalanceTimeout for handlers that take minutes. Default: a third of RebalanceTimeout.
	MaxHold time.Duration

	// DrainTimeout is how long handlers and reports may continue after Run's context has ended.
	// Then the handlers' context ends too. Handlers that still run a second later are left behind
	// (ErrAbandoned). The last commit gets the same time again. Default 10s.
	DrainTimeout time.Duration

	// Guard remembers handled deliveries: a TTLGuard or a SQLGuard. SQLGuard.InTx needs none here.
	// Default nil: nothing is remembered.
	Guard Guard

	// OnError receives every error and panic of a handler or guard. With a zero Message it receives
	// errors of fetching, and of commits after a rebalance; Run continues after these. Several
	// goroutines call it. Default nil.
	OnError func(Message, error)
}

// Consumer handles the records of a client.
type Consumer struct {
	client *kgo.Client
	Config
}

// New makes a Consumer over the caller's client. The caller closes the client after Run. The client
// must be in a group. It needs DisableAutoCommit, against commits of unhandled messages, and
// BlockRebalanceOnPoll, against commits over the offset of another member.
//
// Give it KeepRetryableFetchErrors, too. Otherwise the client asks for a partition with a broker's
// error, beside others that are well, thousands of times a second.
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
	c.ReportsTopic = cmp.Or(c.ReportsTopic, schemas.TopicReports)
	c.Concurrency = cmp.Or(c.Concurrency, 16)
	c.MaxPoll = cmp.Or(c.MaxPoll, 256)
	if c.MaxHold == 0 {
		c.MaxHold = client.OptValue(kgo.RebalanceTimeout).(time.Duration) / 3
	}
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	if c.OnError == nil {
		c.OnError = func(Message, error) {}
	}
	return &Consumer{client: client, Config: c}, nil
}

// Run handles messages until ctx ends; then it returns nil. It returns an error when the client is
// closed, Kafka refuses a report or a commit, a handler fails on a message from elsewhere, a
// handler returns Stop, or handlers are left behind (ErrAbandoned).
//
// Each message is handled, then reported; Run waits until Kafka has the report, then commits. It
// never commits past the first unhandled message of a partition.
//
// Close the client after Run. Its polled and uncommitted messages go to the next owner of the
// partition, and never to this client again.
func (c *Consumer) Run(ctx context.Context, handle Handler) error {
	work, stop := withGrace(ctx, c.DrainTimeout)
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

const failedPollPause = 100 * time.Millisecond

// poll takes up to n messages. It returns none when ctx ends.
func (c *Consumer) poll(ctx context.Context, n int) ([]*kgo.Record, error) {
	fetches := c.client.PollRecords(ctx, n)
	if fetches.IsClientClosed() {
		return nil, fmt.Errorf("polling: %w", kgo.ErrClientClosed)
	}
	failed := false
	fetches.EachError(func(topic string, partition int32, err error) {
		if ctx.Err() == nil {
			failed = true
			c.OnError(Message{}, fmt.Errorf("fetching %s/%d: %w", topic, partition, err))
		}
	})
	records := fetches.Records()
	if failed && len(records) == 0 { // the client has the error of a partition again at once
		loop.Rest(ctx, failedPollPause)
	}
	return records, nil
}

// withGrace returns a context that ends d after ctx has ended.
func withGrace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return longer, func() { forget(); cancel() }
}

// rebalancedAway reports whether the group continued without this member. Messages handled since
// the last commit come again, to this member or another.
func rebalancedAway(err error) bool {
	away := []error{kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.StaleMemberEpoch}
	return slices.ContainsFunc(away, func(e error) bool { return errors.Is(err, e) })
}
