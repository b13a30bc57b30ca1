package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/ops"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

// registered returns the names of the metrics that the services register.
func registered(t *testing.T) map[string]bool {
	s := newStack(t, false)
	reg := prometheus.NewRegistry()
	sc, err := scanner.New(scanner.Deps{Kafka: s.kafka, Store: s.store, Index: s.index, Metrics: reg, Log: s.log}, scanner.Config{Group: s.name, Quotas: map[string]scanner.Quota{schemas.TopicIntake: {RequestsPerSecond: 1}}})
	require.NoError(t, err)
	sent, err := sendlog.Open(t.TempDir(), sendlog.Config{}, s.log)
	require.NoError(t, err)
	d, err := dispatcher.New(dispatcher.Deps{Kafka: s.kafka, Store: s.store, Index: s.index, Members: election.NewLocal("d", s.store.SlotCount, intake.New(s.store).Line()), SendLog: sent, Metrics: reg, Log: s.log},
		dispatcher.Config{MemberID: "d"})
	require.NoError(t, err)
	calls, err := callback.New(callback.Config{}, s.log, reg)
	require.NoError(t, err)
	calls.Close()
	guard, err := access.New(access.Config{}, s.log)
	require.NoError(t, err)
	reg.MustRegister(guard.Collectors()...)
	ops.New(ops.Config{}, reg, s.log) // it only registers
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = sc.Run(ended), d.Run(ended) // closes what they hold
	require.NoError(t, sent.Close())

	described := make(chan *prometheus.Desc)
	go func() { reg.Describe(described); close(described) }()
	name := regexp.MustCompile(`fqName: "([a-z_]+)"`)
	out := map[string]bool{"notyet_config_refused": true, "notyet_config_read_timestamp_seconds": true} // cmd/notyet registers them: its test of SIGHUP reads them
	for desc := range described {
		found := name.FindStringSubmatch(desc.String())[1]
		out[found] = true
		labelled[found] = !strings.Contains(desc.String(), "variableLabels: {}")
	}
	return out
}

// An alert cannot compare numbers that nobody reports, so it must test for their absence if every
// scanner or every dispatcher is lost. It must use metrics that a process has from its start: a
// labelled one appears with its first event, and the alert would fire until then.
func TestAlertsFireWhenNobodyIsThere(t *testing.T) {
	text, err := os.ReadFile("../../docs/alerts.yml")
	require.NoError(t, err)
	known := registered(t)
	stages := map[string]bool{}
	for _, m := range regexp.MustCompile(`expr: absent\((notyet_(scanner|dispatcher)_[a-z_]+)\)\n`).FindAllStringSubmatch(string(text), -1) {
		require.True(t, known[m[1]], m[1])
		require.False(t, labelled[m[1]], "%s is not there before its first event", m[1])
		stages[m[2]] = true
	}
	require.Equal(t, map[string]bool{"scanner": true, "dispatcher": true}, stages)
}

// labelled are the metrics that registered has found with labels.
var labelled = map[string]bool{}

var metricName = regexp.MustCompile(`\bnotyet_(scanner|dispatcher|callback|http|config)_[a-z_]+`)

func TestAlertsAreAboutMetricsThatThereAre(t *testing.T) {
	known := registered(t)
	require.True(t, known["notyet_dispatcher_slots"] && known["notyet_scanner_requests_total"], known)
	text, err := os.ReadFile("../../docs/alerts.yml")
	require.NoError(t, err)
	rules, err := yaml.Parser().Unmarshal(text)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, group := range rules["groups"].([]any) {
		for _, rule := range group.(map[string]any)["rules"].([]any) {
			rule := rule.(map[string]any)
			for _, key := range []string{"alert", "expr", "labels", "annotations"} {
				require.NotEmpty(t, rule[key], "%v", rule)
			}
			names[rule["alert"].(string)] = true
			found := metricName.FindAllString(rule["expr"].(string), -1)
			require.NotEmpty(t, found, "%v", rule)
			for _, name := range found {
				require.True(t, known[strings.TrimSuffix(name, "_bucket")], "%s is in the alert %s and nowhere else", name, rule["alert"])
			}
		}
	}
	for _, name := range []string{"NotyetBacklog", "NotyetOverdue", "NotyetRetriesExhausted", "NotyetIndexDrift", "NotyetUnownedSlots", "NotyetStuck", "NotyetNoScanner", "NotyetNoDispatcher"} {
		require.True(t, names[name], name)
	}
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	require.NoError(t, err)
	for _, path := range append(pages, "../../docs/operations.md", "../../docs/callbacks.md", "../../docs/recovery.md") {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range metricName.FindAllString(string(page), -1) {
			require.True(t, known[strings.TrimSuffix(name, "_bucket")], "%s is in %s and nowhere else", name, path)
		}
	}
}
