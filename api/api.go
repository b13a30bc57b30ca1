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
	"encoding/json"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

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

// unknownPath answers paths without an operation, and paths with operations for other methods, also with a problem document.
func unknownPath(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, detail := http.StatusNotFound, "there is no such path: see /openapi.json"
		if methods := otherMethods(mux, r); len(methods) > 0 {
			status, detail = http.StatusMethodNotAllowed, "this path has no such method: send "+strings.Join(methods, " or ")
			w.Header().Set("Allow", strings.Join(methods, ", "))
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(&huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail})
	}
}

// otherMethods returns the methods with which a request's path has an operation.
func otherMethods(mux *http.ServeMux, r *http.Request) (methods []string) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != everyPath {
			methods = append(methods, method)
		}
	}
	return methods
}

// everyPath is the pattern of what has no operation.
const everyPath = "/api/"
