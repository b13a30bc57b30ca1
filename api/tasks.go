package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
)

// publishTimeout is how long a caller waits for Kafka. It is shorter than the server's own time
// limit.
const publishTimeout = 10 * time.Second

type body[T any] struct{ Body T }

// TaskFilter selects tasks to list.
type TaskFilter struct {
	Topic    string `query:"topic"     doc:"only this target topic"`
	IDPrefix string `query:"id-prefix" doc:"only ids that begin so"`
	Tag      string `query:"tag"       doc:"only tasks with this tag; the order is then that of due times, and those that come again, wait for a report or are held are last"`
	State    string `query:"state"     doc:"only tasks in this state; one of ended tasks implies ended" enum:"pending,claimed,waiting_report,waiting_retry,delivered,succeeded,cancelled,dead"`
	From     int64  `query:"from"      doc:"only what is due, or has ended, at or after, Unix ms"`
	To       int64  `query:"to"        doc:"only what is due, or has ended, before, Unix ms"`
	Limit    int    `query:"limit"     default:"100"                                                    maximum:"1000" minimum:"1"`
	Cursor   string `query:"cursor"    doc:"that of the page before"                                    maxLength:"1000"`
	Ended    bool   `query:"ended"     doc:"those that ended last instead of those to come"`
	Content  bool   `query:"content"   doc:"with key, value and headers; pages are then shorter"`
	// Allowed reports whether a task of the topic may be listed. nil: all.
	Allowed func(topic string) bool
}

func (f *TaskFilter) scope(c access.Caller) error {
	if f.Content && !c.May(access.Operate) {
		return huma.Error403Forbidden("content: " + access.Beyond(c, access.Operate))
	}
	return withinListed(c, f.Topic)
}

func (s *server) listTasks(ctx ctxType, f *TaskFilter) (*body[Tasks], error) {
	var err error
	if f.Cursor, err = s.cursors.open(ctx, "tasks", f.Cursor); err != nil {
		return nil, problem(err)
	}
	f.Allowed = allowed(ctx)
	tasks, err := s.local.Tasks(ctx, *f)
	if err == nil {
		tasks.Cursor, err = s.cursors.seal(ctx, "tasks", tasks.Cursor)
	}
	return &body[Tasks]{tasks}, problem(err)
}

type pathInput struct {
	Topic string `path:"topic"`
	ID    string `path:"id"`
}

func (in *pathInput) scope(c access.Caller) error { return withinTopics(c, in.Topic) }

func (s *server) getTask(ctx ctxType, in *pathInput) (*body[Task], error) {
	task, err := s.local.Task(ctx, in.Topic, in.ID)
	return &body[Task]{task}, problem(err)
}

type queryInput struct {
	Topic string `query:"topic" required:"true"`
	ID    string `query:"id"    required:"true"`
}

func (in *queryInput) scope(c access.Caller) error { return withinTopics(c, in.Topic) }

func (s *server) findTask(ctx ctxType, in *queryInput) (*body[Task], error) {
	task, err := s.local.Task(ctx, in.Topic, in.ID)
	return &body[Task]{task}, problem(err)
}

type scheduleInput struct {
	Traceparent string `header:"traceparent" doc:"W3C Trace Context of the caller. It becomes a header of the delivery, unless headers has one"`
	Tracestate  string `header:"tracestate"  doc:"goes with traceparent"`
	Body        Schedule
}

func (in *scheduleInput) scope(c access.Caller) error {
	return withinTarget(c, in.Body.Topic, in.Body.URL)
}

func (s *server) schedule(ctx ctxType, in *scheduleInput) (*body[Published], error) {
	return s.publish(ctx, to{in.Body.Intake, in.Body.Topic}, func(to Intake) (*kgo.Record, error) {
		r, err := in.Body.Record(to)
		if err == nil && in.Body.Delay != "" {
			err = s.setDue(ctx, to, r)
		}
		if err != nil {
			return nil, err
		}
		return in.traced(r, to), nil
	})
}

// clocksApart is how far the broker's clock may be behind the database's without a request being
// rejected that the API has accepted.
const clocksApart = time.Minute

// setDue writes the due time that a delay means by now, by the database's clock, in place of the
// delay. The delay would count from the broker's timestamp, which Kafka's acknowledgement does not
// tell to the client: the answer could not name the due time of the delivery. A delay that is nearly
// the intake's horizon stays, because a due time could lie beyond the horizon by the broker's clock.
// The answer's due time is then an estimate.
func (s *server) setDue(ctx ctxType, to Intake, r *kgo.Record) error {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	now, err := s.local.store.Time(ctx)
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
// consumer continues the caller's trace. A record that names a caller stays as it is, and so does
// one in which the intake would not accept two more headers.
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

// to is where a request goes: to the intake that it names, or to the one for its target.
type to struct{ intake, topic string }

func (s *server) publish(ctx ctxType, way to, record func(Intake) (*kgo.Record, error)) (*body[Published], error) {
	to, ok := Pick(s.intakes(), way.intake, way.topic)
	if !ok {
		return nil, bad("intake", way.intake, "is not an intake topic: leave it out, or name one that is configured")
	}
	r, err := record(to)
	if err != nil {
		return nil, problem(err)
	}
	if err := s.auditor.request(ctx, r); err != nil {
		return nil, problem(err)
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	done, err := s.publisher.Publish(ctx, r)
	return &body[Published]{done}, problem(err)
}

// Pick returns the intake of that name. Without a name it is the one whose own target the topic is, so that
// requests about one task go one way; otherwise the first without a target of its own; otherwise the first.
func Pick(intakes []Intake, name, topic string) (Intake, bool) {
	if name != "" {
		return pick(intakes, name)
	}
	for _, target := range []string{topic, ""} {
		i := slices.IndexFunc(intakes, func(in Intake) bool { return in.Limits.Target == target })
		if i >= 0 {
			return intakes[i], true
		}
	}
	if len(intakes) == 0 {
		return Intake{}, false
	}
	return intakes[0], true
}

// pick returns an intake by its name.
func pick(intakes []Intake, name string) (Intake, bool) {
	i := slices.IndexFunc(intakes, func(in Intake) bool { return in.Topic == name })
	if i < 0 {
		return Intake{}, false
	}
	return intakes[i], true
}
