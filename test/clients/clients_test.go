package clients

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/program"
)

// The tools are of these versions.
const (
	oapiCodegen  = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
	pythonClient = "openapi-python-client==0.29.1"
	asyncParser  = "@asyncapi/parser@3.6.6"
)

func TestMain(m *testing.M) { os.Exit(program.Run(m)) }

// tools returns the folder in which tools stay, or skips the test where a command is missing. In CI
// nothing may be missing.
func tools(t *testing.T, commands ...string) string {
	t.Helper()
	if os.Getenv("NOTYET_LONG") == "" {
		t.Skip("NOTYET_LONG=1 runs it: it fetches tools")
	}
	for _, name := range commands {
		if _, err := exec.LookPath(name); err != nil {
			require.NotEqual(t, "true", os.Getenv("CI"), err)
			t.Skipf("%s is not installed", name)
		}
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "notyet", "clients")
	require.NoError(t, os.MkdirAll(dir, 0o750))
	return dir
}

// run runs a command, and returns what it prints on standard output.
func run(t *testing.T, dir, stdin string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, errs strings.Builder
	c.Dir, c.Stdin, c.Stdout, c.Stderr = dir, strings.NewReader(stdin), &out, &errs
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	require.NoError(t, c.Run(), "%v\n%s%s", command, &out, &errs)
	return out.String()
}

// dev starts a service, and writes its document into a folder.
func dev(t *testing.T, dir string) (url string) {
	t.Helper()
	program.In(t, dir)
	service, problem := program.Dev(t, dir, program.Environ(), program.OnFreePorts...)
	require.Empty(t, problem)
	url = "http://" + service.HTTP
	resp, err := http.Get(url + "/openapi.json") //nolint:noctx // a test's
	require.NoError(t, err)
	defer resp.Body.Close()
	doc, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.json"), doc, 0o600))
	return url
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", from))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o600))
}

// A client that oapi-codegen makes compiles, and schedules, finds, lists and cancels.
func TestGoClient(t *testing.T) {
	tools(t, "go")
	dir := t.TempDir()
	url := dev(t, dir)
	run(t, dir, "", "go", "mod", "init", "client")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "notyet"), 0o750))
	run(t, dir, "", "go", "run", oapiCodegen, "-generate", "types,client", "-package", "notyet", "-o", "notyet/client.go", "openapi.json")
	copyFile(t, "program/main.go", filepath.Join(dir, "main.go"))
	run(t, dir, "", "go", "mod", "tidy")
	require.Equal(t, "cancelled\n", run(t, dir, "", "go", "run", ".", url))
}

// A client that openapi-python-client makes does the same.
func TestPythonClient(t *testing.T) {
	cache := tools(t, "python3")
	python := filepath.Join(cache, pythonClient, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		made := filepath.Join(cache, pythonClient)
		run(t, cache, "", "python3", "-m", "venv", made)
		run(t, cache, "", python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pythonClient)
	}
	t.Setenv("PATH", filepath.Dir(python)+string(os.PathListSeparator)+os.Getenv("PATH")) // the generator formats with ruff
	dir := t.TempDir()
	url := dev(t, dir)
	run(t, dir, "", python, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none", "--output-path", "client", "--fail-on-warning")
	copyFile(t, "client.py", filepath.Join(dir, "main.py"))
	require.Equal(t, "cancelled\n", run(t, dir, "", python, "main.py", url))
}

// What the golden files have is valid or not for AsyncAPI's own parser, too.
func TestAsyncAPIParser(t *testing.T) {
	cache := filepath.Join(tools(t, "node", "npm"), strings.ReplaceAll(asyncParser, "/", "-"))
	if _, err := os.Stat(filepath.Join(cache, "node_modules", "@asyncapi", "parser")); err != nil {
		require.NoError(t, os.MkdirAll(cache, 0o750))
		run(t, cache, "", "npm", "install", "--prefix", cache, "--no-audit", "--no-fund", "--silent", asyncParser)
	}
	var golden []struct {
		Name   string
		Target string `json:"target"`
		Record struct {
			Headers [][2]string `json:"headers"`
		} `json:"record"`
		Request  any  `json:"request"`
		InSchema bool `json:"in_schema"`
	}
	text, err := os.ReadFile("../../schemas/testdata/requests.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &golden))
	type request struct {
		Channel string            `json:"channel"`
		Headers map[string]string `json:"headers"`
	}
	requests := []request{}
	for _, c := range golden {
		r := request{"intake", map[string]string{}}
		if c.Target != "" {
			r.Channel = "intakeOfTarget"
		}
		for _, h := range c.Record.Headers {
			r.Headers[h[0]] = h[1]
		}
		requests = append(requests, r)
	}
	asked, err := json.Marshal(requests)
	require.NoError(t, err)
	script, err := filepath.Abs("testdata/asyncapi.cjs")
	require.NoError(t, err)
	document, err := filepath.Abs("../../schemas/asyncapi.yaml")
	require.NoError(t, err)
	t.Setenv("NODE_PATH", filepath.Join(cache, "node_modules"))
	var valid []bool
	require.NoError(t, json.Unmarshal([]byte(run(t, cache, string(asked), "node", script, document)), &valid))
	require.Len(t, valid, len(golden))
	for i, c := range golden {
		want := c.Request != nil || !c.InSchema
		require.Equal(t, want, valid[i], c.Name)
	}
}
