package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/store/shards"
)

// ErrUnknownOutcome means: Kafka has not answered in time. The request may still arrive.
var ErrUnknownOutcome = errors.New("kafka has not acknowledged in time, the request may still arrive: send it again with the same id, which is harmless")

// ErrBusy means: waiting requests fill the memory set aside for them. The request was not sent.
var ErrBusy = errors.New("kafka does not take requests at the moment, this one was not sent: try again")

// ErrAudit means: the audit log could not be written. The request was not sent.
var ErrAudit = errors.New("the audit log cannot be written, so this request was not sent: try again")

// problem turns any other error into a problem+json document.
func problem(err error) error {
	var ready huma.StatusError
	var rejection *schemas.Rejection
	var fieldError *deadletter.FieldError
	switch {
	case err == nil, errors.As(err, &ready):
		return err
	case errors.As(err, &rejection):
		return bad(field(rejection.Header), rejection.Value, headerNames.ReplaceAllStringFunc(rejection.Problem+": "+rejection.Fix, field))
	case errors.As(err, &fieldError):
		return bad(fieldError.Field, fieldError.Value, headerNames.ReplaceAllStringFunc(fieldError.Problem, field))
	case errors.Is(err, look.ErrNotFound), errors.Is(err, look.ErrNoTimer), errors.Is(err, deadletter.ErrNotFound), errors.Is(err, admin.ErrNoOperation):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, admin.ErrOperationEnded):
		return huma.Error409Conflict(err.Error())
	case errors.Is(err, admin.ErrOperations):
		return huma.ErrorWithHeaders(huma.Error429TooManyRequests(err.Error()), http.Header{"Retry-After": {"5"}})
	case isOf[*AwayError](err):
		return huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(err.Error()), http.Header{"Retry-After": {"1"}})
	case errors.Is(err, intake.ErrUnderWay):
		return huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(err.Error()), http.Header{"Retry-After": {"1"}})
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		return huma.Error504GatewayTimeout(err.Error())
	case errors.Is(err, ErrBusy), errors.Is(err, share.ErrTurn), errors.Is(err, ErrAudit), errors.Is(err, ErrUndecided), errors.Is(err, shards.ErrMoving), errors.Is(err, shards.ErrWithdrawn):
		return huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(err.Error()), http.Header{"Retry-After": {"1"}})
	}
	return huma.NewError(http.StatusServiceUnavailable, err.Error())
}

func isOf[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

func wrong(field, value, problem string) error {
	return &deadletter.FieldError{Field: field, Value: value, Problem: problem}
}

// headerNames finds the names of headers, for the names in JSON.
var headerNames = regexp.MustCompile(schemas.Prefix + "[a-z]+(-[a-z]+)*")

// field returns the JSON name of a header.
func field(header string) string {
	if part, ok := strings.CutPrefix(header, "record "); ok {
		return part // key, headers, value, timestamp
	}
	return strings.ReplaceAll(strings.TrimPrefix(header, schemas.Prefix), "-", "_")
}

// bad returns a 422 about one field of the body.
func bad(field, value, message string) error {
	detail := &huma.ErrorDetail{Location: "body." + field, Message: message}
	if value != "" {
		detail.Value = value
	}
	return huma.Error422UnprocessableEntity(field+" "+message, detail)
}

// longestEcho limits a problem document's echo: enough to recognise a field, never a body.
const longestEcho = 100

// maxMistakes limits how many mistakes a problem document names.
const maxMistakes = 20

// shapeProblem makes a problem document name the fields and the fixes in its detail too, and keeps
// the document short: repeated values are cut, or dropped unless single, and late mistakes left
// out.
func (s *server) shapeProblem(ctx huma.Context, _ string, v any) (any, error) {
	p, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	for _, e := range p.Errors {
		if wrong, ok := e.Value.(*mistake); ok { // whatever else no schema likes about it
			p.Errors = []*huma.ErrorDetail{{Location: wrong.location, Message: wrong.message}}
			break
		}
	}
	for _, e := range p.Errors {
		if at, said, ok := strings.Cut(e.Message, " "); ok && strings.HasPrefix(at, "body.") { // see located
			e.Location, e.Message = at, said
		}
		e.Location = locate(s.huma, ctx.Operation(), e.Location)
		e.Message = withFix(e.Message, documented(s.huma, ctx.Operation(), e.Location))
	}
	if p.Detail == "request body is required" {
		p.Detail += ": send JSON, see /openapi.json"
	}
	if p.Detail == humaDetail && len(p.Errors) > 0 {
		first := p.Errors[0]
		_, name, found := strings.Cut(first.Location, ".")
		if !found {
			name = first.Location
		}
		p.Detail = name + " " + first.Message
	}
	p.Detail = shorten(p.Detail, 2000)
	if more := len(p.Errors) - maxMistakes; more > 0 {
		p.Errors, p.Detail = p.Errors[:maxMistakes], fmt.Sprintf("%s, and %d more mistakes", p.Detail, more)
	}
	for _, e := range p.Errors {
		e.Message, e.Location = shorten(e.Message, 1000), shorten(e.Location, 300)
		switch value := e.Value.(type) {
		case string:
			e.Value = shorten(value, longestEcho)
		case bool, int, int64, float64, nil:
		case json.Number:
			e.Value = shorten(value.String(), longestEcho)
		default:
			e.Value = nil
		}
	}
	return p, nil
}

// humaDetail is the detail of huma's own refusals, without a field.
const humaDetail = "validation failed"

// locate returns the place of a field. Handlers know only the name, and always say: in the body.
func locate(h huma.API, op *huma.Operation, location string) string {
	name, ok := strings.CutPrefix(location, "body.")
	if !ok || op == nil {
		return location
	}
	for _, p := range op.Parameters {
		if p.Name == name && (p.In == "path" || p.In == "query" && !hasField(h, op, name)) {
			return p.In + "." + name
		}
	}
	return location
}

// hasField reports whether the body of an operation has a field.
func hasField(h huma.API, op *huma.Operation, name string) bool {
	return op.RequestBody != nil && resolved(h, op.RequestBody.Content["application/json"].Schema).Properties[name] != nil
}

// withFix adds the fix to huma's messages without one. doc is the document's text about the field.
func withFix(message, doc string) string {
	switch {
	case message == "unexpected property", message == "unknown query parameter":
		return message + ": leave it out; /openapi.json has all names"
	case message == "invalid integer", message == "expected integer":
		message += ": write a whole number"
	case message == "invalid boolean":
		return message + ": write true or false"
	case message == "expected value to match exactly one schema but matched none": // only times have two
		return "is no time: write RFC 3339 in quotes, or Unix ms"
	case strings.HasPrefix(message, huma.ErrUnknownContentType.Error()):
		return message + ": send JSON, with the header Content-Type: application/json"
	case message == "expected string":
		message += " in quotes"
	case !strings.HasPrefix(message, "expected "):
		return strings.TrimPrefix(message, "invalid value: ") // our own, of a type that reads its text
	}
	if doc == "" {
		return message
	}
	return message + ": " + doc
}

// documented returns the document's text about a field or a parameter; "": none.
func documented(h huma.API, op *huma.Operation, location string) string {
	if op == nil {
		return ""
	}
	for _, p := range op.Parameters {
		if p.In+"."+p.Name == location {
			return p.Description
		}
	}
	if op.RequestBody == nil {
		return ""
	}
	at := resolved(h, op.RequestBody.Content["application/json"].Schema)
	for _, name := range strings.Split(location, ".")[1:] {
		name, _, item := strings.Cut(name, "[")
		if at = resolved(h, at.Properties[name]); at != nil && item {
			at = resolved(h, at.Items)
		}
		if at == nil {
			return ""
		}
	}
	return at.Description
}

// resolved follows references to the final schema.
func resolved(h huma.API, schema *huma.Schema) *huma.Schema {
	for schema != nil && schema.Ref != "" {
		schema = h.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
	}
	return schema
}

// shorten cuts text to at most n bytes, and shows where.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return schemas.CutUTF8(text, n) + "…"
}
