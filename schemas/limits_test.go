package schemas

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bounds are the constants of limits.go as docs/limits.md writes them.
var bounds = map[string]string{
	"MaxKeyBytes": size(MaxKeyBytes), "MaxHeaderBytes": size(MaxHeaderBytes), "MaxHeaders": strconv.Itoa(MaxHeaders),
	"DefaultMaxValueBytes": size(DefaultMaxValueBytes), "MaxValueBytes": size(MaxValueBytes), "MaxRejectedBytes": size(MaxRejectedBytes),
	"MaxIDLen": strconv.Itoa(MaxIDLen), "MaxTimerIDLen": strconv.Itoa(MaxTimerIDLen),
	"MaxTopicLen": strconv.Itoa(MaxTopicLen), "MaxIntakeTopicLen": strconv.Itoa(MaxIntakeTopicLen), "MaxTags": strconv.Itoa(MaxTags), "MaxTagLen": strconv.Itoa(MaxTagLen), "MaxURLLen": strconv.Itoa(MaxURLLen),
	"MaxWaiting": strconv.Itoa(MaxWaiting), "MaxWaitingBytes": size(MaxWaitingBytes), "MaxWaitingReports": strconv.Itoa(MaxWaitingReports),
	"DefaultMaxDelay": strings.TrimSuffix(DefaultMaxDelay.String(), "0m0s"), "MaxReportError": size(MaxReportError),
}

func size(n int) string {
	if n%(1<<20) == 0 {
		return strconv.Itoa(n>>20) + " MiB"
	}
	return strconv.Itoa(n>>10) + " KiB"
}

var limitRow = regexp.MustCompile("(?m)^\\| .+ \\| (.+) \\| `([^` :]+):([^`]+)` \\| .+ \\|$")

// Every constant of limits.go is in the document with its value, and what the document names
// elsewhere is there.
func TestLimitsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/limits.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, row := range limitRow.FindAllStringSubmatch(string(doc), -1) {
		bound, file, name := row[1], row[2], row[3]
		documented[name] = bound
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
		require.NoError(t, err, name)
		require.True(t, regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).Match(source), "%s is not in %s", name, file)
	}
	rows := strings.Count(string(doc), "\n| ") - strings.Count(string(doc), "\n| what | bound ")
	require.Equal(t, rows, len(limitRow.FindAllString(string(doc), -1)), "a row does not have the form | what | bound | `file:name` | beyond it |")
	for name, bound := range bounds {
		require.Equal(t, bound, documented[name], name)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "limits.go", nil, 0)
	require.NoError(t, err)
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				require.Contains(t, bounds, s.(*ast.ValueSpec).Names[0].Name, "document it")
			}
		}
	}
}

// A request to merge brings the limit of its intake along, for what is made of it later.
func TestMergesCarryTheLimit(t *testing.T) {
	for _, c := range []struct {
		ifExists    string
		limit, want int
	}{{"merge", 0, DefaultMaxValueBytes}, {"merge", 5000, 5000}, {"merge", 1 << 30, MaxValueBytes}, {"replace", 5000, 0}} {
		r := NewRequest(OpSchedule, "orders", "a")
		r.Due = 1_700_000_000_000
		record, err := r.Record("intake")
		require.NoError(t, err)
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: HeaderIfExists, Value: []byte(c.ifExists)})
		record.Timestamp = time.UnixMilli(r.Due)
		got, err := Decode(record, Limits{MaxValueBytes: c.limit})
		require.NoError(t, err)
		require.Equal(t, c.want, got.MaxValue, "%v", c)
	}
}
