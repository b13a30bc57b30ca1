package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// What a command changes is in the audit log with its user, whichever way it goes.
func TestCommandsAreAudited(t *testing.T) {
	d := startDev(t)
	listed := func(environ []string) []api.AuditEntry {
		t.Helper()
		r := notyet(t, environ, "", "audit", "list", "--json")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		var out []api.AuditEntry
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &out))
		return out
	}
	change := func(environ []string) (stderr string) {
		t.Helper()
		for _, args := range [][]string{
			{"schedule", "-t", "orders", "--id", "a", "--delay", "1h", "--value", "v"},
			{"cancel", "-t", "orders", "--id", "a", "--no-wait"},
		} {
			r := notyet(t, environ, "", args...)
			require.Equal(t, command.ExitDone, r.code, r.stderr)
			stderr += r.stderr
		}
		return stderr
	}

	require.Empty(t, change(d.environ))
	found := listed(d.environ)
	require.Len(t, found, 2)
	require.Equal(t, "cancel", found[0].What, "the latest first")
	for _, e := range found {
		require.Equal(t, []any{"local", "cli", operator(), "orders", "a", int64(1)}, []any{e.Who, e.Via, e.User, e.Topic, e.Task, e.Count}, "through a service")
	}
	require.Contains(t, d.cmd(t, "schedule", "-t", "orders", "--id", "many-1", "--delay", "1h", "--value", "v", "--tag", "many,one").stdout, "many-1")
	require.Eventually(t, func() bool {
		return strings.Contains(d.cmd(t, "cancel", "-t", "orders", "--id-prefix", "many-", "--dry-run").stdout, "would cancel 1\n")
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, d.cmd(t, "list", "--tag", "one").stdout, "many-1")
	require.Contains(t, d.cmd(t, "list", "--tag", "other").stdout, "no tasks")
	require.Contains(t, d.cmd(t, "get", "-t", "orders", "--id", "many-1").stdout, "many,one")
	require.Contains(t, d.cmd(t, "forecast", "--tag", "one", "--to", "2h").stdout, "1")
	many := d.cmd(t, "cancel", "--tag", "many", "--json")
	require.Equal(t, command.ExitDone, many.code, many.stderr)
	require.JSONEq(t, `{"cancelled":1,"too_late":0,"matched":1}`, many.stdout)
	require.Contains(t, d.cmd(t, "get", "-t", "orders", "--id", "many-1").stdout, "cancelled")
	require.Equal(t, "cancel many", listed(d.environ)[0].What)
	for _, args := range [][]string{{"cancel"}, {"cancel", "-t", "orders", "--all"}, {"cancel", "--id", "a"}, {"cancel", "-t", "orders", "--id", "a", "--dry-run"}, {"cancel", "-t", "orders", "--key", "k"}, {"fire", "--id", "a"}} {
		require.Equal(t, command.ExitUsage, d.cmd(t, args...).code, "%v", args)
	}
	for _, args := range [][]string{{"list", "--state", "foo"}, {"list", "--tag", "a b"}, {"deadletter", "list", "--tag", "a b"}, {"target", "limit", "orders", "--rate", "2000000/s"}, {"target", "pause", "a b"}} { // what only the service knows to be wrong
		require.Equal(t, command.ExitUsage, d.cmd(t, args...).code, "%v", args)
	}
	r := d.cmd(t, "audit", "list", "--what", "schedule")
	require.Contains(t, r.stdout, operator())
	require.NotContains(t, r.stdout, "cancel")
	require.Equal(t, command.ExitUsage, d.cmd(t, "audit", "list", "--limit", "0").code)

	direct := append(d.environ, "NOTYET_MYSQL_DSN=sqlite:"+t.TempDir()+"/notyet.db", "NOTYET_HTTP_ADDR=127.0.0.1:1")
	r = notyet(t, direct, "", "schedule", "-t", "orders", "--delay", "1h", "--value", "v")
	require.Equal(t, command.ExitFailed, r.code, "without its log nothing is sent")
	require.Contains(t, r.stderr, "audit log")
	r = notyet(t, direct, "", "migrate")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Empty(t, change(direct))
	found = listed(direct)
	require.Len(t, found, 2)
	require.Equal(t, []any{operator(), "cli", ""}, []any{found[0].Who, found[0].Via, found[0].User}, "in the database itself")

	neither := append(d.environ, "NOTYET_HTTP_ADDR=127.0.0.1:1")
	require.Contains(t, change(neither), "not in the audit log")
}

// An export has what its token may see, as often as it is made, and however long it is.
func TestAuditExports(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	reader, shop, bills := newToken(t, path, "reader", "--role", "read"), newToken(t, path, "shop", "--role", "operate", "--topics", "orders"), newToken(t, path, "bills", "--role", "operate", "--topics", "bills")
	d := startDev(t, "--set", "http.tokens="+path)
	exported := func(environ []string, args ...string) (out []string) {
		t.Helper()
		r := notyet(t, environ, "", append([]string{"audit", "export"}, args...)...)
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		for line := range strings.Lines(r.stdout) {
			var e api.AuditEntry
			require.NoError(t, json.Unmarshal([]byte(line), &e), line)
			out = append(out, e.Topic+"/"+e.Task)
		}
		return out
	}
	for topic, token := range map[string]string{"orders": shop, "bills": bills} {
		r := d.cmd(t, "schedule", "-t", topic, "--id", "a<b", "--delay", "1h", "--value", "v", "--http-token", token)
		require.Equal(t, command.ExitDone, r.code, r.stderr)
	}
	require.ElementsMatch(t, []string{"orders/a<b", "bills/a<b"}, exported(d.environ, "--http-token", reader))
	require.Equal(t, []string{"orders/a<b"}, exported(d.environ, "--http-token", shop))
	require.Empty(t, exported(d.environ, "--http-token", reader, "--to", "1h"))
	require.NotEqual(t, command.ExitDone, d.cmd(t, "audit", "export").code, "without a token")

	dsn := "sqlite:" + t.TempDir() + "/notyet.db"
	direct := append(d.environ, "NOTYET_MYSQL_DSN="+dsn)
	require.Equal(t, command.ExitDone, notyet(t, direct, "", "migrate").code)
	st, err := store.Open(t.Context(), store.Config{DSN: dsn}, zap.NewNop())
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	var entries []admin.AuditEntry
	var want []string
	for i := range 2*auditPage + 1 {
		entries = append(entries, admin.AuditEntry{What: "cancel", Topic: "orders", TaskID: strconv.Itoa(i), Detail: "{}", Count: 1})
		want = append([]string{"orders/" + strconv.Itoa(i)}, want...)
	}
	require.NoError(t, admin.New(st).Audit(t.Context(), entries))
	require.Equal(t, want, exported(direct), "each once, over several pages")
	file := filepath.Join(t.TempDir(), "audit.ndjson")
	require.Empty(t, exported(direct, "-o", file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, len(want), strings.Count(string(text), "\n"))
}
