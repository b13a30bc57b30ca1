package tracing

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Attributes without a name in the semantic conventions.
const (
	keyTarget     = attribute.Key("notyet.topic")       // target topic, or the origin of a callback
	keyID         = attribute.Key("notyet.id")          // of the task
	keyOp         = attribute.Key("notyet.op")          // schedule, cancel, …, or report
	keyDue        = attribute.Key("notyet.due")         // Unix ms
	keyAttempt    = attribute.Key("notyet.attempt")     // from 1
	keyReplay     = attribute.Key("notyet.replay")      // n-th replay
	keyDelivery   = attribute.Key("notyet.delivery")    // idempotency key
	keyTracestate = attribute.Key("notyet.tracestate")  // of the link to the caller's span
	keyLateness   = attribute.Key("notyet.lateness_ms") // between the instant of the attempt and its answer
)

// Stored is a committed record of the intake, or of the reports.
type Stored struct {
	Topic     string
	Partition int32
	Offset    int64

	Group     string // consumer group of the scanner
	Tombstone bool   // the value is null

	Read, Stored time.Time

	Op, Target, ID string // as far as they are known
	Due            int64  // Unix ms; 0: none
	Rejected       bool
}

// Stored makes a child of the caller's span.
func (c *Caller) Stored(s Stored) {
	if c == nil {
		return
	}
	attributes := append(kafkaPlace(s.Topic, s.Partition, s.Offset), semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("store"))
	attributes = addTombstone(addText(attributes, semconv.MessagingConsumerGroupNameKey, s.Group), s.Tombstone)
	attributes = addText(attributes, keyOp, s.Op)
	attributes = addText(attributes, keyTarget, s.Target)
	attributes = addText(attributes, keyID, s.ID)
	if s.Due != 0 {
		attributes = append(attributes, keyDue.Int64(s.Due))
	}
	failure := ""
	if s.Rejected {
		failure = "rejected"
	}
	parent := trace.ContextWithRemoteSpanContext(context.Background(), c.span)
	_, span := c.start(parent, "store "+s.Topic, s.Read, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...))
	end(span, s.Stored, failure)
}

// Delivery is one attempt to deliver a task.
type Delivery struct {
	Target, ID, Key string
	Due             int64 // Unix ms
	Lateness        int64 // ms; counts if it was delivered
	Attempt, Replay int
	Tombstone       bool // the value is null

	// Fetched is when the task was read, shortly before it was due; Sent when it was handed to the
	// client; Answered when the outcome was known.
	Fetched, Sent, Answered time.Time

	// Failure is the kind of a failure, one of few words; "" if the task was delivered.
	Failure string
}

// Sent makes the trace of a delivery to a topic; partition and offset count unless it failed.
func (c *Caller) Sent(d Delivery, partition int32, offset int64) {
	if c == nil {
		return
	}
	attributes := []attribute.KeyValue{semconv.MessagingSystemKafka, semconv.MessagingDestinationName(d.Target)}
	if d.Failure == "" {
		attributes = kafkaPlace(d.Target, partition, offset)
	}
	attributes = append(attributes, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"))
	c.delivered(d, "send "+d.Target, trace.SpanKindProducer, addTombstone(attributes, d.Tombstone))
}

// Called makes the trace of an HTTP callback. Of the URL only the origin, the target, is kept:
// paths and queries of webhooks hold secrets. status is 0 without an answer.
func (c *Caller) Called(d Delivery, method string, status int) {
	if c == nil {
		return
	}
	attributes := append(origin(d.Target), semconv.HTTPRequestMethodKey.String(method))
	if status != 0 {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(status))
	}
	if d.Attempt > 1 {
		attributes = append(attributes, semconv.HTTPRequestResendCount(d.Attempt-1))
	}
	c.delivered(d, method, trace.SpanKindClient, attributes)
}

// delivered makes three spans: the delivery, how long the task waited in memory, and the request.
func (c *Caller) delivered(d Delivery, request string, kind trace.SpanKind, attributes []attribute.KeyValue) {
	about := []attribute.KeyValue{keyTarget.String(d.Target), keyID.String(d.ID), keyDue.Int64(d.Due), keyAttempt.Int(d.Attempt), keyDelivery.String(d.Key)}
	if d.Replay > 0 {
		about = append(about, keyReplay.Int(d.Replay))
	}
	if d.Failure == "" {
		about = append(about, keyLateness.Int64(d.Lateness))
	}
	within, root := c.start(context.Background(), "deliver "+d.Target, d.Fetched, trace.WithNewRoot(), trace.WithLinks(c.link()), trace.WithAttributes(about...))
	_, wait := c.start(within, "wait", d.Fetched)
	end(wait, d.Sent, "")
	_, send := c.start(within, request, d.Sent, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	end(send, d.Answered, d.Failure)
	end(root, d.Answered, d.Failure)
}

// link leads to the caller's span. OTLP's exporter omits its tracestate, so an attribute has it.
func (c *Caller) link() trace.Link {
	return trace.Link{SpanContext: c.span, Attributes: addText(nil, keyTracestate, c.span.TraceState().String())}
}

func (c *Caller) start(ctx context.Context, name string, at time.Time, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return c.tracer.spans.Start(ctx, name, append(options, trace.WithTimestamp(at))...)
}

func end(span trace.Span, at time.Time, failure string) {
	if failure != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(failure))
		span.SetStatus(codes.Error, failure)
	}
	span.End(trace.WithTimestamp(at))
}

func kafkaPlace(topic string, partition int32, offset int64) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKafka, semconv.MessagingDestinationName(topic), semconv.MessagingDestinationPartitionID(strconv.Itoa(int(partition))),
		semconv.MessagingKafkaOffset(int(offset)),
	}
}

func addTombstone(to []attribute.KeyValue, is bool) []attribute.KeyValue {
	if !is {
		return to
	}
	return append(to, semconv.MessagingKafkaMessageTombstone(true))
}

func origin(target string) []attribute.KeyValue {
	u, err := url.Parse(target)
	if err != nil {
		return nil
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	return []attribute.KeyValue{semconv.URLScheme(u.Scheme), semconv.ServerAddress(u.Hostname()), semconv.ServerPort(port)}
}

func addText(to []attribute.KeyValue, key attribute.Key, value string) []attribute.KeyValue {
	if value == "" {
		return to
	}
	return append(to, key.String(value))
}

// Failure returns the kind of a failed send, for Delivery: Kafka's own name if any. nil: "".
func Failure(err error) string {
	var answered *kerr.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &answered):
		return answered.Message
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return "timeout"
	}
	return semconv.ErrorTypeOther.Value.AsString()
}
