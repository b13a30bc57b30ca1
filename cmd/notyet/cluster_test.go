package main

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/figures"
)

func TestClusterOfDev(t *testing.T) {
	d := startDev(t)
	var found api.Cluster
	require.Eventually(t, func() bool {
		r := d.cmd(t, "cluster", "--json")
		require.Equal(t, command.ExitDone, r.code, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
		return len(found.Services) == 1 && found.Services[0].Slots == len(found.Slots) && found.LagError == ""
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "dev", found.Services[0].Kind)
	require.Equal(t, command.Version(), found.Services[0].Version)
	require.Equal(t, d.http, found.Services[0].HTTP)
	require.Equal(t, found.Services[0].Member, found.Slots[0].Owner)
	topics := map[string]bool{}
	for _, l := range found.Lag {
		topics[l.Topic] = true
	}
	require.Equal(t, map[string]bool{"notyet.intake": true, "notyet.reports": true, "notyet.cancels": true}, topics)
	r := d.cmd(t, "cluster")
	require.Contains(t, r.stdout, "dev ")
	require.Contains(t, r.stdout, "0 without a living owner")
	require.Contains(t, r.stdout, "notyet.intake")
}

// What a service says of itself is what its metrics say, and its overview shows it.
func TestOverviewOfDev(t *testing.T) {
	d := startDev(t)
	r := d.cmd(t, "schedule", "--topic", "orders", "--id", "a", "--delay", "0s", "--value", "x")
	require.Equal(t, command.ExitDone, r.code, r.stderr)
	first(t, d.kafka, "orders")
	client := api.NewClient(api.ClientConfig{Addr: d.http})
	var found api.Overview
	require.Eventually(t, func() bool {
		var err error
		found, err = client.Overview(t.Context(), 60, "")
		require.NoError(t, err)
		return found.Now.Delivered > 0 && found.Now.Stored > 0 && len(found.Missing) == 0
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, api.Reporting{Alive: 1, Reporting: 1}, found.Services)
	require.NotNil(t, found.Now.LatenessP99)
	require.Empty(t, found.Alerts)

	resp, err := http.Get("http://" + d.http + "/metrics") //nolint:noctx // a test's
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for _, name := range figures.Metrics() {
		switch name {
		case "notyet_scanner_halted_partition", "notyet_scanner_standing_partition_seconds", "notyet_scanner_quota_wait_seconds": // there while it happens, or where there are quotas
		case "notyet_config_refused": // dev reads its configuration once
		default:
			require.Contains(t, string(text), "# TYPE "+name+" ", "figures are made of it")
		}
	}
}
