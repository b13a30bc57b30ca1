// Package api is the JSON API of every service: HTTP requests go in; tasks and dead letters as the database has them come
// out, and what is to be scheduled, cancelled or fired goes to the intake topic like anybody's request.
//
// It is described by /openapi.json, which is made from the types here. Errors are problem+json (RFC 9457) and name the
// field and the fix. Times are Unix ms: integers below 2^53, which every JSON reader takes exactly.
//
// There is no authentication: listen where only operators can connect.
package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/notyet/notyet/schemas"
)

// Config of the API.
type Config struct {
	// Version of the program, for the description.
	Version string
	// Intakes are the intake topics with what each accepts. The first is the default of a request that names none.
	Intakes []Intake
}

// Intake is a topic that requests are sent to.
type Intake struct {
	Topic  string
	Limits schemas.Limits
}

type server struct {
	local     *Local
	publisher *Publisher
	intakes   []Intake
}

// Mount adds the API to mux.
func Mount(mux *http.ServeMux, local *Local, publisher *Publisher, cfg Config) {
	s := &server{local: local, publisher: publisher, intakes: cfg.Intakes}
	s.tasks(describe(mux, cfg))
}

func describe(mux *http.ServeMux, cfg Config) huma.API {
	c := huma.DefaultConfig("notyet", cfg.Version)
	c.Info.Description = "Scheduled Kafka messages: look at them, schedule, cancel and fire them, and deal with dead letters."
	c.DocsPath, c.SchemasPath = "", "" // its pages load scripts from elsewhere
	c.CreateHooks = nil                // answers are what the types say, without a $schema field
	c.RejectUnknownQueryParameters = true
	return humago.New(mux, c)
}

func (s *server) tasks(api huma.API) {
	register(api, "list-tasks", http.MethodGet, "/api/v1/tasks", "List the tasks that come next, or those that ended last", s.listTasks)
	register(api, "get-task", http.MethodGet, "/api/v1/tasks/{topic}/{id}", "Show a task; percent-encode the id", s.getTask)
	register(api, "find-task", http.MethodGet, "/api/v1/task", "Show a task, whatever characters its id has", s.findTask)
	register(api, "schedule-task", http.MethodPost, "/api/v1/tasks", "Schedule a task: answered when Kafka has the request", s.schedule, s.limitBody, created)
	register(api, "cancel-task", http.MethodPost, "/api/v1/tasks/cancel", "Ask to cancel a task; who won is told on the results topic", s.cancel, created)
	register(api, "fire-task", http.MethodPost, "/api/v1/tasks/fire", "Ask to deliver a task now; the answer is told on the results topic", s.fire, created)

	register(api, "list-deadletters", http.MethodGet, "/api/v1/deadletters", "List dead letters in the order of their ids", s.listLetters)
	register(api, "count-deadletters", http.MethodGet, "/api/v1/deadletters/count", "Count dead letters", s.countLetters)
	register(api, "get-deadletter", http.MethodGet, "/api/v1/deadletters/{id}", "Show a dead letter with its content", s.getLetter)
	register(api, "replay-deadletters", http.MethodPost, "/api/v1/deadletters/replay", "Replay one page of dead letters; go on after next", s.replay)
	register(api, "purge-deadletters", http.MethodPost, "/api/v1/deadletters/purge", "Delete one page of dead letters; go on after next", s.purge)
}

type option func(*huma.Operation)

func register[I, O any](api huma.API, id, method, path, summary string, handler func(ctxType, *I) (*O, error), options ...option) {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Errors: []int{
		http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusInternalServerError,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}}
	for _, o := range options {
		o(&op)
	}
	huma.Register(api, op, handler)
}

func created(op *huma.Operation) { op.DefaultStatus = http.StatusAccepted }

// limitBody lets the largest value through in either form (base64 takes 4/3; escaped text up to 6 bytes for one), with its
// headers.
func (s *server) limitBody(op *huma.Operation) {
	largest := schemas.DefaultMaxValueBytes
	for _, in := range s.intakes {
		largest = max(largest, in.Limits.MaxValueBytes)
	}
	op.MaxBodyBytes = 6*int64(largest) + 1<<20
}
