package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/access"
)

// publishTimeout is how long a caller waits for Kafka. It is shorter than the server's own time
// limit.
const publishTimeout = 10 * time.Second

type body[T any] struct{ Body T }

type listTasksInput struct {
	Topic    string `query:"topic"     doc:"only this target topic"`
	IDPrefix string `query:"id-prefix" doc:"only ids that begin so"`
	State    string `query:"state"     doc:"only tasks in this state; one of ended tasks implies ended" enum:"pending,claimed,waiting_report,waiting_retry,delivered,succeeded,cancelled,dead"`
	From     int64  `query:"from"      doc:"only what is due, or has ended, at or after, Unix ms"`
	To       int64  `query:"to"        doc:"only what is due, or has ended, before, Unix ms"`
	Limit    int    `query:"limit"     default:"100"                                                    maximum:"1000" minimum:"1"`
	Cursor   string `query:"cursor"    doc:"that of the page before"                                    maxLength:"100"`
	Ended    bool   `query:"ended"     doc:"those that ended last instead of those to come"`
	Content  bool   `query:"content"   doc:"with key, value and headers; pages are then shorter"`
}

func (in *listTasksInput) scope(c access.Caller) error {
	if in.Content && !c.May(access.Operate) {
		return huma.Error403Forbidden("content: " + access.Beyond(c, access.Operate))
	}
	if in.Topic == "" {
		return nil // the handler removes other callers' tasks
	}
	return withinTopics(c, in.Topic)
}

func (s *server) listTasks(ctx ctxType, in *listTasksInput) (*body[Tasks], error) {
	f := TaskFilter{
		Topic: in.Topic, IDPrefix: in.IDPrefix, State: in.State, From: in.From, To: in.To, Limit: in.Limit, Cursor: in.Cursor, Ended: in.Ended, Content: in.Content,
	}
	if caller := access.From(ctx); !caller.AllTopics() {
		f.Allowed = caller.Topic
	}
	tasks, err := s.local.Tasks(ctx, f)
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

type scheduleInput struct{ Body Schedule }

func (in *scheduleInput) scope(c access.Caller) error {
	return withinTarget(c, in.Body.Topic, in.Body.URL)
}

func (s *server) schedule(ctx ctxType, in *scheduleInput) (*body[Published], error) {
	return s.publish(ctx, in.Body.Intake, in.Body.Record)
}

func (s *server) publish(ctx ctxType, topic string, record func(Intake) (*kgo.Record, error)) (*body[Published], error) {
	to, ok := pick(s.intakes, topic)
	if !ok {
		return nil, bad("intake", topic, "is not an intake topic: leave it out, or name one that is configured")
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

// pick returns an intake by its name; the first is the default.
func pick(intakes []Intake, topic string) (Intake, bool) {
	for _, in := range intakes {
		if topic == "" || in.Topic == topic {
			return in, true
		}
	}
	return Intake{}, false
}
