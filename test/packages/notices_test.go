package packages

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is given away beside the program has the licences of all modules in it, and says which they are.
func TestNotices(t *testing.T) {
	in := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	parts := regexp.MustCompile(`(?m)^={100}$`).Split(in("scripts/notices"), -1)[1:]
	got := map[string]string{}
	for _, part := range parts {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "\n")
		require.NotContains(t, got, name)
		got[name] = text
	}
	linked := strings.Fields(in("go", "list", "-deps", "-tags", "timetzdata", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}", "./cmd/notyet"))
	require.Greater(t, len(linked), 50)
	for _, module := range linked {
		require.Contains(t, got, module)
	}
	for name, text := range got {
		require.Contains(t, text, "--- ", name)
		require.Greater(t, len(text), 200, name)
	}
	for name, want := range map[string]string{"github.com/go-sql-driver/mysql@": "Mozilla Public License", "github.com/twmb/franz-go@": "Redistribution and use", "go.uber.org/zap@": "Permission is hereby granted", "Go go": "The Go Authors"} {
		found := ""
		for module, text := range got {
			if strings.HasPrefix(module, name) {
				found = text
			}
		}
		require.Contains(t, found, want, name)
	}
}
