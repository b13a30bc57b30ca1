package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTreeKeepsToTheArrowTable(t *testing.T) {
	sources := readTree(t, filepath.Join("..", ".."))

	var ours, foreign int
	for _, s := range sources {
		for _, imported := range s.imports {
			if strings.HasPrefix(imported, module) {
				ours++
			} else {
				foreign++
			}
		}
	}
	require.NotZero(t, ours, "no import of ours was read: the test would judge nothing")
	require.NotZero(t, foreign)

	for _, violation := range violations(sources) {
		t.Error(violation)
	}
}

// readTree parses the imports of every Go file of this module. It reads the files itself, rather than asking go list, so
// that it sees files under every build tag, and so that the test cache, which knows only what the test itself opens,
// drops its verdict when a file changes.
func readTree(t *testing.T, root string) []source {
	t.Helper()
	var sources []source
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skip(root, path, entry.Name())
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		sources = append(sources, readSource(t, root, path))
		return nil
	})
	require.NoError(t, err)
	return sources
}

// skip leaves out what the go command leaves out: hidden and underscored folders, test data and other modules.
func skip(root, path, name string) error {
	if path == root {
		return nil
	}
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func readSource(t *testing.T, root, path string) source {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	require.NoError(t, err)
	relative, err := filepath.Rel(root, path)
	require.NoError(t, err)

	s := source{path: filepath.ToSlash(relative)}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		s.imports = append(s.imports, imported)
	}
	return s
}

func TestViolationsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		file, imports string
		want          string // empty: allowed
	}{
		"a stage may import schemas":              {"scanner/run.go", module + "schemas", ""},
		"a stage may import the store":            {"dispatcher/claim.go", module + "store", ""},
		"a part may import its own packages":      {"store/conformance.go", module + "store/migrations", ""},
		"cmd may import every stage":              {"cmd/notyet/main.go", module + "dispatcher", ""},
		"the standard library is nobody's matter": {"schemas/intake.go", "net/http", ""},
		"a name that only begins like a part's":   {"scanner/run.go", "github.com/notyet/notyet-tools/x", ""},
		"a stage's test may use the embedded":     {"scanner/run_test.go", module + "internal/embedded", ""},
		"a test may use a fake":                   {"scanner/run_test.go", "github.com/twmb/franz-go/pkg/kfake", ""},
		"the home may use its library":            {"store/db.go", "gorm.io/gorm", ""},
		"a double may use its library":            {"test/zkfake/server_test.go", "github.com/go-zookeeper/zk", ""},
		"a test may use a double":                 {"scanner/run_test.go", module + "test/tracingtest", ""},
		"a simulator may use a double":            {"test/sim/world.go", module + "test/zkfake", ""},
		"the program that measures may measure":   {"test/bench/notyet-bench/main.go", module + "test/bench", ""},

		"a question imports an index":      {"store/look/list.go", module + "internal/index", "store/look may import only schemas, task, store/internal, store, internal/wrap of ours"},
		"a stage opens the store's handle": {"scanner/run.go", module + "store/internal/handle", "scanner may import only"},
		"a stage imports a stage": {"scanner/run.go", module + "dispatcher",
			"package scanner imports github.com/notyet/notyet/dispatcher (scanner/run.go): scanner may import only schemas, task, store, store/intake, store/admin, store/look, store/outbox, store/shards, internal/shardmap, events, " +
				"internal/defaults, internal/index, internal/kafka, internal/loop, internal/tracing, internal/faultpoint of ours"},
		"a stage's test imports a stage":       {"scanner/run_test.go", module + "dispatcher", "scanner may import only"},
		"a stage imports a package of cmd":     {"scanner/run_test.go", module + "cmd/notyet", "scanner may import only"},
		"a producer imports the store":         {"producer/send.go", module + "store", "producer may import only schemas of ours"},
		"schemas imports something of ours":    {"schemas/intake.go", module + "internal/slots", "schemas may import nothing of ours"},
		"substrate imports substrate":          {"internal/sendlog/add.go", module + "internal/kafka", "internal/sendlog may import only schemas, internal/defaults, internal/wrap of ours"},
		"the store imports the index":          {"store/sweep.go", module + "internal/index", "store may import only store/internal, task, internal/defaults, internal/loop, internal/machine, internal/election/roll, internal/wrap of ours"},
		"a new part without a row":             {"internal/util/x.go", "fmt", "package internal/util (internal/util/x.go) belongs to no part"},
		"an import of a part without a row":    {"scanner/run.go", module + "internal/util", "internal/util belongs to no part"},
		"a library away from its home":         {"scanner/run.go", "gorm.io/gorm", "the home of gorm.io/ is store"},
		"a library in another's test":          {"scanner/run_test.go", "github.com/redis/go-redis/v9", "is internal/index"},
		"kong outside cmd":                     {"internal/config/flags.go", "github.com/alecthomas/kong", "is internal/command"},
		"pebble outside the send log":          {"dispatcher/log.go", "github.com/cockroachdb/pebble/v2", "is internal/sendlog"},
		"the ZooKeeper client in a stage":      {"dispatcher/ownership.go", "github.com/go-zookeeper/zk", "is internal/election"},
		"spans made in a stage":                {"scanner/run.go", "go.opentelemetry.io/otel/trace", "is internal/tracing"},
		"a double in the program":              {"cmd/notyet/dev.go", module + "test/zkfake", "test/zkfake is imported only by tests"},
		"measurements in the program":          {"cmd/notyet/dev.go", module + "test/bench", "test/bench is imported only by tests"},
		"a fake server in what people run":     {"scanner/run.go", "github.com/alicebob/miniredis/v2", "only by internal/embedded and by tests"},
		"a package whose name begins a part's": {"storefront/x.go", "fmt", "package storefront (storefront/x.go) belongs to no part"},
	} {
		t.Run(name, func(t *testing.T) {
			found := violations([]source{{path: c.file, imports: []string{c.imports}}})
			if c.want == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0], c.want)
		})
	}
}
