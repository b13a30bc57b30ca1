// Package api is the JSON API of every service. HTTP requests go in; tasks and dead letters come
// out as the database has them. Requests to schedule, cancel, stop or fire go to the intake topic
// like those of any other program.
//
// /openapi.json describes the API, generated from the types in this package. Errors are
// problem+json (RFC 9457) and name the field and the fix. Times are Unix ms: integers below 2^53,
// which every JSON reader parses exactly.
//
// internal/access puts the caller into the request's context; a request without a caller is
// refused. Each operation names the role needed, and each input its topics.
package api

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

// Config of the API.
type Config struct {
	// Version is the program's version, for /openapi.json.
	Version string
	// Intakes returns the intake topics with their present limits. The first is the default for
	// requests without one. Bodies are bounded by the limits of the start. Default none.
	Intakes func() []Intake
	// Answers finds the answers for waiting callers. nil: nobody waits, and ?wait= times out.
	Answers *Answers
}

// Mount adds the API to mux, which must be behind an access.Guard.
func Mount(mux *http.ServeMux, fleet *Fleet, publisher *Publisher, cfg Config) {
	if cfg.Intakes == nil {
		cfg.Intakes = func() []Intake { return nil }
	}
	s := &server{fleet: fleet, publisher: publisher, intakes: cfg.Intakes, answers: cfg.Answers, cursors: &cursors{secret: fleet.secret}}
	s.mount(mux, cfg.Version)
	s.refuseOthers(mux)
}

func (s *server) mount(mux *http.ServeMux, version string) {
	s.huma = s.describe(mux, version)
	s.memory = newMemory(s.huma, s.intakes())
	const read, operate, admin = access.Read, access.Operate, access.Admin
	const get, post, put, patch = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch
	const aTask, letters, aTimer, target = "/api/v1/tasks/{topic}/{id}", "/api/v1/deadletters", "/api/v1/timers/{topic}/{id}", "/api/v1/targets/{topic}"
	answered, dead := answered(s.huma), letterHandlers{s.fleet, s.cursors}

	register(s, read, "list-tasks", get, "/api/v1/tasks", "List the tasks that come next, or those that ended last", s.listTasks, s.onePage)
	register(s, read, "get-task", get, aTask, "Show a task; percent-encode the id", s.getTask, s.oneThing)
	register(s, read, "find-task", get, "/api/v1/task", "Show a task, whatever characters its id has", s.findTask, s.oneThing)
	register(s, read, "forecast", get, "/api/v1/forecast", "Count the tasks that fall due in each step; where there are millions, go on after next", s.forecast)
	registerOutput(s, operate, "schedule-task", post, "/api/v1/tasks", "Schedule a task: answered when Kafka has the request; a GET finds the task once the answer that wait waits for has come", s.schedule, s.limitBody, accepted, answered)
	for _, a := range []struct {
		op schemas.Op
		to string
	}{{schemas.OpCancel, "cancel a task"}, {schemas.OpStop, "cancel a task, or to end the attempts of one that waits for a report or a retry"}, {schemas.OpFire, "deliver a task now, or to make its next attempt now"}} {
		name := a.op.String()
		registerOutput(s, operate, name+"-task", post, "/api/v1/tasks/"+name, "Ask to "+a.to+", whatever characters its id has; wait for who won", s.byBody(a.op), accepted, answered)
		registerOutput(s, operate, name+"-task-by-path", post, aTask+"/"+name, "Ask to "+a.to+"; wait for who won; percent-encode the id", s.byPath(a.op), accepted, answered)
	}
	ops := operations{s}
	registerAsync(s, operate, "cancel-many", "/api/v1/tasks/cancel-many", "Cancel the tasks that match; go on with the cursor if there is one", s.cancelMany, ops.asyncCancelMany)

	register(s, read, "list-timers", get, "/api/v1/timers", "List timers in the order of their topics and ids", s.listTimers, s.onePage)
	register(s, read, "get-timer", get, aTimer, "Show a timer; percent-encode the id", s.getTimer, s.oneThing)
	register(s, read, "audit-timer", get, aTimer+"/audit", "Compare the runs that a timer's expression has in a range with those that were made; go on after next", s.auditTimer)
	register(s, read, "preview-timer", post, "/api/v1/timers/preview", "Compute the next runs of a definition, without making a timer", s.previewTimer)
	registerOutput(s, operate, "set-timer", put, aTimer, "Ask to make a timer, or to replace it; wait for the answer", s.setTimer, s.limitBody, accepted, answered)
	registerOutput(s, operate, "delete-timer", http.MethodDelete, aTimer, "Ask to delete a timer; wait for the answer", s.byPath(schemas.OpTimerDelete), accepted, answered)
	registerOutput(s, operate, "enable-timer", post, aTimer+"/enable", "Ask to enable a timer; wait for the answer", s.byPath(schemas.OpTimerEnable), accepted, answered)
	registerOutput(s, operate, "disable-timer", post, aTimer+"/disable", "Ask to disable a timer; wait for the answer", s.byPath(schemas.OpTimerDisable), accepted, answered)
	register(s, operate, "run-timer", post, aTimer+"/run", "Make one run of a timer now, whether it is enabled or not; the run exists when the answer comes", s.runTimer)
	registerAsync(s, operate, "backfill-timer", aTimer+"/backfill",
		"Make those runs of a timer in a range that do not exist, the oldest first; while there is next, send it again; at most "+strconv.Itoa(MostBackfilled)+" runs", s.backfillTimer, ops.asyncBackfill)

	register(s, read, "list-deadletters", get, letters, "List dead letters in the order of their ids, or the latest first", dead.list, s.onePage)
	register(s, read, "count-deadletters", get, letters+"/count", "Count dead letters", dead.countPage)
	register(s, read, "get-deadletter", get, letters+"/{id}", "Show a dead letter with its content", dead.get, s.oneThing)
	registerAsync(s, operate, "replay-deadletters", letters+"/replay", "Replay one page of dead letters; go on after next", dead.replay, ops.asyncReplay)
	register(s, operate, "replay-deadletter", post, letters+"/{id}/replay", "Replay a dead letter, with another topic, key, value or headers where the body has them", s.replayOne, s.limitBody)
	registerAsync(s, admin, "purge-deadletters", letters+"/purge", "Delete one page of dead letters; go on after next", dead.purge, ops.asyncPurge)

	register(s, read, "list-operations", get, "/api/v1/operations", "List operations, the latest first", ops.list, s.onePage)
	register(s, read, "get-operation", get, "/api/v1/operations/{id}", "Show how far an operation has come, and what it has done", ops.show, s.oneThing)
	register(s, operate, "stop-operation", http.MethodDelete, "/api/v1/operations/{id}", "Stop an operation; what is done stays", ops.stop, ends)

	register(s, read, "list-targets", get, "/api/v1/targets", "List the targets that are paused or limited", s.listTargets)
	register(s, operate, "set-target", put, target, "Pause, resume or limit a target; what is left out is no limit; in force within a second", s.setTarget)
	register(s, operate, "change-target", patch, target, "The same; what is left out stays as it is", s.changeTarget)

	register(s, read, "list-audit", get, "/api/v1/audit", "List who changed what, the latest first", s.listAudit, s.onePage)
	registerOutput(s, operate, "note-request", post, "/api/v1/audit", "Note a request that a command is about to send to Kafka itself", s.noteRequest)
	register(s, read, "show-overview", get, "/api/v1/overview", "Show how late deliveries are, how many there are, and what is wrong", s.showOverview)
	register(s, read, "show-cluster", get, "/api/v1/cluster", "Show the services that are alive, the slots with their owners, and the lag of the intake", s.showCluster)
	register(s, read, "show-slots", get, "/api/v1/slots", "Show how many slots there are, and how far a change of their number has come", s.showSlots)
	register(s, admin, "set-slots", put, "/api/v1/slots", "Change the number of slots while the services run; while it changes already, that change comes first", s.setSlots)
	register(s, admin, "list-shards", get, "/api/v1/shards", "List the databases, and which of them has which targets", s.listShards)
	register(s, admin, "move-targets", post, "/api/v1/shards/moves", "Have targets live in another database from now on; they may have nothing unfinished", s.moveTargets)
	if err := s.describeRefusals(); err != nil {
		panic(err) // the document is a part of this program
	}
}

func (s *server) describe(mux *http.ServeMux, version string) huma.API {
	c := huma.DefaultConfig("notyet", version)
	c.Info.Description = "Scheduled Kafka messages: look at them, schedule, cancel, stop and fire them, and deal with dead letters."
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.Servers = []*huma.Server{{URL: "/", Description: "the service that has this document"}}
	c.DocsPath, c.SchemasPath = "", "" // its pages load scripts from other sites
	c.CreateHooks = nil                // responses match the types, without a $schema field
	c.Formats = jsonFormats()
	c.RejectUnknownQueryParameters = true
	c.Transformers = append(c.Transformers, s.shapeProblem)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token of http.tokens, or a JWT of the issuer in http.jwt. Without that file none is needed, on loopback addresses."},
	}
	c.Security = []map[string][]string{{"token": {}}, {}}
	return humago.New(mux, c)
}

// refuseOthers refuses, with problem documents, unknown paths and the methods missing on a path,
// also where another path's parameter would match.
func (s *server) refuseOthers(mux *http.ServeMux) {
	all := map[string][]string{} // methods by path
	for path, item := range s.huma.OpenAPI().Paths {
		for _, method := range methods {
			if operation(item, method) != nil {
				all[path] = append(all[path], method)
			}
		}
	}
	for path, has := range all {
		for _, method := range methods {
			if !slices.Contains(has, method) {
				mux.HandleFunc(method+" "+path, refuseMethod(all, path))
			}
		}
	}
	mux.HandleFunc(everyPath, func(w http.ResponseWriter, r *http.Request) {
		for _, method := range methods {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != everyPath {
				_, path, _ := strings.Cut(pattern, " ")
				refuseMethod(all, path)(w, r)
				return
			}
		}
		access.Refuse(w, http.StatusNotFound, "there is no such path: see /openapi.json")
	})
}

// refuseMethod names the methods of a path, and, for a possible change, the changing operations
// below.
func refuseMethod(all map[string][]string, path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		detail := "this path has no such method: send " + strings.Join(all[path], " or ")
		var below []string
		for _, other := range slices.Sorted(maps.Keys(all)) {
			if changes := slices.DeleteFunc(slices.Clone(all[other]), reads); strings.HasPrefix(other, path+"/") && len(changes) > 0 && !reads(r.Method) {
				below = append(below, strings.Join(changes, " or ")+" "+other)
			}
		}
		if len(below) > 0 {
			detail += "; there is also " + strings.Join(below, ", ")
		}
		w.Header().Set("Allow", strings.Join(all[path], ", "))
		access.Refuse(w, http.StatusMethodNotAllowed, detail)
	}
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

func operation(item *huma.PathItem, method string) *huma.Operation {
	return map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete}[method]
}

// everyPath is the pattern of paths without an operation.
const everyPath = "/api/"
