package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// RetrierConfig of a Retrier. Only DeadTopic must be set.
type RetrierConfig struct {
	// DeadTopic gets the records that are given up. Required.
	DeadTopic string

	// Topic is where retried records are delivered. Every group on it sees them, also those that have handled the record
	// already: where there are several, give each a topic of its own and have it consume both. Default: the record's own.
	Topic string

	// Intake is the intake topic. What the installation's limits refuse (allowed topics, size, horizon) is refused after
	// Later has returned, and is then among notyet's dead letters. Default schemas.TopicIntake.
	Intake string

	// MaxAttempts is how often a record is handled in all, the first time included. Default 16.
	MaxAttempts int

	// Backoff is the pause before the next attempt; RetryAfter wins over it. Default exponential:1s:10m, jittered over
	// the upper half of each pause.
	Backoff schemas.Backoff

	// Prefix begins the names of the headers by which records carry their history: see Retrier. Not "notyet-". Default
	// "retry-".
	Prefix string

	// OnError hears of the error of each attempt that Wrap has delivered again or given up. It is called from several
	// goroutines. Default nil.
	OnError func(r *kgo.Record, attempt int, err error)
}

// Retrier has records delivered again later, whoever sent them: what retry topics with their consumers and timers are
// built for. The record is republished as a request to notyet, with its key, value and headers, and comes back when the
// pause is over. Behind its headers it then carries
//
//	retry-attempt  which handling this is: 2 for the first retry
//	retry-origin   topic/partition/offset of the record that was handled first
//	retry-error    why it was not the last, at most 4 KiB
//
// Records of one key are not held back meanwhile: a retried one is overtaken. It comes back in the partition that
// Kafka's default partitioner (murmur2) gives its key.
type Retrier struct {
	client *kgo.Client
	RetrierConfig
}

// NewRetrier makes a Retrier over the caller's client, which stays the caller's to close.
func NewRetrier(client *kgo.Client, c RetrierConfig) (*Retrier, error) {
	if c.Intake == "" {
		c.Intake = schemas.TopicIntake
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = schemas.DefaultSettings().MaxAttempts
	}
	if c.Backoff == (schemas.Backoff{}) {
		c.Backoff = schemas.DefaultSettings().Backoff
	}
	if c.Prefix == "" {
		c.Prefix = "retry-"
	}
	if c.OnError == nil {
		c.OnError = func(*kgo.Record, int, error) {}
	}
	switch {
	case !schemas.ValidTopic(c.DeadTopic):
		return nil, fmt.Errorf("making retrier: DeadTopic %q is not a topic name", c.DeadTopic)
	case c.Topic != "" && !schemas.ValidTopic(c.Topic):
		return nil, fmt.Errorf("making retrier: Topic %q is not a topic name", c.Topic)
	case c.MaxAttempts < 1:
		return nil, errors.New("making retrier: negative MaxAttempts")
	case c.Backoff.First <= 0 || c.Backoff.Exponential && c.Backoff.Max < c.Backoff.First:
		return nil, fmt.Errorf("making retrier: no pause is possible with Backoff %s", c.Backoff)
	case reserved(c.Prefix):
		return nil, fmt.Errorf("making retrier: Prefix %q is notyet's own", c.Prefix)
	}
	return &Retrier{client, c}, nil
}

// Wrap makes a handler that has Later called for errors and panics of another, for messages that notyet did not deliver
// and those that it delivers for a Retrier. Others, which are somebody's tasks, keep their own retries. Where Later
// fails, Run ends with the message uncommitted.
func (r *Retrier) Wrap(handle Handler) Handler {
	return func(ctx context.Context, m Message) error {
		err := contained(func() error { return handle(ctx, m) })
		var stop *stopError
		mine := m.Delivery == nil || r.history(m.Record).attempt > 1
		if err == nil || !mine || ctx.Err() != nil || errors.As(err, &stop) {
			return err
		}
		r.OnError(m.Record, r.Attempt(m.Record), err)
		if e := r.Later(ctx, m.Record, err); e != nil {
			return Stop(e)
		}
		return nil
	}
}

// Attempt tells which handling of a record this is, from 1.
func (r *Retrier) Attempt(rec *kgo.Record) int { return r.history(rec).attempt }

// Later has the record delivered again after a pause, or puts it into DeadTopic if this was the last attempt or cause is
// a Fail. Only when it has returned nil may the record be committed: then Kafka has acknowledged its copy. It may be
// called again for the same record, which replaces the request while it is pending.
func (r *Retrier) Later(ctx context.Context, rec *kgo.Record, cause error) error {
	verdict := outcome(orDefault(cause, "retry"))
	past := r.history(rec)
	again := &kgo.Record{Topic: r.DeadTopic, Key: rec.Key, Value: rec.Value}
	if verdict.Status == schemas.StatusFail || past.attempt >= r.MaxAttempts {
		again.Headers = r.headers(rec, past, verdict.Error)
	} else {
		pause := verdict.RetryAfter
		if pause == schemas.NoRetryAfter {
			pause = r.pause(past.attempt)
		}
		past.attempt++
		var err error
		if again, err = r.request(rec, pause, r.headers(rec, past, verdict.Error)); err != nil {
			return fmt.Errorf("retrying %s: %w", place(rec), err)
		}
	}
	if err := r.send(ctx, again); err != nil {
		return fmt.Errorf("retrying %s through %s: %w", place(rec), again.Topic, err)
	}
	return nil
}

// request is named by the record's place and time, so that a record that is handled twice is retried once.
func (r *Retrier) request(rec *kgo.Record, pause time.Duration, headers []kgo.RecordHeader) (*kgo.Record, error) {
	topic := r.Topic
	if topic == "" {
		topic = rec.Topic
	}
	id := fmt.Sprintf("retry/%s@%d", origin(rec), rec.Timestamp.UnixMilli())
	if len(id) > schemas.MaxIDLen {
		sum := sha256.Sum256([]byte(id))
		id = "retry/" + hex.EncodeToString(sum[:])
	}
	request := schemas.NewRequest(schemas.OpSchedule, topic, id)
	request.Settings.Events = schemas.EventsNone
	request.Delay = max(pause, time.Millisecond)
	request.Key, request.Value, request.Headers = rec.Key, rec.Value, headers
	return request.Record(r.Intake)
}

// send waits for Kafka's answer or the end of ctx. The client does not get ctx: a record that is given up takes others of
// its partition with it.
func (r *Retrier) send(ctx context.Context, rec *kgo.Record) error {
	answer := make(chan error, 1)
	go r.client.Produce(context.WithoutCancel(ctx), rec, func(_ *kgo.Record, err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("outcome unknown: %w", ctx.Err())
	}
}

// pause is the one after the n-th attempt. Its upper half is jittered, so that what failed together comes back apart.
func (r *Retrier) pause(attempt int) time.Duration {
	if !r.Backoff.Exponential {
		return r.Backoff.First
	}
	d := r.Backoff.First
	for i := 1; i < attempt && d < r.Backoff.Max; i++ {
		if d > r.Backoff.Max/2 { // also where doubling would overflow
			d = r.Backoff.Max
		} else {
			d *= 2
		}
	}
	if half := int64(d / 2); half > 0 {
		d -= time.Duration(rand.Int64N(half))
	}
	return d
}

// history is what a record carries from its earlier attempts.
type history struct {
	attempt int
	origin  string
}

// history of a record without any, or with what is no number, is that of a first attempt.
func (r *Retrier) history(rec *kgo.Record) history {
	h := history{attempt: 1, origin: origin(rec)}
	for _, header := range rec.Headers {
		switch header.Key {
		case r.Prefix + "attempt":
			if n, err := strconv.Atoi(string(header.Value)); err == nil && n > 1 {
				h.attempt = n
			}
		case r.Prefix + "origin":
			h.origin = string(header.Value)
		}
	}
	return h
}

// headers are the business's own in their order, without notyet's of the last delivery, and the history behind them.
func (r *Retrier) headers(rec *kgo.Record, h history, cause string) []kgo.RecordHeader {
	out := make([]kgo.RecordHeader, 0, len(rec.Headers)+3)
	for _, header := range rec.Headers {
		switch header.Key {
		case r.Prefix + "attempt", r.Prefix + "origin", r.Prefix + "error":
		default:
			if !reserved(header.Key) {
				out = append(out, header)
			}
		}
	}
	if len(cause) > schemas.MaxReportError {
		cause = cause[:schemas.MaxReportError]
	}
	return append(out,
		kgo.RecordHeader{Key: r.Prefix + "attempt", Value: strconv.AppendInt(nil, int64(h.attempt), 10)},
		kgo.RecordHeader{Key: r.Prefix + "origin", Value: []byte(h.origin)},
		kgo.RecordHeader{Key: r.Prefix + "error", Value: []byte(strings.ToValidUTF8(cause, ""))},
	)
}

// reserved tells whether a header is notyet's, which a request with it would be refused for, in any case.
func reserved(header string) bool {
	return len(header) >= len(schemas.Prefix) && strings.EqualFold(header[:len(schemas.Prefix)], schemas.Prefix)
}

func origin(rec *kgo.Record) string { return schemas.DefaultID(rec.Topic, rec.Partition, rec.Offset) }
