package schemas

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// apiDocument is the AsyncAPI document as maps, slices and scalars of JSON.
type apiDocument struct{ root map[string]any }

func document(t *testing.T) apiDocument {
	t.Helper()
	fromYAML, err := yaml.Parser().Unmarshal([]byte(AsyncAPI()))
	require.NoError(t, err)
	asJSON, err := json.Marshal(fromYAML)
	require.NoError(t, err)
	var d apiDocument
	require.NoError(t, json.Unmarshal(asJSON, &d.root))
	return d
}

// noLoader refuses to read any schema from outside the document.
type noLoader struct{ t *testing.T }

func (l noLoader) Load(url string) (any, error) {
	l.t.Fatalf("the document refers to %s", url)
	return nil, nil
}

func (d apiDocument) compile(t *testing.T, schema string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7) // that of AsyncAPI 3.0
	c.UseLoader(noLoader{t})
	require.NoError(t, c.AddResource("mem:///asyncapi", any(d.root)))
	s, err := c.Compile("mem:///asyncapi#/components/schemas/" + schema)
	require.NoError(t, err)
	return s
}

// at follows a path of keys.
func (d apiDocument) at(t *testing.T, path ...string) map[string]any {
	t.Helper()
	node := d.root
	for _, p := range path {
		next, ok := node[p].(map[string]any)
		require.True(t, ok, "no %s in %v", p, path)
		node = next
	}
	return node
}

func headerObject(r *kgo.Record) map[string]any {
	o := map[string]any{}
	for _, h := range r.Headers {
		o[h.Key] = string(h.Value)
	}
	return o
}

// TestDocumentNamesEveryHeader compares the constants in the source with the document, both ways.
func TestDocumentNamesEveryHeader(t *testing.T) {
	constants := map[string]bool{}
	file, err := parser.ParseFile(token.NewFileSet(), "headernames.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Header") {
			name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			constants[name] = true
		}
		return true
	})
	require.Len(t, constants, len(headerNames), "the table of bits names every constant")

	d := document(t)
	described := map[string]bool{}
	for _, s := range []string{"requestHeaders", "deliveryHeaders", "reportHeaders", "eventHeaders"} {
		for name := range d.at(t, "components", "schemas", s, "properties") {
			described[name] = true
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(constants)), slices.Sorted(maps.Keys(described)))

	inRequest := d.at(t, "components", "schemas", "requestHeaders", "properties")
	listed := words(t, d.at(t, "components", "schemas", "requestHeaders", "propertyNames", "then")["enum"])
	require.ElementsMatch(t, slices.Collect(maps.Keys(inRequest)), listed)
	for i, name := range headerNames {
		bit := header(1) << i
		require.Equal(t, bit, lookup(name), name)
		require.Equal(t, name, bit.name())
		require.Equal(t, bit&hNotRequest == 0, inRequest[name] != nil, name)
	}
}

func words(t *testing.T, list any) []string {
	t.Helper()
	var out []string
	for _, w := range list.([]any) {
		out = append(out, w.(string))
	}
	return out
}

func TestDocumentEnumsEqualTheCode(t *testing.T) {
	d := document(t)
	var states []string
	for _, s := range States() {
		states = append(states, string(s))
	}
	require.Equal(t, states, words(t, d.at(t, "components", "schemas", "state")["enum"]))
	require.Equal(t, Kinds(), words(t, d.at(t, "components", "schemas", "kind")["enum"]))

	for name, names := range map[string][]string{
		HeaderOp: opNames, HeaderIfExists: ifExistsNames, HeaderMerge: mergeNames, HeaderPriority: priorityNames,
		HeaderAck: ackNames, HeaderEvents: eventsNames, HeaderMisfire: misfireNames, HeaderOverlap: overlapNames, HeaderMethod: methods,
	} {
		property := d.at(t, "components", "schemas", "requestHeaders", "properties", name)
		require.Equal(t, names, words(t, property["enum"]), name)
	}
	status := d.at(t, "components", "schemas", "reportHeaders", "properties", HeaderStatus)
	require.Equal(t, statusNames, words(t, status["enum"]))
}

// TestDocumentDefaultsEqualTheCode sets every default that the document states: nothing may change
// by it.
func TestDocumentDefaultsEqualTheCode(t *testing.T) {
	stated := 0
	for name, p := range document(t).at(t, "components", "schemas", "requestHeaders", "properties") {
		value, ok := p.(map[string]any)["default"].(string)
		if !ok {
			continue
		}
		stated++
		var req Request
		req.Settings = DefaultSettings()
		d := decoder{req: req}
		d.req.Timer.Timezone = "UTC"
		want := d.req
		require.Nil(t, d.header(name, []byte(value)), name)
		require.Equal(t, want, d.req, name)
	}
	require.Equal(t, 12, stated)
}

func TestDocumentAddresses(t *testing.T) {
	d := document(t)
	for channel, topic := range map[string]string{"intake": TopicIntake, "reports": TopicReports, "results": TopicResults} {
		require.Equal(t, topic, d.at(t, "channels", channel)["address"])
	}
}

// TestDocumentShape checks what AsyncAPI 3.0 requires of the parts used here, and that every
// reference leads somewhere.
func TestDocumentShape(t *testing.T) {
	d := document(t)
	require.Equal(t, "3.0.0", d.root["asyncapi"])
	require.NotEmpty(t, d.at(t, "info")["title"])
	require.NotEmpty(t, d.at(t, "info")["version"])
	for name, op := range d.at(t, "operations") {
		o := op.(map[string]any)
		require.Contains(t, []any{"send", "receive"}, o["action"], name)
		channel := o["channel"].(map[string]any)["$ref"].(string)
		for _, m := range o["messages"].([]any) {
			require.Contains(t, m.(map[string]any)["$ref"], channel+"/messages/", name)
		}
	}
	for name := range d.at(t, "components", "schemas") {
		d.compile(t, name)
	}
	require.Positive(t, d.followRefs(t, d.root))
}

func (d apiDocument) followRefs(t *testing.T, node any) (count int) {
	t.Helper()
	switch n := node.(type) {
	case map[string]any:
		if ref, ok := n["$ref"].(string); ok {
			count++
			require.Len(t, n, 1, "draft 07 ignores keywords beside $ref %s: write allOf", ref)
			path, local := strings.CutPrefix(ref, "#/")
			require.True(t, local, ref)
			d.at(t, strings.Split(path, "/")...)
		}
		for _, v := range n {
			count += d.followRefs(t, v)
		}
	case []any:
		for _, v := range n {
			count += d.followRefs(t, v)
		}
	}
	return count
}
