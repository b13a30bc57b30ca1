package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/cmd/internal/command"
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
	require.Equal(t, len(config.Keys())+len([]string{"topic", "target", "allowed-targets", "max-delay", "max-value-bytes", "requests-per-second", "pending-tasks", "pending-bytes", "beyond", "aliases"}), len(out.Settings))
}

// A marker in every secret setting, and in the files that settings name, is nowhere in what the commands print.
func TestConfigShowsNoSecret(t *testing.T) {
	const marker = "nyt_geheim"
	environ := append(servers[:1:1], "NOTYET_KAFKA_SASL_MECHANISM=PLAIN", "NOTYET_KAFKA_SASL_USER=u", "NOTYET_KAFKA_SASL_PASSWORD="+marker, "NOTYET_REDIS_PASSWORD="+marker,
		"NOTYET_REDIS_MASTER=m", "NOTYET_REDIS_SENTINEL_PASSWORD="+marker, "NOTYET_ZOOKEEPER_AUTH=u:"+marker, "NOTYET_MYSQL_DSN=u:"+marker+"@tcp(127.0.0.1:1)/d?x="+marker,
		"NOTYET_REDIS_ADDRS=127.0.0.1:1", "NOTYET_ZOOKEEPER_SERVERS=127.0.0.1:1", "NOTYET_HTTP_JWT_ISSUER=https://login.example.com", "NOTYET_HTTP_SIGN_IN_CLIENT_ID=c",
		"NOTYET_HTTP_SIGN_IN_CLIENT_SECRET="+marker, "NOTYET_HTTP_PUBLIC_URL=https://notyet.example")
	tokens := fileWith(t, "tokens.yaml", "- {name: a, sha256: "+marker+", role: read}\n")
	secrets := fileWith(t, "secrets.yaml", "- {origin: 'https://shop.example', secrets: [whsec_"+marker+"!]}\n")
	flags := []string{"--http-token", marker, "--set", "http.tokens=" + tokens, "--set", "callback.enabled=true", "--set", "callback.secrets=" + secrets}
	for _, bad := range [][]string{nil, {"--set", "kafka.brokers=u:" + marker + "@h"}, {"--set", "slots=" + marker + "@x"}, {"--set", "mysql.dsn=u:" + marker + "(h)/d"}, {"--set", "redis.addrs=redis://h?password=" + marker}, {"--set", marker}} {
		for _, command := range [][]string{{"config", "print"}, {"config", "print", "--json"}, {"config", "check"}, {"config", "check", "--json"}} {
			r := notyet(t, environ, "", append(append(command, flags...), bad...)...)
			require.NotContains(t, r.stdout+r.stderr, "geheim", "%v %v", command, bad)
			require.NotEmpty(t, r.stdout+r.stderr)
		}
	}
	r := notyet(t, environ, "", append([]string{"config", "check"}, flags...)...)
	require.Contains(t, r.stderr, "callback.secrets (flag)", "the files were read")
	require.Contains(t, r.stderr, "http.tokens (flag)")
	r = notyet(t, environ, "", append([]string{"config", "print"}, flags...)...)
	require.Contains(t, r.stdout, "u:(hidden)@tcp(127.0.0.1:1)/d?(hidden)")
}

// A marker in the file of every secret is nowhere in what the commands print, and a service logs, whether servers refuse it or are away.
func TestFilesOfSecretsAreShownNowhere(t *testing.T) {
	const marker = "nyt_geheim"
	named := func(variable, text string) string { return variable + "=" + fileWith(t, "secret", text+"\n") }
	address := func(variable string) string { return cmp.Or(os.Getenv(variable), "127.0.0.1:1") }
	database := "127.0.0.1:1"
	if parsed, err := mysql.ParseDSN(os.Getenv("NOTYET_MYSQL_DSN")); err == nil && parsed.Net == "tcp" {
		database = parsed.Addr
	}
	environ := []string{
		"NOTYET_KAFKA_BROKERS=" + address("NOTYET_KAFKA_BROKERS"), "NOTYET_KAFKA_SASL_MECHANISM=SCRAM-SHA-256", named("NOTYET_KAFKA_SASL_USER_FILE", "user"), named("NOTYET_KAFKA_SASL_PASSWORD_FILE", marker),
		"NOTYET_REDIS_ADDRS=" + address("NOTYET_REDIS_ADDRS"), named("NOTYET_REDIS_PASSWORD_FILE", marker), "NOTYET_ZOOKEEPER_SERVERS=127.0.0.1:1", named("NOTYET_ZOOKEEPER_AUTH_FILE", "u:"+marker),
		"NOTYET_HTTP_JWT_ISSUER=http://127.0.0.1:1", "NOTYET_HTTP_SIGN_IN_CLIENT_ID=c", named("NOTYET_HTTP_SIGN_IN_CLIENT_SECRET_FILE", marker), "NOTYET_HTTP_PUBLIC_URL=https://notyet.example",
		"NOTYET_HTTP_TOKENS=" + fileWith(t, "tokens.yaml", "- {group: a, role: read}\n"),
		"NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_SENDLOG_DIR=" + t.TempDir(), "NOTYET_LOG_LEVEL=debug",
	}
	whole := named("NOTYET_MYSQL_DSN_FILE", "u:"+marker+"@tcp("+database+")/d")
	sentinels := []string{"NOTYET_REDIS_MASTER=m", named("NOTYET_REDIS_SENTINEL_PASSWORD_FILE", marker)}
	for _, with := range [][]string{{whole}, {"NOTYET_MYSQL_DSN=u@tcp(" + database + ")/d", named("NOTYET_MYSQL_PASSWORD_FILE", marker)}, append(sentinels, whole), {whole, "NOTYET_REDIS_PASSWORD=" + marker},
		{whole, named("NOTYET_MIGRATE_DSN_FILE", "u:"+marker+"@tcp("+database+")/d")}} {
		for _, command := range []string{"config print", "config print --json", "config check", "doctor --patience 500ms", "scanner", "migrate"} {
			r := notyet(t, append(with, environ...), "", strings.Fields(command)...)
			require.NotContains(t, r.stdout+r.stderr, "geheim", "%s %v", command, with)
			require.NotEmpty(t, r.stdout+r.stderr)
		}
	}
	r := notyet(t, append(environ, whole), "", "config", "print")
	require.Contains(t, r.stdout, "u:(hidden)@tcp("+database+")/d")
	require.Equal(t, command.ExitDone, notyet(t, append(environ, whole), "", "config", "check").code)
	r = notyet(t, append(environ, whole, "NOTYET_REDIS_PASSWORD="+marker), "", "config", "check")
	require.Contains(t, r.stderr, "redis.password (NOTYET_REDIS_PASSWORD) and redis.password-file exclude each other")
}
