package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

// Target names the task of a cancel, stop or fire.
type Target struct {
	Intake  string `json:"intake,omitempty"  doc:"intake topic; default the one whose target this is, otherwise the first without a target of its own" minLength:"1"`
	Topic   string `json:"topic,omitempty"   doc:"target topic, or the origin of an HTTP callback; default the intake's own target" minLength:"1"`
	URL     string `json:"url,omitempty"     doc:"instead of the topic: any URL of the callback's origin" minLength:"1"`
	ID      string `json:"id"`
	Version *int64 `json:"version,omitempty" doc:"ignored as stale when it is lower than the task's"`
	// Key is the record key. Requests about one task keep their order with the same key.
	Key       *string `json:"key"                  required:"false" doc:"record key: give that of the task's other requests, so that they stay in order"`
	KeyBase64 string  `json:"key_base64,omitempty"`
}

// Record returns such a request as a record, as Schedule.Record does.
func (t *Target) Record(op schemas.Op, in Intake) (*kgo.Record, error) {
	content := deadletter.Content{Key: t.Key, KeyBase64: t.KeyBase64}
	key, _, _, err := content.Bytes()
	if err != nil {
		return nil, err
	}
	b := builder{}
	b.text(schemas.HeaderOp, op.String())
	b.target(in, t.Topic, t.URL)
	b.text(schemas.HeaderID, t.ID)
	b.number(schemas.HeaderVersion, t.Version)
	return b.record(in, key, nil)
}

// Event is an event as on the results topic.
type Event struct {
	Schema   int           `json:"schema"`
	Topic    string        `json:"topic,omitempty"`
	ID       string        `json:"id"`
	State    schemas.State `json:"state"`
	Due      int64         `json:"due,omitempty"         doc:"Unix ms"`
	At       int64         `json:"at"                    doc:"when this happened, Unix ms"`
	Attempt  int           `json:"attempt,omitempty"`
	Lateness *int64        `json:"lateness_ms,omitempty" doc:"ms between the instant of the attempt and its delivery; absent where no delivery is told, or it is not known"`
	Kind     string        `json:"kind,omitempty"        doc:"of dead and rejected: why"`
	Reason   string        `json:"reason,omitempty"`
	Request  string        `json:"request,omitempty"     doc:"the request that this answers, as the answer with 202 names it"`
}

func newEvent(e schemas.Event) Event {
	out := Event{Schema: 1, Topic: e.Topic, ID: e.ID, State: e.State, Due: e.Due, At: e.At, Attempt: e.Attempt, Kind: e.Kind, Reason: e.Reason, Request: e.Request}
	if e.KnowsLateness() {
		out.Lateness = &e.Lateness
	}
	return out
}

// Waiting is how long a caller waits for the answer.
type Waiting struct {
	Wait string `query:"wait" doc:"wait so long for the answer, such as 2s; at most 30s" example:"2s"`
}

func (w Waiting) duration() (time.Duration, error) {
	if w.Wait == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(w.Wait)
	if err != nil || d <= 0 || d > maxWait {
		problem := "is no duration from 1ms to " + maxWait.String() + ": write one such as 2s, or leave it out"
		return 0, huma.Error422UnprocessableEntity("wait "+problem, &huma.ErrorDetail{Location: "query.wait", Message: problem, Value: w.Wait})
	}
	return d, nil
}

type targetInput struct {
	Waiting
	Body Target
}

func (in *targetInput) scope(c access.Caller) error {
	return withinTarget(c, in.Body.Topic, in.Body.URL)
}

type pathTarget struct {
	Waiting
	Named
	Intake  string `query:"intake"  doc:"intake topic; default the one whose target this is, otherwise the first without a target of its own"`
	Version string `query:"version" doc:"ignored as stale when it is lower than the task's" pattern:"^[0-9]{1,19}$"`
	Key     string `query:"key"     doc:"record key: give that of the task's other requests, so that they stay in order"`
}

// Resolve refuses 19 digits beyond the largest version, and a body: nobody reads a version there.
func (in *pathTarget) Resolve(ctx huma.Context) (wrong []error) {
	if r, _ := humago.Unwrap(ctx); r.ContentLength < 0 || r.ContentLength > int64(len("{}")) {
		wrong = append(wrong, &huma.ErrorDetail{Location: "body", Message: "is not read at this path: leave it out, and send version, key and intake in the query"})
	}
	if _, err := strconv.ParseInt(in.Version, 10, 64); in.Version != "" && err != nil {
		wrong = append(wrong, &huma.ErrorDetail{Location: "query.version", Message: "is no version: write an integer from 0 to 9223372036854775807", Value: in.Version})
	}
	return wrong
}

func (in *pathTarget) target() Target {
	t := Target{Intake: in.Intake, Topic: in.Topic, ID: in.ID}
	if in.Key != "" {
		t.Key = &in.Key
	}
	if in.Version != "" {
		n, _ := strconv.ParseInt(in.Version, 10, 64) // by Resolve
		t.Version = &n
	}
	return t
}

// answerOutput is an Event with 200, or a Published with 202.
type answerOutput struct {
	Status int
	Body   any
}

func (s *server) byBody(op schemas.Op) func(context.Context, *targetInput) (*answerOutput, error) {
	return func(ctx context.Context, in *targetInput) (*answerOutput, error) {
		return s.ask(ctx, op, in.Body, in.Waiting)
	}
}

func (s *server) byPath(op schemas.Op) func(context.Context, *pathTarget) (*answerOutput, error) {
	return func(ctx context.Context, in *pathTarget) (*answerOutput, error) {
		return s.ask(ctx, op, in.target(), in.Waiting)
	}
}

// ask sends the request and waits for its own answer, not for another request's about the task. The
// wait begins when Kafka has acknowledged the request.
func (s *server) ask(ctx context.Context, op schemas.Op, t Target, w Waiting) (*answerOutput, error) {
	return s.askRecord(ctx, t.ID, route{t.Intake, t.Topic, t.URL}, func(in Intake) (*kgo.Record, error) { return t.Record(op, in) }, w)
}

// askRecord is ask for any request with an answer.
func (s *server) askRecord(ctx context.Context, id string, way route, record func(Intake) (*kgo.Record, error), w Waiting) (*answerOutput, error) {
	wait, err := w.duration()
	if err != nil {
		return nil, err
	}
	var mine *waiter
	if wait > 0 && s.answers != nil {
		if mine, err = s.answers.expect(ctx, id); err != nil {
			return nil, err
		}
		defer s.answers.leave(mine)
	}
	sent, err := s.publish(ctx, way, record)
	if err != nil || mine == nil {
		return &answerOutput{http.StatusAccepted, sent}, err
	}
	patient, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if e, ok := s.answers.answer(patient, mine, sent.Request); ok {
		return &answerOutput{http.StatusOK, newEvent(e)}, nil
	}
	if t, err := s.fleet.Task(ctx, sent.Topic, sent.ID); err == nil { // otherwise less is said
		sent.Awaits = t.Awaits(sent.Request)
	}
	return &answerOutput{http.StatusAccepted, sent}, nil
}

// Answered is a request with the event that answers it. An empty State: none came in time.
type Answered struct {
	Published
	State schemas.State   `json:"state"`
	JSON  json.RawMessage `json:"-"` // the Event, or the Published
}

func send(ctx context.Context, c *Client, method, path string, query, body any) (a Answered, err error) {
	if a.JSON, err = do[json.RawMessage](ctx, c, method, path+parameters(query), body, nil); err == nil {
		err = json.Unmarshal(a.JSON, &a)
	}
	return a, err
}

func waiting(wait time.Duration) Waiting {
	if wait <= 0 {
		return Waiting{}
	}
	return Waiting{min(wait, maxWait).String()}
}

// Schedule sends a schedule request, and waits for the answer.
func (c *Client) Schedule(ctx context.Context, r Schedule, wait time.Duration) (Answered, error) {
	return send(ctx, c, http.MethodPost, "/tasks", waiting(wait), r)
}

// SetTimer sends a timer, and waits for the answer.
func (c *Client) SetTimer(ctx context.Context, t Target, timer SetTimer, wait time.Duration) (Answered, error) {
	timer.Intake = t.Intake
	return send(ctx, c, http.MethodPut, timerPath(route{topic: t.Topic, url: timer.URL}.target(), t.ID), waiting(wait), timer)
}

// Ask sends any other request, and waits for the answer.
func (c *Client) Ask(ctx context.Context, op schemas.Op, t Target, wait time.Duration) (Answered, error) {
	change, timer := strings.CutPrefix(op.String(), schemas.OpTimer.String()+"-")
	if !timer {
		return send(ctx, c, http.MethodPost, "/tasks/"+change, waiting(wait), t)
	}
	query := pathTarget{Waiting: waiting(wait), Intake: t.Intake}
	if t.Key != nil {
		query.Key = *t.Key
	}
	if t.Version != nil {
		query.Version = strconv.FormatInt(*t.Version, 10)
	}
	path := timerPath(route{topic: t.Topic, url: t.URL}.target(), t.ID)
	if op == schemas.OpTimerDelete {
		return send(ctx, c, http.MethodDelete, path, query, nil)
	}
	return send(ctx, c, http.MethodPost, path+"/"+change, query, nil)
}

// route is the way of a request: to the named intake, or to the target's.
type route struct{ intake, topic, url string }

// target is the target's name in tokens. "": the intake's own.
func (w route) target() string {
	if w.url != "" {
		target, _ := schemas.ParseCallbackURL([]byte(w.url)) // what is no URL is refused later
		return target.Origin
	}
	return schemas.TargetName(w.topic)
}

// publishTimeout is how long a caller waits for Kafka. The server's own time limit is longer.
const publishTimeout = 10 * time.Second

func (s *server) publish(ctx context.Context, way route, record func(Intake) (*kgo.Record, error)) (Published, error) {
	caller := access.From(ctx)
	if way.intake != "" && !caller.Through(way.target(), way.intake) {
		return Published{}, huma.Error403Forbidden(fmt.Sprintf("the token %q sends its requests through another intake: leave intake out", caller.Name))
	}
	to, ok := Pick(s.theirs(caller, way), way.intake, way.topic)
	if !ok {
		return Published{}, wrong("intake", way.intake, "is not an intake topic: leave it out, or name one that is configured")
	}
	r, err := record(to)
	if err != nil {
		return Published{}, err
	}
	if err := s.fleet.noteRecord(ctx, r); err != nil {
		return Published{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return s.publisher.Publish(ctx, r)
}
