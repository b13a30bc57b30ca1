package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
)

// Schedule requests a delivery. The fields are the contract's headers, with the contract's
// defaults.
type Schedule struct {
	Intake   string   `json:"intake,omitempty"    doc:"intake topic; default the one whose target this is, otherwise the first without a target of its own" minLength:"1"`
	Topic    string   `json:"topic,omitempty"     doc:"target topic; exactly one of topic and url; default the intake's own target" minLength:"1"`
	URL      string   `json:"url,omitempty"       doc:"send an HTTP request to this URL instead of a record to a topic" minLength:"1"`
	Method   string   `json:"method,omitempty"    doc:"with url: POST (default), PUT, PATCH, DELETE or GET" minLength:"1"`
	ID       string   `json:"id,omitempty"        doc:"caller's id; without one a repeated request is another task" minLength:"1"`
	At       TimeText `json:"at,omitempty"        doc:"due time: RFC 3339, Unix ms, or with timezone a local time such as 2027-01-31T08:00; exactly one of at and delay"`
	Timezone string   `json:"timezone,omitempty"  doc:"IANA name of the time zone of at, which then has no offset; a time that daylight saving skips is the end of the gap, one that comes twice is the first" minLength:"1"`
	Delay    string   `json:"delay,omitempty"     doc:"such as 90s, 36h, PT30M or P400D; the answer's due is the due time that it makes, an estimate within a minute of the intake's horizon" minLength:"1"`
	IfExists string   `json:"if_exists,omitempty" doc:"replace, keep, merge or once" minLength:"1"`
	Merge    string   `json:"merge,omitempty"     doc:"last, sum or append" minLength:"1"`
	MaxWait  string   `json:"max_wait,omitempty"  doc:"duration" minLength:"1"`
	Version  *int64   `json:"version,omitempty"`
	DeliverySettings
	deadletter.Content
}

// Record returns the request as a record for the intake topic in. It decodes the record like the
// scanner, to find a mistake now: a *deadletter.FieldError or a *schemas.Rejection.
func (r *Schedule) Record(in Intake) (*kgo.Record, error) {
	key, value, own, err := r.Bytes()
	if err != nil {
		return nil, err
	}
	b := builder{}
	b.target(in, r.Topic, r.URL)
	b.text(schemas.HeaderMethod, r.Method)
	b.text(schemas.HeaderID, r.ID)
	b.text(schemas.HeaderAt, string(r.At))
	b.text(schemas.HeaderTimezone, r.Timezone)
	b.text(schemas.HeaderDelay, r.Delay)
	b.text(schemas.HeaderIfExists, r.IfExists)
	b.text(schemas.HeaderMerge, r.Merge)
	b.text(schemas.HeaderMaxWait, r.MaxWait)
	b.number(schemas.HeaderVersion, r.Version)
	r.headers(&b)
	if err := b.own(own); err != nil {
		return nil, err
	}
	return b.record(in, key, value)
}

type scheduleInput struct {
	Waiting
	Traceparent string `header:"traceparent" doc:"W3C Trace Context of the caller. It becomes a header of the delivery, unless headers has one"`
	Tracestate  string `header:"tracestate"  doc:"goes with traceparent"`
	Body        Schedule
}

func (in *scheduleInput) scope(c access.Caller) error {
	return withinTarget(c, in.Body.Topic, in.Body.URL)
}

// AwaitAnswer makes sure of an answer to the request.
func (r *Schedule) AwaitAnswer() error {
	if r.Events = cmp.Or(r.Events, schemas.EventsAll.String()); r.Events != schemas.EventsAll.String() {
		return wrong("events", r.Events, "sends no answer to wait for: leave it out, or write all")
	}
	return nil
}

func (s *server) schedule(ctx context.Context, in *scheduleInput) (*answerOutput, error) {
	if in.Wait != "" {
		if err := in.Body.AwaitAnswer(); err != nil {
			return nil, err
		}
	}
	return s.askRecord(ctx, in.Body.ID, route{in.Body.Intake, in.Body.Topic, in.Body.URL}, func(to Intake) (*kgo.Record, error) {
		r, err := in.Body.Record(to)
		if err == nil && in.Body.Delay != "" {
			err = setDue(ctx, s.fleet.timeFor, to, r)
		}
		if err != nil {
			return nil, err
		}
		return in.traced(r, to), nil
	}, in.Waiting)
}

// clocksApart is how far the broker's clock may be behind the database's without a rejection of a
// request accepted by the API.
const clocksApart = time.Minute

// setDue writes the delay's due time, by the database's present clock, in place of the delay. The
// delay would count from the broker's timestamp, unknown to the client even from Kafka's
// acknowledgement: the answer could not name the due time of the delivery. A delay near the
// intake's horizon stays, because a due time could lie beyond the horizon by the broker's clock.
// The answer's due time is then an estimate.
func setDue(ctx context.Context, timeFor func(context.Context, *kgo.Record) (time.Time, error), to Intake, r *kgo.Record) error {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	now, err := timeFor(ctx, r)
	if err != nil {
		return fmt.Errorf("this request was not sent, try again: %w", err)
	}
	at := *r
	at.Timestamp = now.Add(time.Millisecond - 1).Truncate(time.Millisecond) // rounded up
	req, err := schemas.Decode(&at, anyLimits)
	if err != nil {
		return err
	}
	at.Headers = slices.Clone(r.Headers)
	for i, h := range at.Headers {
		if h.Key == schemas.HeaderDelay {
			at.Headers[i] = kgo.RecordHeader{Key: schemas.HeaderAt, Value: strconv.AppendInt(nil, req.Due, 10)}
		}
	}
	at.Timestamp = at.Timestamp.Add(-clocksApart)
	if _, err := schemas.Decode(&at, to.Limits); err == nil {
		r.Headers = at.Headers
	}
	return nil
}

// traced returns the record with the context of the HTTP request among its headers, so that the
// consumer continues the caller's trace. A record with a caller stays as it is, and so does one
// without room for two more headers in the intake.
func (in *scheduleInput) traced(r *kgo.Record, to Intake) *kgo.Record {
	add := tracing.Headers(in.Traceparent, in.Tracestate)
	has := slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == tracing.HeaderTraceparent || h.Key == tracing.HeaderTracestate
	})
	if len(add) == 0 || has {
		return r
	}
	out := *r
	out.Headers = append(slices.Clip(r.Headers), add...)
	if _, err := schemas.Decode(&out, to.Limits); err != nil {
		return r
	}
	return &out
}
