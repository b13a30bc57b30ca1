package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
)

// servers are the settings without which no service starts.
var servers = []string{"NOTYET_KAFKA_BROKERS=127.0.0.1:1", "NOTYET_MYSQL_DSN=u:p@tcp(127.0.0.1:1)/d", "NOTYET_REDIS_ADDRS=127.0.0.1:1", "NOTYET_ZOOKEEPER_SERVERS=127.0.0.1:1"}

func fileWith(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestConfigCheck(t *testing.T) {
	r := notyet(t, servers, "", "config", "check")
	require.Equal(t, result{command.ExitDone, "warning: intake.allowed-targets is not set: who may write notyet.intake may deliver to, cancel and replace tasks of every target: name patterns, or write * where every topic is meant\nthe configuration is valid\n", ""}, r)
	require.Equal(t, command.ExitFailed, notyet(t, servers, "", "config", "check", "--strict").code, "something is open")
	r = notyet(t, servers, "", "config", "check", "--strict", "--json")
	require.Equal(t, command.ExitFailed, r.code)
	var out checked
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
	require.True(t, out.Valid && len(out.Warnings) == 1 && out.Warnings[0].Key == "intake.allowed-targets", r.stdout)
	r = notyet(t, append(servers, "NOTYET_INTAKE_ALLOWED_TARGETS=*"), "", "config", "check", "--strict")
	require.Equal(t, result{command.ExitDone, "the configuration is valid\n", ""}, r)
	r = notyet(t, nil, "", "config", "check")
	require.Equal(t, command.ExitUsage, r.code, "a service would not start")
	require.Contains(t, r.stderr, "mysql.dsn is not set: set NOTYET_MYSQL_DSN")
	require.Empty(t, r.stdout)
	require.Equal(t, command.ExitDone, notyet(t, servers[:3], "", "config", "check", "--service", "scanner").code)
	r = notyet(t, servers[:3], "", "config", "check", "--service", "dispatcher")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.stderr, "NOTYET_ZOOKEEPER_SERVERS")
	require.Equal(t, command.ExitUsage, notyet(t, servers, "", "config", "check", "--service", "dev").code)
}

// Every mistake of settings alone and of the files that they name is found, each with key, source and fix.
func TestConfigCheckFindsWhatWouldEndAStart(t *testing.T) {
	file := fileWith(t, "notyet.yaml", "slots: many\nwindw: 1h\nlog:\n  level: loud\n")
	r := notyet(t, servers, "", "config", "check", "--json", "--config", file)
	require.Equal(t, command.ExitUsage, r.code)
	require.Empty(t, r.stderr)
	var out checked
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
	require.False(t, out.Valid)
	require.Len(t, out.Problems, 3)
	for _, p := range out.Problems {
		require.Equal(t, file, p.Source)
		require.NotEmpty(t, p.Fix, "%+v", p)
	}

	empty := fileWith(t, "empty.pem", "")
	args := []string{"config", "check", "--json"}
	for _, set := range []string{
		"http.tls.enabled=true", "http.tls.cert=" + empty, "http.tls.key=" + empty, "kafka.tls.enabled=true", "kafka.tls.ca=" + empty, "mysql.tls.enabled=true", "mysql.tls.ca=/nowhere.pem",
		"redis.tls.enabled=true", "redis.tls.cert=" + empty, "redis.tls.key=" + empty, "zookeeper.tls.enabled=true", "zookeeper.tls.ca=" + empty, "callback.enabled=true", "callback.ca=" + empty,
	} {
		args = append(args, "--set", set)
	}
	r = notyet(t, servers, "", args...)
	require.Equal(t, command.ExitUsage, r.code)
	out = checked{}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
	var keys []string
	for _, p := range out.Problems {
		keys = append(keys, p.Key)
		require.Equal(t, "flag", p.Source, "%+v", p)
		require.Contains(t, p.Problem, ": name ", "the fix: %+v", p)
	}
	require.Equal(t, []string{"http.tls.cert", "kafka.tls.ca", "mysql.tls.ca", "redis.tls.cert", "zookeeper.tls.ca", "callback.ca"}, keys)
}

func TestConfigPrint(t *testing.T) {
	file := fileWith(t, "notyet.yaml", "window: 1h\n")
	r := notyet(t, servers[:1], "", "config", "print", "--config", file, "--set", "slots=7")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	lines := map[string][]string{}
	for line := range strings.Lines(r.stdout) {
		words := strings.Fields(line)
		lines[words[0]] = words[1:]
	}
	require.Equal(t, []string{"1h0m0s", "file", file}, lines["window"])
	require.Equal(t, []string{"7", "flag"}, lines["slots"])
	require.Equal(t, []string{"127.0.0.1:1", "environment", "NOTYET_KAFKA_BROKERS"}, lines["kafka.brokers"])
	require.Equal(t, []string{"info", "default"}, lines["log.level"], "as a service logs")
	for _, key := range config.Keys() {
		require.Contains(t, lines, key)
	}

	r = notyet(t, []string{"NOTYET_SLOTS=many"}, "", "config", "print", "--json")
	require.Equal(t, command.ExitUsage, r.code)
	var out printed
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
	require.Equal(t, "slots", out.Problems[0].Key)
	require.Equal(t, len(config.Keys())+len([]string{"topic", "target", "allowed-targets", "max-delay", "max-value-bytes", "requests-per-second", "pending-tasks", "pending-bytes", "beyond", "unknown-targets", "aliases"}), len(out.Settings))
}
