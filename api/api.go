// Package api is the JSON API of every service. HTTP requests go in; tasks and dead letters come
// out as the database has them. Requests to schedule, cancel or fire go to the intake topic like
// those of any other program.
//
// /openapi.json describes it and is generated from the types in this package. Errors are
// problem+json (RFC 9457) and name the field and the fix. Times are Unix ms: integers below 2^53,
// which every JSON reader parses exactly.
//
// internal/access puts the caller into the request's context; a request without a caller is
// refused. Each operation names the role that it needs, and each input says which topics it is
// about.
package api

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// Config of the API.
type Config struct {
	// Version is the program's version, for /openapi.json.
	Version string
	// Intakes returns the intake topics with their present limits. The first is the default for requests
	// that name none. Bodies are bounded by the limits of the start. Default none.
	Intakes func() []Intake
	// Answers finds the answers that callers wait for. nil: nobody waits; ?wait= returns as if no
	// answer had come in time.
	Answers *Answers
}

// Intake is a topic that requests are sent to.
type Intake struct {
	Topic  string
	Limits schemas.Limits
	// Now is the clock by which requests are checked and stamped. Default this machine's.
	Now func() time.Time
}

func (in Intake) now() time.Time {
	if in.Now == nil {
		return time.Now()
	}
	return in.Now()
}

type server struct {
	huma      huma.API
	local     *Local
	publisher *Publisher
	intakes   func() []Intake
	answers   *Answers
	auditor   *auditor
	bodies    *turns // bytes of request bodies in memory
	unsent    *turns // bytes of answers in memory
	cursors   *cursors
}

// Mount adds the API to mux, which must be behind an access.Guard.
func Mount(mux *http.ServeMux, local *Local, publisher *Publisher, cfg Config) {
	if cfg.Intakes == nil {
		cfg.Intakes = func() []Intake { return nil }
	}
	s := &server{local: local, publisher: publisher, intakes: cfg.Intakes, answers: cfg.Answers, huma: describe(mux, cfg)}
	s.cursors = &cursors{secret: admin.New(local.store).Secret}
	s.auditor = &auditor{audit: admin.New(local.store).Audit}
	s.bodies = newTurns(max(bodyBudget, s.largestBody()), max(bodyBudget/2, s.largestBody()))
	s.unsent = newTurns(answerBudget, answerBudget/2)
	s.tasks()
	s.asks()
	s.cancels()
	s.timers()
	s.forecasts()
	s.targets()
	s.letters()
	s.audits()
	s.cluster()
	s.slots()
	s.overview()
	mux.HandleFunc(everyPath, unknownPath(mux))
}

func describe(mux *http.ServeMux, cfg Config) huma.API {
	c := huma.DefaultConfig("notyet", cfg.Version)
	c.Info.Description = "Scheduled Kafka messages: look at them, schedule, cancel and fire them, and deal with dead letters."
	c.DocsPath, c.SchemasPath = "", "" // its pages load scripts from other sites
	c.CreateHooks = nil                // responses match the types, without a $schema field
	c.Formats = jsonFormats()
	c.RejectUnknownQueryParameters = true
	c.Transformers = append(c.Transformers, shapeProblem)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token of http.tokens, or a JWT of the issuer in http.jwt. Without that file none is needed, on loopback addresses."},
	}
	c.Security = []map[string][]string{{"token": {}}, {}}
	return humago.New(mux, c)
}

func (s *server) tasks() {
	const read, operate = access.Read, access.Operate
	register(s, read, "list-tasks", http.MethodGet, "/api/v1/tasks", "List the tasks that come next, or those that ended last", s.listTasks, s.onePage)
	register(s, read, "get-task", http.MethodGet, "/api/v1/tasks/{topic}/{id}", "Show a task; percent-encode the id", s.getTask, s.oneThing)
	register(s, read, "find-task", http.MethodGet, "/api/v1/task", "Show a task, whatever characters its id has", s.findTask, s.oneThing)
	register(s, operate, "schedule-task", http.MethodPost, "/api/v1/tasks", "Schedule a task: answered when Kafka has the request", s.schedule, s.limitBody, accepted)
}

func (s *server) letters() {
	const read, operate, admin = access.Read, access.Operate, access.Admin
	register(s, read, "list-deadletters", http.MethodGet, "/api/v1/deadletters", "List dead letters in the order of their ids", s.listLetters, s.onePage)
	register(s, read, "count-deadletters", http.MethodGet, "/api/v1/deadletters/count", "Count dead letters", s.countLetters)
	register(s, read, "get-deadletter", http.MethodGet, "/api/v1/deadletters/{id}", "Show a dead letter with its content", s.getLetter, s.oneThing)
	register(s, operate, "replay-deadletters", http.MethodPost, "/api/v1/deadletters/replay", "Replay one page of dead letters; go on after next", s.replay)
	register(s, admin, "purge-deadletters", http.MethodPost, "/api/v1/deadletters/purge", "Delete one page of dead letters; go on after next", s.purge)
}

type option func(*huma.Operation)

// scoped is an input that knows its topics. scope refuses a caller who may not see or change them.
type scoped[I any] interface {
	*I
	scope(c access.Caller) error
}

// register adds an operation for callers with the role. Its handler gets only inputs within the
// caller's topics. The values in its output are removed if the caller may not read them.
func register[I, O any, P scoped[I]](s *server, role access.Role, id, method, path, summary string, handler func(ctxType, *I) (*O, error), options ...option) {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Errors: []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity,
		http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}}
	op.Description = "Needs the role " + role.String() + "."
	for _, o := range options {
		o(&op)
	}
	op.Middlewares = append(huma.Middlewares{s.require(role), waits, s.budget(op.MaxBodyBytes), actor}, op.Middlewares...)
	huma.Register(s.huma, op, func(ctx ctxType, in *I) (*O, error) {
		caller := access.From(ctx)
		if err := P(in).scope(caller); err != nil {
			return nil, err
		}
		out, err := handler(ctx, in)
		if err != nil {
			return nil, err
		}
		if v, ok := any(out).(valuable); ok && !caller.May(access.Operate) {
			v.withhold()
		}
		return out, nil
	})
}

func accepted(op *huma.Operation) { op.DefaultStatus = http.StatusAccepted }
