package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
)

// Operation is a change of many that the services make by themselves.
type Operation struct {
	ID      int64           `json:"id"`
	What    string          `json:"what"             doc:"cancel-many, replay, purge or backfill"`
	State   string          `json:"state"            doc:"running; done; failed: why says the reason; stopped" enum:"running,done,failed,stopped"`
	Done    int64           `json:"done"             doc:"tasks, dead letters or runs that it has come to"`
	Total   int64           `json:"total"            doc:"how many there are, as counted at the beginning; 0: not counted to the end"`
	Result  json.RawMessage `json:"result,omitempty" doc:"what the request without async answers, of all that was done so far; of a replay the letters are the last 100"`
	Topic   string          `json:"topic,omitempty"  doc:"target topic; absent: several"`
	Timer   string          `json:"timer,omitempty"  doc:"of a backfill"`
	Who     string          `json:"who"              doc:"who asked for it"`
	At      int64           `json:"at"               doc:"when it was asked for, Unix ms"`
	Changed int64           `json:"changed"          doc:"its last step, Unix ms"`
	Why     string          `json:"why,omitempty"    doc:"the last error; a running operation tries again"`
	Request json.RawMessage `json:"request,omitempty" doc:"what was asked for; absent in lists"`
}

func newOperation(o admin.Operation) Operation {
	if o.Total > 0 {
		o.Total = max(o.Total, o.Done) // a step under way came to more
	}
	return Operation{ID: o.ID, What: o.What, State: o.State, Done: o.Done, Total: o.Total, Result: o.Result, Topic: o.Topic, Timer: o.TaskID,
		Who: o.Actor().String(), At: o.Created, Changed: o.Changed, Why: o.Why, Request: asked(o.Request)}
}

// Running reports whether the services are still at it.
func (o Operation) Running() bool { return o.State == admin.OperationRuns }

// asked returns a job's request without how far it has come: that names places of tasks.
func asked(request []byte) json.RawMessage {
	var j job
	if len(request) == 0 || json.Unmarshal(request, &j) != nil {
		return nil
	}
	var of any
	switch {
	case j.Cancel != nil:
		j.Cancel.Cursor = ""
		of = j.Cancel
	case j.Replay != nil:
		j.Replay.After, j.Replay.UpTo = 0, 0
		of = j.Replay
	case j.Purge != nil:
		j.Purge.After, j.Purge.UpTo = 0, 0
		of = j.Purge
	default:
		of = j.Backfill
	}
	text, err := json.Marshal(of)
	if err != nil {
		return nil
	}
	return text
}

// Figure is a number of an operation's result.
type Figure struct {
	Name string
	N    int64
}

// shownFigures are the fields of results that people are shown, each with its name.
var shownFigures = map[string][][2]string{
	cancelling:  {{"cancelled", "cancelled"}, {"too_late", "too late"}},
	replaying:   {{"replayed", "replayed"}, {"skipped", "skipped"}},
	purging:     {{"deleted", "deleted"}},
	backfilling: {{"made", "made"}, {"existing", "were there"}, {"coming", "still to come"}, {"forgotten", "forgotten"}, {"before_set", "from before it was set"}},
}

// changes counts what an operation has changed so far: the first figure of each.
func changes(what string, result []byte) int64 {
	for _, first := range (Operation{What: what, Result: result}).Figures() {
		return first.N
	}
	return 0 // of a later release
}

// Figures returns the numbers of the result so far.
func (o Operation) Figures() (out []Figure) {
	var result map[string]any
	_ = json.Unmarshal(o.Result, &result) // it is ours
	for _, f := range shownFigures[o.What] {
		n, _ := result[f[0]].(float64)
		out = append(out, Figure{f[1], int64(n)})
	}
	return out
}

// Skips counts why letters were skipped, of the last ones of a replay, which the result has.
func (o Operation) Skips() map[string]int64 {
	var result ReplayedMany
	if o.What != replaying || json.Unmarshal(o.Result, &result) != nil {
		return nil
	}
	out := map[string]int64{}
	for _, l := range result.Letters {
		if l.Skipped != "" {
			out[l.Skipped]++
		}
	}
	return out
}

// Operations is a page of operations, the latest first. A page can be short or empty without being
// the last.
type Operations struct {
	Operations []Operation `json:"operations"`
	Cursor     string      `json:"cursor,omitempty" doc:"give it back for the next page; absent: that was the last"`
}

// Async lets a request be made as an operation.
type Async struct {
	Async bool `query:"async" doc:"answer 202 with an operation, which goes on by itself, also after a restart of any service: GET /api/v1/operations/{id} shows it, DELETE stops it; a dry run is answered at once"`
}

func (a Async) isAsync() bool { return a.Async }

// asyncOutput is an Operation with 202, or the answer with 200.
type asyncOutput struct {
	Status int
	Body   any
}

// registerAsync is register for a request that may be an operation. begin returns what is stored of
// it.
func registerAsync[I, O any, P scoped[I]](s *server, role access.Role, id, path, summary string, handler func(context.Context, *I) (O, error), begin func(context.Context, *I) (*job, error)) {
	registerOutput[I, asyncOutput, P](s, role, id, http.MethodPost, path, summary, func(ctx context.Context, in *I) (*asyncOutput, error) {
		var j *job
		err := errDry
		if a, _ := any(in).(interface{ isAsync() bool }); a.isAsync() {
			j, err = begin(ctx, in)
		}
		if errors.Is(err, errDry) {
			out, err := handler(ctx, in)
			return &asyncOutput{http.StatusOK, out}, err
		}
		o, err := s.fleet.begin(ctx, j, err)
		return &asyncOutput{http.StatusAccepted, o}, err
	}, maybeAsync[O](s.huma))
}

// operations are the handlers of requests about operations.
type operations struct{ *server }

// maySee reports whether an operation is about the caller's topics alone.
func maySee(c access.Caller, o admin.Operation) bool { return withinLetters(c, o.Topic) == nil }

type listOperationsInput struct {
	Limit  int    `query:"limit"  default:"100"                 maximum:"100"    minimum:"1"`
	Cursor string `query:"cursor" doc:"that of the page before" maxLength:"1000"`
}

func (*listOperationsInput) scope(access.Caller) error { return nil } // it leaves out what is not the caller's

func (s operations) list(ctx context.Context, in *listOperationsInput) (out Operations, err error) {
	err = s.cursors.page(ctx, "operations", &in.Cursor, &out.Cursor, func() (err error) {
		out, err = s.fleet.operations(ctx, in.Limit, in.Cursor, func(o admin.Operation) bool { return maySee(access.From(ctx), o) })
		return err
	})
	return out, err
}

type operationInput struct {
	ID int64 `path:"id"`
}

// Resolve refuses a body: nobody reads it.
func (in *operationInput) Resolve(ctx huma.Context) (wrong []error) {
	if r, _ := humago.Unwrap(ctx); r.ContentLength < 0 || r.ContentLength > int64(len("{}")) {
		wrong = append(wrong, &huma.ErrorDetail{Location: "body", Message: "is not read at this path: leave it out"})
	}
	return wrong
}

func (in *operationInput) scope(access.Caller) error { return nil } // the handler checks the operation's topic

func (s operations) read(ctx context.Context, id int64) (admin.Operation, error) {
	o, err := s.fleet.operation(ctx, id)
	if err == nil && !maySee(access.From(ctx), o) {
		err = admin.ErrNoOperation // whether there is one is nobody else's affair
	}
	return o, err
}

func (s operations) show(ctx context.Context, in *operationInput) (Operation, error) {
	o, err := s.read(ctx, in.ID)
	return newOperation(o), err
}

func (s operations) stop(ctx context.Context, in *operationInput) (Operation, error) {
	o, err := s.read(ctx, in.ID)
	if err != nil {
		return Operation{}, err
	}
	if role := roleFor(o.What); !access.From(ctx).May(role) {
		return Operation{}, huma.Error403Forbidden(access.Beyond(access.From(ctx), role))
	}
	return s.fleet.stopOperation(ctx, &o)
}

// roleFor is the role that a deed needs.
func roleFor(what string) access.Role {
	if what == purging {
		return access.Admin
	}
	return access.Operate
}

// outcome lets the end of an operation be noted.
func outcome(ctx context.Context, o *admin.Operation, state string) context.Context {
	return admin.Auditing(ctx, admin.AuditEntry{What: "operation " + state, Topic: o.Topic, TaskID: o.TaskID, Detail: admin.AuditDetail(map[string]any{
		"id": o.ID, "operation": o.What, "why": o.Why,
	})})
}

// The kinds of operations.
const (
	cancelling  = "cancel-many"
	replaying   = "replay"
	purging     = "purge"
	backfilling = "backfill"
)

// job is an operation's request, and how far it has come. One of the requests is set.
type job struct {
	Cancel   *CancelMany    `json:"cancel,omitempty"`
	Replay   *ReplayRequest `json:"replay,omitempty"`
	Purge    *PurgeRequest  `json:"purge,omitempty"`
	Backfill *Backfill      `json:"backfill,omitempty"`
	Target   string         `json:"target,omitempty"` // of the timer
	Timer    string         `json:"timer,omitempty"`
	// Reserve: the caller had the reserve of administrators.
	Reserve bool `json:"reserve,omitempty"`
	// Counted: the total is known, or counting takes too long. CountFrom is where it goes on.
	Counted bool `json:"counted,omitempty"`
	// Entry is the one in the audit log in which the changes count, in their own transactions: so
	// the result has also what was changed by a step that was not stored.
	Entry int64 `json:"entry,omitempty"`

	Counts       int    `json:"counts,omitempty"`
	CountFrom    string `json:"count_from,omitempty"`
	CountedSoFar int64  `json:"counted_so_far,omitempty"`

	Next Instant `json:"next,omitzero"` // where a backfill goes on; zero: at its from

	total int64
}

func (j *job) what() string {
	switch {
	case j.Cancel != nil:
		return cancelling
	case j.Replay != nil:
		return replaying
	case j.Purge != nil:
		return purging
	}
	return backfilling
}

func (j *job) topic() string {
	topic := j.Target
	switch {
	case j.Cancel != nil:
		topic = j.Cancel.Topic
	case j.Replay != nil:
		topic = j.Replay.Topic
	case j.Purge != nil:
		topic = j.Purge.Topic
	}
	return schemas.TargetName(topic)
}

func newJob(ctx context.Context) *job { return &job{Reserve: access.From(ctx).Account().Reserve} }

func (s operations) asyncCancelMany(ctx context.Context, in *cancelManyInput) (j *job, err error) {
	var none string
	err = s.cursors.page(ctx, "cancel-many", &in.Body.Cursor, &none, func() error {
		j, err = cancelJob(ctx, &in.Body)
		return err
	})
	return j, err
}

func (s operations) asyncReplay(ctx context.Context, in *replayInput) (*job, error) {
	return s.fleet.replayJob(ctx, &in.Body)
}

func (s operations) asyncPurge(ctx context.Context, in *purgeInput) (*job, error) {
	return s.fleet.purgeJob(ctx, &in.Body)
}

func (s operations) asyncBackfill(ctx context.Context, in *backfillInput) (*job, error) {
	return s.fleet.backfillJob(ctx, in.Topic, in.ID, &in.Body)
}

// tenantOf is the name that an operation has of a tenant: of a long one the beginning, and a hash.
func tenantOf(c access.Caller) string {
	name := c.Account().Tenant
	if len(name) <= mostTenant {
		return name
	}
	return name[:mostTenant-2*sha256.Size] + fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
}

const mostTenant = 255

// maybeAsync describes both responses.
func maybeAsync[O any](h huma.API) option {
	schema := func(answer *huma.Schema, description string) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{"application/json": {Schema: answer}}}
	}
	registry := h.OpenAPI().Components.Schemas
	done, begun := schema(registry.Schema(reflect.TypeFor[O](), true, ""), "OK"), schema(registry.Schema(reflect.TypeFor[Operation](), true, ""), "With async: the operation")
	return func(op *huma.Operation) { op.Responses = map[string]*huma.Response{"200": done, "202": begun} }
}

// Operations lists operations, the latest first.
func (c *Client) Operations(ctx context.Context, limit int, cursor string) (Operations, error) {
	return get[Operations](ctx, c, "/operations", listOperationsInput{limit, cursor}, nil)
}

// Operation returns one operation, or admin.ErrNoOperation.
func (c *Client) Operation(ctx context.Context, id int64) (Operation, error) {
	return get[Operation](ctx, c, "/operations/"+strconv.FormatInt(id, 10), nil, admin.ErrNoOperation)
}

// StopOperation stops a running operation, or returns admin.ErrNoOperation.
func (c *Client) StopOperation(ctx context.Context, id int64) (Operation, error) {
	return do[Operation](ctx, c, http.MethodDelete, "/operations/"+strconv.FormatInt(id, 10), nil, admin.ErrNoOperation)
}

// BeginCancelMany is CancelMany as an operation.
func (c *Client) BeginCancelMany(ctx context.Context, r CancelMany) (Operation, error) {
	return post[Operation](ctx, c, "/tasks/cancel-many?async=true", r, nil)
}

// BeginReplay replays the letters of a filter, all pages of them, as an operation.
func (c *Client) BeginReplay(ctx context.Context, f letters.Filter) (Operation, error) {
	filter := newLetterFilter(f)
	return post[Operation](ctx, c, "/deadletters/replay?async=true", ReplayRequest{LetterFilter: filter, All: !filter.selects()}, nil)
}

// BeginPurge deletes the letters of a filter, all pages of them, as an operation.
func (c *Client) BeginPurge(ctx context.Context, f letters.Filter) (Operation, error) {
	filter := newLetterFilter(f)
	return post[Operation](ctx, c, "/deadletters/purge?async=true", PurgeRequest{LetterFilter: filter, All: !filter.selects()}, nil)
}

// BeginBackfill is BackfillTimer as an operation, or returns look.ErrNoTimer.
func (c *Client) BeginBackfill(ctx context.Context, topic, id string, r Backfill) (Operation, error) {
	return post[Operation](ctx, c, timerPath(topic, id)+"/backfill?async=true", r, look.ErrNoTimer)
}
