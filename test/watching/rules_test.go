package watching

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const rulesFile = "../../docs/alerts.yml"

// rule is an alert of docs/alerts.yml.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	var out []rule
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	require.Greater(t, len(out), 20)
	return out
}

// prometheus returns the path of a program of Prometheus. scripts/prometheus fetches them.
func prometheus(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("PROMETHEUS_DIR")
	if dir == "" {
		require.NotEqual(t, "true", os.Getenv("CI"), "PROMETHEUS_DIR is not set, and CI must run this")
		t.Skip("needs PROMETHEUS_DIR: export PROMETHEUS_DIR=$(scripts/prometheus)")
	}
	return filepath.Join(dir, name)
}

func promtool(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), prometheus(t, "promtool"), args...).CombinedOutput()
	return string(out), err
}

func TestRulesAreValid(t *testing.T) {
	out, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile)
	require.NoError(t, err, out)
	require.Contains(t, out, fmt.Sprintf("%d rules found", len(rules(t))))
}

func TestEachRuleHasItsTexts(t *testing.T) {
	for _, r := range rules(t) {
		require.True(t, strings.HasPrefix(r.Alert, "Notyet"), r.Alert)
		require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
		require.NotContains(t, r.Annotations["summary"], "\n", r.Alert)
	}
}

// Each alert is quiet while all is well, is pending for as long as it says, then fires, and is quiet again some time after.
func TestEachRuleFires(t *testing.T) {
	names := map[string]bool{}
	var tests strings.Builder
	path, err := filepath.Abs(rulesFile)
	require.NoError(t, err)
	fmt.Fprintf(&tests, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n", path)
	known := rules(t)
	for _, c := range alertCases {
		i := slices.IndexFunc(known, func(r rule) bool { return r.Alert == c.alert })
		require.GreaterOrEqual(t, i, 0, "there is no alert %s", c.alert)
		names[c.alert] = true
		c.write(&tests, known[i], minutes(t, known[i].For))
	}
	for _, r := range known {
		require.True(t, names[r.Alert], "no case lets %s fire", r.Alert)
	}
	file := filepath.Join(t.TempDir(), "alerts_test.yml")
	require.NoError(t, os.WriteFile(file, []byte(tests.String()), 0o600))
	out, err := promtool(t, "test", "rules", file)
	require.NoError(t, err, "%s\n%s", out, &tests)
}

// A rule that fires too early, too late or not at all is noticed: otherwise the test above shows nothing.
func TestARuleThatIsWrongIsNoticed(t *testing.T) {
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	late := `rate(notyet_dispatcher_lateness_seconds_bucket[5m]))) > 5`
	require.Contains(t, string(text), late)
	r := rule{Alert: "NotyetLate", Labels: map[string]string{"severity": "page"}}
	i := slices.IndexFunc(alertCases, func(c alertCase) bool { return c.alert == r.Alert })
	for what, broken := range map[string]string{
		"always":    strings.Replace(string(text), late, strings.TrimSuffix(late, "> 5")+"> 0.001", 1),
		"never":     strings.Replace(string(text), late, strings.TrimSuffix(late, "> 5")+"> 5000", 1),
		"misspelt":  strings.Replace(string(text), late, strings.Replace(late, "lateness", "latenes", 1), 1),
		"impatient": strings.Replace(string(text), "        for: 5m\n", "", 1),
	} {
		dir := t.TempDir()
		rulesPath, file := filepath.Join(dir, "alerts.yml"), filepath.Join(dir, "test.yml")
		require.NoError(t, os.WriteFile(rulesPath, []byte(broken), 0o600))
		var tests strings.Builder
		fmt.Fprintf(&tests, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n", rulesPath)
		alertCases[i].write(&tests, r, 5)
		require.NoError(t, os.WriteFile(file, []byte(tests.String()), 0o600))
		out, err := promtool(t, "test", "rules", file)
		require.Error(t, err, what)
		require.Contains(t, out, "FAILED", what)
	}
}

func minutes(t *testing.T, duration string) int {
	t.Helper()
	if duration == "" {
		return 0
	}
	d, err := time.ParseDuration(duration)
	require.NoError(t, err)
	return int(d.Minutes())
}
