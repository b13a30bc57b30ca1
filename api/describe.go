package api

import (
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
)

// This file writes the causes of refusals into /openapi.json. The API does not go by them:
// schemas.Decode refuses the same with better reasons. So they stand in extensions, ignored by
// huma.

// Arrays in answers are never null, and a null in a request is refused.
func init() { huma.DefaultArrayNullable = false }

// headerSchema is the AsyncAPI document's schema of a header's value.
type headerSchema struct {
	Ref        string               `yaml:"$ref"`
	Pattern    string               `yaml:"pattern"`
	Enum       []string             `yaml:"enum"`
	MinLength  int                  `yaml:"minLength"`
	MaxLength  int                  `yaml:"maxLength"`
	AllOf      []headerSchema       `yaml:"allOf"`
	AnyOf      []headerSchema       `yaml:"anyOf"`
	Properties map[string]yaml.Node `yaml:"properties"`
}

// headerSchemas are the schemas of schemas/asyncapi.yaml by name.
type headerSchemas map[string]headerSchema

func readHeaderSchemas() (headerSchemas, error) {
	var doc struct {
		Components struct {
			Schemas headerSchemas `yaml:"schemas"`
		} `yaml:"components"`
	}
	err := yaml.Unmarshal([]byte(schemas.AsyncAPI()), &doc)
	return doc.Components.Schemas, err
}

// header returns the schema of a request's header; an empty one without such a header.
func (h headerSchemas) header(name string) (one headerSchema) {
	node := h["requestHeaders"].Properties[name]
	_ = node.Decode(&one) // the document is valid, which schemas tests
	return one
}

// resolve follows references to the final schema.
func (h headerSchemas) resolve(one headerSchema) headerSchema {
	if name, ok := strings.CutPrefix(one.Ref, "#/components/schemas/"); ok {
		return h.resolve(h[name])
	}
	if len(one.AllOf) == 1 {
		return h.resolve(one.AllOf[0])
	}
	return one
}

// pattern returns the expression for a value: the schema's, or any of the alternatives'.
func (h headerSchemas) pattern(one headerSchema) string {
	one = h.resolve(one)
	var any []string
	for _, other := range one.AnyOf {
		any = append(any, h.pattern(other))
	}
	if len(any) == 0 {
		return one.Pattern
	}
	return "(" + strings.Join(any, ")|(") + ")"
}

// narrow writes the limits of the header's value into the schema of a field or a parameter.
func (h headerSchemas) narrow(field *huma.Schema, one headerSchema) {
	one = h.resolve(one)
	if len(field.OneOf) == 2 { // a time: text, or a number
		extend(field.OneOf[0], "pattern", h.pattern(one))
		extend(field.OneOf[1], "minimum", schemas.FirstMillis)
		return
	}
	if field.Type != huma.TypeString || len(field.Enum) > 0 {
		return
	}
	if p := h.pattern(one); p != "" && field.Pattern == "" {
		extend(field, "pattern", p)
	}
	if len(one.Enum) > 0 {
		extend(field, "enum", one.Enum)
	}
	if one.MinLength > 0 && field.MinLength == nil {
		extend(field, "minLength", one.MinLength)
	}
	if one.MaxLength > 0 && field.MaxLength == nil {
		extend(field, "maxLength", one.MaxLength)
	}
}

// told describes the headers of refusals.
var told = map[string]string{"Allow": "the methods that the path has", "Retry-After": "seconds after which another try makes sense"}

// exactlyOne requires one of two fields. With oneOf, generators would make unions.
func exactlyOne(s *huma.Schema, this, that string) {
	has := func(name string) map[string]any { return map[string]any{"required": []string{name}} }
	extend(s, "if", has(this))
	extend(s, "then", map[string]any{"not": has(that)})
	extend(s, "else", has(that))
}

func extend(s *huma.Schema, keyword string, value any) {
	if s.Extensions == nil {
		s.Extensions = map[string]any{}
	}
	s.Extensions[keyword] = value
}

// bounds of numbers. nil: none.
var bounds = map[string][2]any{
	"version": {0, nil}, "max_attempts": {1, 10_000}, "after": {0, nil}, "up_to": {0, nil},
	"slots": {1, admin.MostSlots}, "rate": {0, maxRate}, "max_in_flight": {0, maxInFlight},
}

// goDuration is the form of ?wait= and ?step=.
const goDuration = `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`

// sharedBy maps fields and parameters other than headers to parts of the AsyncAPI document.
var sharedBy = map[string]string{"since": "instant", "until": "instant", "to": "instant", "from": "instant", "at": "instant", "task_id": "id", "died_again_since": "instant", "died_again_until": "instant"}

// describeRefusals narrows the fields of bodies and the parameters of all operations.
func (s *server) describeRefusals() error {
	h, err := readHeaderSchemas()
	if err != nil {
		return err
	}
	narrow := func(name string, field *huma.Schema, target string, local bool) {
		for i, keyword := range []string{"minimum", "maximum"} {
			if bound := bounds[name][i]; bound != nil {
				extend(field, keyword, bound)
			}
		}
		switch {
		case name == "wait", name == "step":
			extend(field, "pattern", goDuration)
		case name == "topic":
			h.narrow(field, h[target])
		case sharedBy[name] != "" && !local: // a body with a time zone has the header's local times
			h.narrow(field, h[sharedBy[name]])
		default:
			h.narrow(field, h.header(schemas.Prefix+strings.ReplaceAll(name, "_", "-")))
		}
	}
	for _, item := range s.huma.OpenAPI().Paths {
		for _, method := range methods {
			op := operation(item, method)
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				if p.In == "query" && len(p.Schema.OneOf) == 2 { // generators make nothing usable of alternatives in a query, where all is text
					p.Schema.OneOf, p.Schema.Type = nil, huma.TypeString
				}
				if p.In != "header" && !(p.Name == "id" && p.Schema.Type != huma.TypeString) && p.Name != "tag" {
					narrow(p.Name, p.Schema, "target", false)
				}
			}
			for status, header := range map[string]string{"405": "Allow", "503": "Retry-After"} {
				op.Responses[status].Headers = map[string]*huma.Param{header: {Description: told[header], Schema: &huma.Schema{Type: huma.TypeString}}}
			}
			if op.RequestBody == nil {
				continue
			}
			body := resolved(s.huma, op.RequestBody.Content["application/json"].Schema)
			target := "target"
			if at, delay := body.Properties["at"], body.Properties["delay"]; at != nil && delay != nil { // a callback is named by its url
				target = "topic"
				exactlyOne(body, "at", "delay")
			}
			if body.Properties["cron"] != nil {
				exactlyOne(body, "cron", "every")
			}
			for name, field := range body.Properties {
				if name != "tag" || slices.Contains([]string{"schedule-task", "set-timer"}, op.OperationID) {
					narrow(name, field, target, body.Properties["timezone"] != nil)
				}
			}
		}
	}
	return nil
}

// answered describes both responses: the event, or the acknowledged request.
func answered(h huma.API) option {
	registry := h.OpenAPI().Components.Schemas
	response := func(description string, answer reflect.Type) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(answer, true, "")}}}
	}
	event := response("The answer, as on the results topic", reflect.TypeFor[Event]())
	sent := response("Kafka has the request; the answer did not come in time, or was not waited for", reflect.TypeFor[Published]())
	return func(op *huma.Operation) { op.Responses = map[string]*huma.Response{"200": event, "202": sent} }
}
