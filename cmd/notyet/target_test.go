package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
)

// A target is paused, limited and resumed from the shell, through a service and in the database itself.
func TestTargetCommands(t *testing.T) {
	d := startDev(t)
	direct := append(d.environ, "NOTYET_MYSQL_DSN=sqlite:"+t.TempDir()+"/notyet.db", "NOTYET_HTTP_ADDR=127.0.0.1:1")
	r := notyet(t, direct, "", "migrate")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	for way, environ := range map[string][]string{"through a service": d.environ, "directly": direct} {
		t.Run(way, func(t *testing.T) {
			do := func(args ...string) result {
				t.Helper()
				r := notyet(t, environ, "", append([]string{"target"}, args...)...)
				require.Equal(t, command.ExitDone, r.code, r.stderr)
				return r
			}
			list := func() []api.TargetPolicy {
				t.Helper()
				var out []api.TargetPolicy
				require.NoError(t, json.Unmarshal([]byte(do("list", "--json").stdout), &out))
				for i := range out {
					require.NotZero(t, out[i].Changed)
					out[i].Changed = 0
				}
				return out
			}
			require.Contains(t, do("list").stdout, "no target")
			first := do("pause", "orders")
			require.Contains(t, first.stdout, "paused")
			require.Contains(t, first.stderr, "no task has the target orders")
			require.Empty(t, do("pause", "orders").stderr, "it has a policy")
			require.Contains(t, do("resume", "ordres").stderr, "did you mean orders?")
			do("limit", "orders", "--rate", "2.5/s", "--max-in-flight", "7")
			do("limit", "https://Shop.example:443", "--rate", "10")
			require.Equal(t, []api.TargetPolicy{{Topic: "https://shop.example", Rate: 10}, {Topic: "orders", Paused: true, Rate: 2.5, MaxInFlight: 7}}, list())
			do("resume", "orders")
			require.Equal(t, api.TargetPolicy{Topic: "orders", Rate: 2.5, MaxInFlight: 7}, list()[1], "its limits stay")
			require.Contains(t, do("list").stdout, "2.5/s")
			do("limit", "orders", "--rate", "0")
			require.Equal(t, api.TargetPolicy{Topic: "orders", MaxInFlight: 7}, list()[1])
			do("limit", "orders", "--max-in-flight", "0")
			require.Len(t, list(), 1)
			var audit []api.AuditEntry
			r := notyet(t, environ, "", "audit", "list", "--what", "target", "-t", "orders", "--json")
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &audit))
			require.Len(t, audit, 6)
			require.Contains(t, do("pause", "orders", "--until", "2999-12-24T09:00:00Z").stdout, "paused until 2999-12-24T09:00:00.000Z")
			do("pause", "orders", "--until", "90m")
			require.InDelta(t, time.Now().Add(90*time.Minute).UnixMilli(), list()[1].Until, 60_000)
			require.JSONEq(t, `{"max_in_flight":0}`, string(audit[0].Extra))

			for _, bad := range [][]string{{"limit", "orders"}, {"limit", "orders", "--rate", "fast"}, {"limit", "orders", "--rate", "-1/s"}, {"pause"}, {"pause", "orders", "--until", "soon"}} {
				require.Equal(t, command.ExitUsage, notyet(t, environ, "", append([]string{"target"}, bad...)...).code, bad)
			}
			for _, bad := range [][]string{{"limit", "orders", "--rate", "2000000/s"}, {"limit", "orders", "--max-in-flight=-1"}, {"pause", "or ders"}, {"pause", "https://u@x.example"}, {"pause", "orders", "--until", "-1s"}, {"pause", "orders", "--until", "1700000000000"}} {
				require.NotEqual(t, command.ExitDone, notyet(t, environ, "", append([]string{"target"}, bad...)...).code, bad)
			}
		})
	}
}
