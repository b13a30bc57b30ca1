package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChanges(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	read := func(secret string, flags map[string]string) *Config {
		require.NoError(t, os.WriteFile(password, []byte(secret), 0o600))
		flags["redis.password-file"] = password
		cfg, err := Load(Sources{Environ: []string{"A=b"}, Flags: flags})
		require.NoError(t, err)
		return cfg
	}
	usual := func(more ...string) map[string]string {
		out := map[string]string{"log.level": "info", "intake.topics": "a,b", "intake.requests-per-second": "5", "http.token": "t1"}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	before := read("one", usual())
	for name, c := range map[string]struct {
		next           map[string]string
		taken, restart []string
	}{
		"nothing":          {next: usual()},
		"the level":        {next: usual("log.level", "debug"), taken: []string{"log.level"}},
		"a quota for each": {next: usual("intake.requests-per-second", "7"), taken: []string{"intake.topics[a].requests-per-second", "intake.topics[b].requests-per-second", "intake.requests-per-second"}},
		"a quota more":     {next: usual("intake.pending-tasks", "7"), restart: []string{"intake.topics[a].pending-tasks", "intake.topics[b].pending-tasks", "intake.pending-tasks"}},
		"a horizon":        {next: usual("intake.max-delay", "1h"), restart: []string{"intake.topics[a].max-delay", "intake.topics[b].max-delay", "intake.max-delay"}},
		"one more intake":  {next: usual("intake.topics", "a,b,c"), restart: []string{"intake.topics"}},
		"one fewer":        {next: usual("intake.topics", "b"), restart: []string{"intake.topics"}},
		"a secret":         {next: usual("http.token", "t2", "log.level", "warn"), taken: []string{"log.level"}, restart: []string{"http.token"}},
	} {
		taken, restart := before.Changes(read("another", c.next))
		require.Equal(t, c.taken, taken, name)
		require.Equal(t, c.restart, restart, name)
	}
}
