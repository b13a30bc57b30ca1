package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// This file refuses ambiguous requests. The schemas see only things said once, in UTF-8 and with a
// value.

// A field in another case is an unknown one.
func init() { huma.ValidateStrictCasing = true }

// maxValues limits how many values a body has. A value of two bytes takes a hundred once parsed,
// and as many again in a problem document about a mistake. The largest useful body has 128 headers,
// or 1000 ids.
const maxValues = 10_000

// jsonFormats are the formats of bodies: strict JSON with at most maxValues values.
func jsonFormats() map[string]huma.Format {
	strict := huma.DefaultJSONFormat
	strict.Unmarshal = func(body []byte, v any) error {
		if parsed, first := v.(*any); first { // the schema sees the values before the handler's type does
			wrong, err := findMistake(body)
			if *parsed = wrong; wrong != nil || err != nil {
				return err
			}
		}
		return located(json.Unmarshal(body, v))
	}
	return map[string]huma.Format{"application/json": strict, "json": strict}
}

// mistake is a fault of a body under any schema. It stands in place of the parsed body and fits no
// schema: shapeProblem tells the mistake.
type mistake struct{ location, message string }

// findMistake returns an untyped nil for a body without one. An error: no JSON, or too much.
func findMistake(body []byte) (any, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	for values := 0; ; {
		token, err := d.ReadToken()
		at := d.StackPointer()
		if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			at = syntax.JSONPointer // of the name itself, where a name is wrong
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case errors.Is(err, jsontext.ErrDuplicateName):
			return &mistake{pointed(at), "stands twice: send it once"}, nil
		case err != nil && jsontext.Value(body).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)):
			return &mistake{pointed(at), notUTF8}, nil
		case err != nil:
			return nil, errors.New(strings.TrimPrefix(err.Error(), "jsontext: ") + ": send JSON")
		}
		kind, length := d.StackIndex(d.StackDepth())
		name := kind == '{' && length%2 == 1
		if end := token.Kind() == '}' || token.Kind() == ']'; !end && !name {
			values++
		}
		field := at.LastToken()
		switch {
		case values > maxValues:
			return nil, fmt.Errorf("more than %d values: send fewer in one request", maxValues)
		case token.Kind() == 'n' && kind == '{' && field != "key" && field != "value":
			return &mistake{pointed(at), "is null: write a value, or leave it out"}, nil
		}
	}
}

const notUTF8 = "is not UTF-8, or has half of a surrogate pair: send text as UTF-8, and other bytes of a key or a value in base64"

// pointed returns a place in a body, in the form of problem documents.
func pointed(p jsontext.Pointer) string {
	at := "body"
	for name := range p.Tokens() {
		if _, err := strconv.Atoi(name); err == nil {
			at += "[" + name + "]"
		} else {
			at += "." + name
		}
	}
	return at
}

// located returns an error that begins with the place of the value: "body.version …".
func located(err error) error {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, strconv.ErrRange), errors.Is(err, strconv.ErrSyntax):
		return fmt.Errorf("%s is no whole number in digits that fits into 64 bits: write one", pointed(semantic.JSONPointer))
	case semantic.Err != nil:
		return fmt.Errorf("%s %w", pointed(semantic.JSONPointer), semantic.Err)
	}
	return fmt.Errorf("%s is of another type: see /openapi.json", pointed(semantic.JSONPointer))
}

// Encode returns the JSON of a request. Text beyond UTF-8 is a *MistakeError, and never replaced.
func Encode(request any) ([]byte, error) {
	data, err := json.Marshal(request, jsonv1.OmitEmptyWithLegacySemantics(true))
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return nil, &MistakeError{fmt.Errorf("%s is not UTF-8", strings.TrimPrefix(pointed(syntax.JSONPointer), "body."))}
	}
	return data, err
}

// strictParameters refuses a query and a path with an ambiguous parameter.
func (s *server) strictParameters(ctx huma.Context, next func(huma.Context)) {
	var wrong []error
	refuse := func(location, problem string) {
		wrong = append(wrong, &huma.ErrorDetail{Location: location, Message: problem})
	}
	at := ctx.URL()
	query, err := url.ParseQuery(at.RawQuery)
	if err != nil {
		refuse("query", "cannot be read ("+err.Error()+"): percent-encode what stands in it")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch values := query[name]; {
		case !utf8.ValidString(name):
			refuse("query", "has a name that is not UTF-8: percent-encode UTF-8")
		case len(values) > 1:
			refuse("query."+name, "comes "+strconv.Itoa(len(values))+" times: send it once")
		case values[0] == "":
			refuse("query."+name, "is empty: write a value, or leave it out")
		case !utf8.ValidString(values[0]):
			refuse("query."+name, "is not UTF-8: percent-encode UTF-8")
		}
	}
	for _, p := range ctx.Operation().Parameters {
		if p.In == "path" && !utf8.ValidString(ctx.Param(p.Name)) {
			refuse("path."+p.Name, "is not UTF-8: percent-encode UTF-8")
		}
	}
	if len(wrong) > 0 {
		_ = huma.WriteErr(s.huma, ctx, http.StatusUnprocessableEntity, humaDetail, wrong...)
		return
	}
	next(ctx)
}
