package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// example is how a test examples an operation, with what it needs.
type example struct {
	query string
	body  string // "": the operation takes none
}

const (
	aNamed = `{"topic":"orders","id":"a"}`
	counts = `{"topic":"orders","dry_run":true}`
)

// examples has each operation of the API.
var examples = map[string]example{
	"list-tasks":          {},
	"get-task":            {},
	"find-task":           {query: "topic=orders&id=a"},
	"forecast":            {},
	"schedule-task":       {body: `{"topic":"orders","delay":"1h"}`},
	"cancel-task":         {body: aNamed},
	"stop-task":           {body: aNamed},
	"fire-task":           {body: aNamed},
	"cancel-task-by-path": {},
	"stop-task-by-path":   {},
	"fire-task-by-path":   {},
	"cancel-many":         {body: counts},
	"list-timers":         {},
	"get-timer":           {},
	"audit-timer":         {},
	"preview-timer":       {body: `{"cron":"*/5 * * * *"}`},
	"set-timer":           {body: `{"cron":"*/5 * * * *"}`},
	"delete-timer":        {},
	"enable-timer":        {},
	"disable-timer":       {},
	"run-timer":           {body: `{}`},
	"backfill-timer":      {body: `{"from":"2026-01-01T00:00:00Z"}`},
	"list-deadletters":    {},
	"count-deadletters":   {},
	"get-deadletter":      {},
	"replay-deadletters":  {body: counts},
	"replay-deadletter":   {body: `{"value":"x"}`},
	"purge-deadletters":   {body: counts},
	"list-operations":     {},
	"get-operation":       {},
	"stop-operation":      {},
	"list-targets":        {},
	"set-target":          {body: `{}`},
	"change-target":       {body: `{}`},
	"list-audit":          {},
	"note-request":        {body: `{"what":"cancel","topic":"orders"}`},
	"show-overview":       {},
	"show-cluster":        {},
	"show-slots":          {},
	"set-slots":           {body: `{"slots":4}`},
	"list-shards":         {},
	"move-targets":        {body: `{"shard":0,"pattern":"orders"}`},
}

// described is an operation as the document has it.
type described struct {
	example
	method, path string
	*huma.Operation
}

// address returns the path with names in the place of its parameters, and the query.
func (d *described) address(query ...string) string {
	path := strings.NewReplacer("{topic}", "orders", "{id}", "1").Replace(d.path)
	if d.query != "" {
		query = append(query, d.query)
	}
	return path + "?" + strings.Join(query, "&")
}

// described returns all operations, each with its row in examples.
func (w *world) described() (out []described) {
	w.t.Helper()
	s := &server{intakes: fixed()}
	s.mount(http.NewServeMux(), "test")
	doc := s.huma.OpenAPI()
	rows := maps.Clone(examples)
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range methods {
			op := operation(doc.Paths[path], method)
			if op == nil {
				continue
			}
			row, ok := rows[op.OperationID]
			require.True(w.t, ok, "write a row in examples for %s", op.OperationID)
			require.Equal(w.t, op.RequestBody != nil, row.body != "", op.OperationID)
			delete(rows, op.OperationID)
			out = append(out, described{row, method, path, op})
		}
	}
	require.Empty(w.t, rows, "examples has what the API has not")
	return out
}

// properties returns the schemas of a body's fields by name.
func (d *described) properties(w *world) map[string]*huma.Schema {
	w.t.Helper()
	if d.RequestBody == nil {
		return nil
	}
	s := &server{intakes: fixed()}
	s.mount(http.NewServeMux(), "test")
	return resolved(s.huma, d.RequestBody.Content["application/json"].Schema).Properties
}

// refused sends a request and expects a 422 that names where, and what is wrong.
func (w *world) refused(method, url, body, where, what string) {
	w.t.Helper()
	code, answer := w.do(method, url, body)
	require.Equal(w.t, 422, code, "%s %s %s: %s", method, url, body, answer)
	var p huma.ErrorModel
	require.NoError(w.t, json.Unmarshal([]byte(answer), &p))
	found := slices.ContainsFunc(p.Errors, func(e *huma.ErrorDetail) bool { return e.Location == where && strings.Contains(e.Message, what) })
	require.True(w.t, found, "%s %s %s: no %q at %s: %s", method, url, body, what, where, answer)
	require.NotEmpty(w.t, p.Detail)
}

// Each field of each body: null, twice, in another case, and not as UTF-8.
func TestEveryBodySaysOneThing(t *testing.T) {
	w := newWorld(t)
	for _, d := range w.described() {
		for name, schema := range d.properties(w) {
			send := func(body, where, what string) { t.Helper(); w.refused(d.method, d.address(), body, where, what) }
			at := "body." + name
			// note-request is for commands, which leave the topic to the intake.
			if schema.Type == huma.TypeString && d.OperationID != "note-request" && !slices.Contains([]string{"key", "value", "key_base64", "value_base64"}, name) {
				var body map[string]any
				require.NoError(t, json.Unmarshal([]byte(d.body), &body))
				body[name] = ""
				text, err := json.Marshal(body)
				require.NoError(t, err)
				send(string(text), at, "") // what selects nothing would select all
			}
			if name != "key" && name != "value" {
				send(fmt.Sprintf(`{%q:null}`, name), at, "is null")
			}
			send(fmt.Sprintf(`{%q:1,%q:1}`, name, name), at, "stands twice")
			send(fmt.Sprintf(`{%q:1,"other":{"a":[2]},%q:1}`, name, name), at, "stands twice")
			send(fmt.Sprintf(`{%q:1}`, strings.ToUpper(name)), "body."+strings.ToUpper(name), "unexpected property")
			for _, text := range []string{"M\xf6ller", `M\ud800`, `\udc00`} {
				send(fmt.Sprintf(`{%q:"%s"}`, name, text), at, "UTF-8")
			}
		}
	}
	for body, where := range map[string]string{
		`{"headers":[{"key":"a","value":"\xf6"}]}`:                           "body.headers[0].value",
		`{"headers":[{"key":"a"},{"key":"\xf6"}]}`:                           "body.headers[1].key",
		`{"headers":[{"key":"a","key":"b"}]}`:                                "body.headers[0].key",
		`{"topic":"orders","delay":"1h","headers":[{"key":null}]}`:           "body.headers[0].key",
		`{"topic":"orders","delay":"1h","headers":[{"key":"a","value":[]}]}`: "body.headers[0].value",
	} {
		w.refused("POST", "/api/v1/tasks", strings.ReplaceAll(body, `\xf6`, "\xf6"), where, "")
	}
	code, answer := w.do("POST", "/api/v1/tasks", `{"topic":"orders","delay":"1h","key":null,"value":null,"headers":[{"key":"a","value":null}]}`)
	require.Equal(t, 202, code, "Kafka's null: %s", answer)
	for _, body := range []string{`{"topic":"orders","delay":"1h"} {}`, `{"topic":"orders"`, "{\"topic\":\"\xf6\""} {
		code, answer = w.do("POST", "/api/v1/tasks", body)
		require.Equal(t, 400, code, "%q is no JSON: %s", body, answer)
	}
}

// A path that takes all in its query reads no body, and says so: a version there would count for
// nothing.
func TestNoBodyIsIgnored(t *testing.T) {
	w := newWorld(t)
	for _, d := range w.described() {
		if d.RequestBody != nil || d.method == http.MethodGet {
			continue
		}
		says, status := "in the query", 202
		if d.OperationID == "stop-operation" { // there is none
			says, status = "leave it out", 404
		}
		w.refused(d.method, d.address(), `{"version":3}`, "body", says)
		for _, nothing := range []string{"", "{}"} {
			code, answer := w.do(d.method, d.address(), nothing)
			require.Equal(t, status, code, "%s %s: %s", d.method, d.path, answer)
		}
	}
}

// A body with a time zone may have local times, and the document says so.
func TestTheDocumentHasLocalTimes(t *testing.T) {
	w := newWorld(t)
	times := 0
	for _, d := range w.described() {
		fields := d.properties(w)
		for _, name := range []string{"at", "from", "to", "until"} {
			if fields[name] == nil || len(fields[name].OneOf) != 2 {
				continue
			}
			times++
			form := regexp.MustCompile(fields[name].OneOf[0].Extensions["pattern"].(string))
			require.True(t, form.MatchString("2027-01-31T08:00:00Z"), "%s %s", d.OperationID, name)
			require.Equal(t, fields["timezone"] != nil, form.MatchString("2027-01-31T08:00"), "%s %s", d.OperationID, name)
		}
	}
	require.GreaterOrEqual(t, times, 5)
}

// Each parameter of each query and path: empty, twice, and not as UTF-8.
func TestEveryQuerySaysOneThing(t *testing.T) {
	w := newWorld(t)
	for _, d := range w.described() {
		d.query = "" // it would stand beside itself
		for _, p := range d.Parameters {
			where := p.In + "." + p.Name
			if p.In == "path" {
				if p.Name == "topic" || p.Schema.Type == "string" {
					w.refused(d.method, strings.ReplaceAll(strings.ReplaceAll(d.path, "{"+p.Name+"}", "M%f6"), "{id}", "a"), d.body, where, "is not UTF-8")
				}
				continue
			}
			if p.In != "query" {
				continue
			}
			for query, what := range map[string]string{"=": "is empty", "": "is empty", "=1&" + p.Name + "=1": "comes 2 times", "=%f6": "is not UTF-8"} {
				w.refused(d.method, d.address(p.Name+query), d.body, where, what)
			}
		}
		w.refused(d.method, d.address("x=%zz"), d.body, "query", "percent-encode")
		w.refused(d.method, d.address("a;b"), d.body, "query", "percent-encode")
	}
}

// Each time of each query and body: seconds instead of milliseconds, and what is no time.
func TestEveryTimeIsInMilliseconds(t *testing.T) {
	w := newWorld(t)
	isTime := func(name string, s *huma.Schema) bool { return sharedBy[name] == "instant" || len(s.OneOf) == 2 }
	times := 0
	for _, d := range w.described() {
		for _, p := range d.Parameters {
			if p.In != "query" || !isTime(p.Name, p.Schema) {
				continue
			}
			times++
			w.refused(d.method, d.address(p.Name+"=1795815277"), d.body, "query."+p.Name, "write Unix milliseconds: 1795815277000")
			w.refused(d.method, d.address(p.Name+"=soon"), d.body, "query."+p.Name, "RFC 3339")
			w.refused(d.method, d.address(p.Name+"=1969-12-31T00:00:00Z"), d.body, "query."+p.Name, "1970")
			for _, good := range []string{"1795815277000", "2026-11-28T00:00:00Z"} {
				code, answer := w.do(d.method, "/api/v1"+strings.TrimPrefix(d.address(p.Name+"="+good), "/api/v1"), d.body)
				require.NotContains(t, answer, "RFC 3339", "%d", code)
			}
		}
		for name, schema := range d.properties(w) {
			if !isTime(name, schema) {
				continue
			}
			times++
			var body map[string]any
			require.NoError(t, json.Unmarshal([]byte(d.body), &body))
			delete(body, "delay")
			for value, what := range map[any]string{1795815277: "write Unix milliseconds: 1795815277000", "1795815277": "write Unix milliseconds", "soon": "RFC 3339", 1.5: "RFC 3339", "": "is empty"} {
				body[name] = value
				text, err := json.Marshal(body)
				require.NoError(t, err)
				w.refused(d.method, d.address(), string(text), "body."+name, what)
			}
		}
	}
	require.Greater(t, times, 15)
}

// allowedBy returns values that a schema allows: each word, and what lies at its bounds.
func allowedBy(s *huma.Schema, name string) (values []any) {
	said := func(keyword string) any { return s.Extensions[keyword] }
	if sharedBy[name] == "instant" {
		at := time.Now().Add(-time.Minute)
		if name == "to" || name == "until" {
			at = time.Now().Add(time.Hour)
		}
		return []any{at.UnixMilli(), at.Format(time.RFC3339)}
	}
	words := s.Enum
	if list, ok := said("enum").([]string); ok {
		for _, word := range list {
			words = append(words, word)
		}
	}
	if len(words) > 0 {
		return words
	}
	for _, bound := range []any{said("minimum"), said("maximum")} {
		if bound != nil {
			values = append(values, bound)
		}
	}
	for _, bound := range []*float64{s.Minimum, s.Maximum} {
		if bound != nil {
			values = append(values, *bound)
		}
	}
	if v, ok := allowedOf[name]; ok {
		return append(values, v)
	}
	if len(values) == 0 && s.Type == huma.TypeBoolean {
		return []any{true, false}
	}
	return values
}

// allowedOf has what no schema can say whole: names that are there, and how long a wait may be. A field or a parameter without a row is one
// that its schema says whole.
var allowedOf = map[string]any{
	"topic": "orders", "id": "a", "url": "https://shop.example/hook", "delay": "PT36H", "tag": "vip", "ack_timeout": "1m30s", "max_lateness": "PT1H", "max_wait": "2h",
	"backoff": "exponential:1s:10m", "every": "90s", "cron": "*/5 9-17 * * MON-FRI", "timezone": "Europe/Berlin", "jitter": "10s", "key": "k", "key_base64": "AP8=", "value": nil,
	"value_base64": "AP8=", "headers": []any{map[string]any{"key": "a", "value": nil}}, "id_prefix": "a", "reason": "no", "task_id": "a", "ids": []any{1}, "intake": "in.a",
	"wait": "1ms", "step": "1h", "cursor": nil, "after": 1, "up_to": 1, "id-prefix": "a", "who": "me", "what": "cancel", "slots": 2, "rate": 0.001, "task": "a", "limit": nil,
	"all": nil, "kind": nil, "died_again_since": "2026-09-21T14:13:20Z", "died_again_until": "2026-09-21T14:13:20Z", "like": "orders", "shard": 0, "former": 0, "pattern": "orders", "part": "1/2",
}

// beside is what a field needs, or may not have, beside it: by operation and field; "" in a value takes a field away.
var beside = map[string]map[string]any{
	"at": {"delay": ""}, "url": {"topic": ""}, "method": {"topic": "", "url": "https://shop.example/hook"}, "merge": {"if_exists": "merge"}, "max_wait": {"if_exists": "merge"},
	"until": {"paused": true}, "every": {"cron": ""}, "overlap": {"ack": "report"}, "timezone": {"at": time.Now().Add(30 * time.Hour).Format("2006-01-02T15:04"), "delay": ""},
}

// What the document allows is not refused for its form: each word and each bound of each field and each parameter.
func TestWhatTheDocumentAllowsIsNotRefused(t *testing.T) {
	w := newWorld(t)
	w.remember()
	tried := 0
	try := func(d *described, url, body string) {
		t.Helper()
		tried++
		code, answer := w.do(d.method, url, body)
		assert.NotContains(t, []int{400, 422}, code, "%s %s %s: %s", d.method, url, body, answer)
	}
	for _, d := range w.described() {
		try(&d, d.address(), d.body)
		for _, p := range d.Parameters {
			values := allowedBy(p.Schema, p.Name)
			_, known := allowedOf[p.Name]
			require.True(t, known || len(values) > 0 || p.In != "query", "write a row in allowedOf for the parameter %s of %s", p.Name, d.OperationID)
			for _, v := range values {
				if p.In == "query" && v != nil {
					row := d
					row.query = ""
					rest := []string{p.Name + "=" + url.QueryEscape(strings.Trim(fmt.Sprint(v), "[]"))}
					for _, other := range strings.Split(d.query, "&") {
						if other != "" && !strings.HasPrefix(other, p.Name+"=") {
							rest = append(rest, other)
						}
					}
					try(&d, row.address(rest...), d.body)
				}
			}
		}
		properties := d.properties(w)
		for name, schema := range properties {
			values := allowedBy(schema, name)
			_, known := allowedOf[name]
			require.True(t, known || len(values) > 0, "write a row in allowedOf for the field %s of %s", name, d.OperationID)
			for _, v := range values {
				if v == nil {
					continue
				}
				body := map[string]any{}
				require.NoError(t, json.Unmarshal([]byte(d.body), &body))
				for other, set := range beside[name] {
					if _, has := properties[other]; !has {
						continue
					}
					if body[other] = set; set == "" {
						delete(body, other)
					}
				}
				body[name] = v
				text, err := json.Marshal(body)
				require.NoError(t, err)
				address := d.address()
				if name == "url" || name == "method" { // of a timer, whose topic is the origin
					address = strings.Replace(address, "timers/orders", "timers/https:%2F%2Fshop.example", 1)
				}
				try(&d, address, string(text))
			}
		}
	}
	require.Greater(t, tried, 200)
}
