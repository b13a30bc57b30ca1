package api

import (
	"fmt"

	"github.com/danielgtaylor/huma/v2"
)

// A field in another case is an unknown one: of "topic" and "Topic" in one body, the library would take the last.
func init() { huma.ValidateStrictCasing = true }

// maxValues limits how many values a body has. A value of two bytes takes a hundred once it is
// parsed, and as many again in a problem document if it is wrong. The largest useful body has 128
// headers, or 1000 ids.
const maxValues = 10_000

// jsonFormats are the formats of bodies: JSON with at most maxValues values.
func jsonFormats() map[string]huma.Format {
	bounded := huma.DefaultJSONFormat
	bounded.Unmarshal = func(data []byte, v any) error {
		if countValues(data) > maxValues {
			return fmt.Errorf("more than %d values: send fewer in one request", maxValues)
		}
		return huma.DefaultJSONFormat.Unmarshal(data, v)
	}
	return map[string]huma.Format{"application/json": bounded, "json": bounded}
}

// countValues counts what begins a value in an array or an object, or is one of these. It does not
// check that the text is JSON.
func countValues(text []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++ // the next byte does not end the string
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}
