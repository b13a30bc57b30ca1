package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
)

func TestSlotsOfDev(t *testing.T) {
	d := startDev(t)
	show := func() (now api.SlotsChange) {
		t.Helper()
		r := d.cmd(t, "slots", "show", "--json")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &now))
		return now
	}
	before := show()
	require.Equal(t, before.Slots, before.Target)
	require.False(t, before.Changes)
	r := d.cmd(t, "schedule", "--topic", "orders", "--id", "a", "--delay", "8s", "--value", "x")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	for _, n := range []string{"0", "4097"} {
		r := d.cmd(t, "slots", "set", n)
		require.Equal(t, command.ExitUsage, r.code, r.stderr)
		require.Contains(t, r.stderr, "1 to 4096")
	}
	for _, n := range []int{before.Slots + 3, 2} {
		text, err := json.Marshal(n)
		require.NoError(t, err)
		r := d.cmd(t, "slots", "set", string(text), "--wait")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		now := show()
		require.Equal(t, n, now.Slots)
		require.False(t, now.Changes)
	}
	first(t, d.kafka, "orders")
	r = d.cmd(t, "audit", "list", "--json")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `"what": "slots"`)
}
