package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTake(t *testing.T) {
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
		"unknown targets":  {next: usual("intake.unknown-targets", "7"), taken: []string{"intake.topics[a].unknown-targets", "intake.topics[b].unknown-targets", "intake.unknown-targets"}},
		"a horizon":        {next: usual("intake.max-delay", "1h"), taken: []string{"intake.topics[a].max-delay", "intake.topics[b].max-delay", "intake.max-delay"}},
		"first targets":    {next: usual("intake.allowed-targets", "x"), taken: []string{"intake.topics[a].allowed-targets", "intake.topics[b].allowed-targets", "intake.allowed-targets"}},
		"callbacks":        {next: usual("callback.max-in-flight", "3", "callback.enabled", "true"), taken: []string{"callback.max-in-flight"}, restart: []string{"callback.enabled"}},
		"one more intake":  {next: usual("intake.topics", "a,b,c"), restart: []string{"intake.topics"}},
		"one fewer":        {next: usual("intake.topics", "b"), restart: []string{"intake.topics"}},
		"a secret":         {next: usual("http.token", "t2", "log.level", "warn"), taken: []string{"log.level"}, restart: []string{"http.token"}},
	} {
		next := read("another", c.next)
		now, taken, restart := before.Take(next)
		require.Equal(t, c.taken, taken, name)
		require.Equal(t, c.restart, restart, name)
		again, taken, restart := now.Take(before)
		if name == "first targets" { // without which everything would be allowed
			require.Equal(t, now, again)
			taken = restart
		} else {
			require.Equal(t, before, again, "%s: and back", name)
		}
		require.Equal(t, c.taken, taken, name)
	}
}

// Without its own list, an intake may allow more.
func TestAnOwnListThatEndsNeedsARestart(t *testing.T) {
	before, err := load(t, "intake: {allowed-targets: ['*'], topics: [{topic: x, allowed-targets: [orders]}]}\n", nil, nil)
	require.NoError(t, err)
	next, err := load(t, "intake: {allowed-targets: ['*'], topics: [{topic: x}]}\n", nil, nil)
	require.NoError(t, err)
	_, taken, restart := before.Take(next)
	require.Empty(t, taken)
	require.Equal(t, []string{"intake.topics[x].allowed-targets"}, restart)
	_, taken, restart = next.Take(before)
	require.Equal(t, []string{"intake.topics[x].allowed-targets"}, taken)
	require.Empty(t, restart)
}

// What is in force of an intake is what was taken over beside what was there before: its internal topics, too.
func TestLimitsOfWhatWasTaken(t *testing.T) {
	load := func(flags map[string]string) *Config {
		cfg, err := Load(Sources{Environ: []string{"A=b"}, Flags: flags})
		require.NoError(t, err)
		return cfg
	}
	before := load(map[string]string{"intake.topics": "a,b", "results.topic": "r1", "intake.max-value-bytes": "2MiB"})
	now, _, restart := before.Take(load(map[string]string{"intake.topics": "b,c", "results.topic": "r2", "intake.max-value-bytes": "3MiB", "intake.aliases": "nats"}))
	require.Equal(t, []string{"intake.topics", "results.topic"}, restart)
	for topic, want := range map[string]int{"a": 2 << 20, "b": 3 << 20, "c": 0} {
		limits, ok := now.Limits(topic)
		require.Equal(t, want > 0, ok, topic)
		require.Equal(t, want, limits.MaxValueBytes, topic)
		require.Equal(t, topic == "b", len(limits.Aliases) == 1, topic)
		require.Equal(t, ok, slices.Contains(limits.InternalTopics, "r1"), topic)
		require.NotContains(t, limits.InternalTopics, "r2")
	}
	was, _ := before.Limits("b")
	require.Equal(t, 2<<20, was.MaxValueBytes, "what was in force is not changed in place")
}

// An intake's own target is all that its requests may name: another one needs a restart, and what is allowed waits for it.
func TestAnotherOwnTargetIsTakenWhole(t *testing.T) {
	own := func(target string) *Config {
		cfg, err := load(t, "intake:\n  topics: [{topic: orders.later, "+target+"}]\n", nil, nil)
		require.NoError(t, err)
		return cfg
	}
	before := own("target: orders")
	for _, other := range []string{"target: payments", "allowed-targets: [payments]"} {
		now, taken, restart := before.Take(own(other))
		require.Equal(t, before.Intake.Topics, now.Intake.Topics)
		require.Empty(t, taken)
		require.ElementsMatch(t, []string{"intake.topics[orders.later].target", "intake.topics[orders.later].allowed-targets"}, restart)
	}
}
