package consumer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// RetrierConfig of a Retrier. Only DeadTopic must be set.
type RetrierConfig struct {
	// DeadTopic receives the records that are given up. Required.
	DeadTopic string

	// Topic is where retried records are delivered. All groups on it see them, also those that have
	// already handled the record: with several groups, give each its own topic, to consume beside
	// the original one. Default: the record's own topic.
	Topic string

	// Intake is the intake topic. notyet applies its limits (allowed topics, size, horizon) after
	// Later has returned; a refused request becomes a dead letter. Default schemas.TopicIntake.
	Intake string

	// MaxAttempts is how often a record is handled in total, including the first time. Default 16.
	MaxAttempts int

	// Backoff sets the pause before the next attempt; RetryAfter and Snooze take precedence.
	// Default exponential:1s:10m. Each pause is jittered over its upper half.
	Backoff schemas.Backoff

	// Prefix begins the names of the headers with a record's history: see Retrier. It must not
	// begin with "notyet-". Default "retry-".
	Prefix string

	// OnError receives the error of each attempt that Wrap has scheduled again or given up. Several
	// goroutines call it. Default nil.
	OnError func(r *kgo.Record, attempt int, err error)
}

// Retrier delivers records again later, no matter who sent them. It replaces retry topics with
// their consumers and timers. A record is published as a request to notyet, with its key, value and
// headers, and comes back when the pause is over. It then carries, after its own headers:
//
//	retry-attempt  which handling this is: 2 for the first retry
//	retry-origin   topic/partition/offset of the record that was handled first
//	retry-error    the error of the last attempt, at most 4 KiB
//
// Records of one key are not held back meanwhile: later ones overtake a retried one. It comes back
// in the partition that Kafka's default partitioner (murmur2) gives its key.
type Retrier struct {
	client *kgo.Client
	RetrierConfig
}

// NewRetrier makes a Retrier over the caller's client, which the caller closes.
func NewRetrier(client *kgo.Client, c RetrierConfig) (*Retrier, error) {
	c.Intake = cmp.Or(c.Intake, schemas.TopicIntake)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, schemas.DefaultSettings().MaxAttempts)
	if c.Backoff == (schemas.Backoff{}) {
		c.Backoff = schemas.DefaultSettings().Backoff
	}
	c.Prefix = cmp.Or(c.Prefix, "retry-")
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

// Wrap returns a handler that calls handle, and calls Later for its errors and panics: of messages
// from elsewhere, and of those that notyet delivers for a Retrier. Other tasks keep their own
// retries. If Later fails, Run ends with the message uncommitted.
func (r *Retrier) Wrap(handle Handler) Handler {
	return func(ctx context.Context, m Message) error {
		err := recoverPanic(func() error { return handle(ctx, m) })
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

// Attempt returns which handling of the record this is, counted from 1.
func (r *Retrier) Attempt(rec *kgo.Record) int { return r.history(rec).attempt }

// Later schedules the record to be delivered again after a pause. It puts the record into DeadTopic
// instead if this was the last attempt or cause is a Fail. Commit the record only after Later has
// returned nil: then Kafka has acknowledged the copy. Another call replaces the pending request.
func (r *Retrier) Later(ctx context.Context, rec *kgo.Record, cause error) error {
	verdict := outcome(orDefault(cause, "retry"))
	past := r.history(rec)
	again := &kgo.Record{Topic: r.DeadTopic, Key: rec.Key, Value: rec.Value}
	if verdict.Status == schemas.StatusFail || past.attempt >= r.MaxAttempts {
		again.Headers = r.headers(rec, past, verdict.Error)
	} else {
		pause := verdict.RetryAfter
		if pause == schemas.NoRetryAfter {
			pause = r.Backoff.Pause(past.attempt)
		}
		past.attempt++
		var err error
		if again, err = r.request(rec, pause, r.headers(rec, past, verdict.Error)); err != nil {
			return fmt.Errorf("retrying %s: %w", position(rec), err)
		}
	}
	if err := r.send(ctx, again); err != nil {
		return fmt.Errorf("retrying %s through %s: %w", position(rec), again.Topic, err)
	}
	return nil
}

// request derives the id from position and time: a record handled twice is retried once.
func (r *Retrier) request(rec *kgo.Record, pause time.Duration, headers []kgo.RecordHeader) (*kgo.Record, error) {
	topic := cmp.Or(r.Topic, rec.Topic)
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

// send waits for Kafka's acknowledgement or the end of ctx. The client does not get ctx, because a
// cancelled record takes others of its partition with it.
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

type history struct {
	attempt int
	origin  string
}

// history reads a record's headers. Missing or malformed ones mean a first attempt.
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

// headers returns the business's own headers in order, then the history, without notyet's headers.
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

// reserved reports whether a header name is notyet's, in upper or lower case. notyet refuses
// requests with such a header.
func reserved(header string) bool {
	return len(header) >= len(schemas.Prefix) && strings.EqualFold(header[:len(schemas.Prefix)], schemas.Prefix)
}

func origin(rec *kgo.Record) string { return schemas.DefaultID(rec.Topic, rec.Partition, rec.Offset) }
