package watching

import (
	"context"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/program"
)

func TestMain(m *testing.M) { os.Exit(program.Run(m)) }

// absent are metrics whose series are there only while something is wrong, or only of services that read their configuration again, which
// `notyet dev` does not.
var absent = []string{"notyet_scanner_standing_partition_seconds", "notyet_scanner_halted_partition", "notyet_scanner_quota_wait_seconds", "notyet_config_refused"}

// moving are panels of which some line must be above zero: what the load does shows in them.
var moving = []string{
	"Late, p99", "Requests", "Deliveries", "Slots owned", "Dead letters", "Lateness", "Stored requests", "Time to store a batch", "Records in a batch",
	"Rejections and failures", "Delivered and put off", "Given up", "Time of a step, p99", "Slots by dispatcher", "Attempts", "Time of an attempt, p99", "Origins",
	"Runs of timers", "CPU", "Memory", "Goroutines",
}

// question is an expression, and what its answer must have.
type question struct {
	where, expr   string
	empty, moving bool // it may have no series; one must be above zero
}

var selector = regexp.MustCompile(`\b(?:notyet|go|process)_[a-z_]+(?:\{[^}]*\})?`)

// questions are all expressions of the board, and everything that the alerts look at. An alert's own expression has an answer only when it fires.
func questions(t *testing.T) []question {
	t.Helper()
	var out []question
	titles := map[string]bool{}
	mayBeAbsent := func(expr string) bool {
		return slices.ContainsFunc(absent, func(name string) bool { return strings.Contains(expr, name) })
	}
	for _, p := range readBoard(t).Panels {
		titles[p.Title] = true
		for i, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", (10 * scrapeEvery).String())
			out = append(out, question{where: p.Title, expr: expr, empty: mayBeAbsent(expr), moving: i == 0 && slices.Contains(moving, p.Title)})
		}
	}
	for _, title := range moving {
		require.True(t, titles[title], "there is no panel %q", title)
	}
	for _, r := range rules(t) {
		for _, s := range selector.FindAllString(r.Expr, -1) {
			out = append(out, question{where: r.Alert, expr: s, empty: mayBeAbsent(s)})
		}
	}
	require.Greater(t, len(out), 100)
	return out
}

// answered says what is missing in an answer; "": nothing.
func (q question) answered(found []sample) string {
	switch {
	case len(found) == 0 && !q.empty:
		return "there is no such series"
	case q.moving && !slices.ContainsFunc(found, func(v sample) bool { return v.number() > 0 && !math.IsInf(v.number(), 0) }):
		return "nothing is above zero"
	}
	return ""
}

// TestTheBoardShowsARunningPipeline starts the built program with everything embedded and a load of all kinds, lets a real Prometheus scrape it
// and evaluate the rules, and asks it for every expression of the board. A metric or a label that is misspelt has no series.
func TestTheBoardShowsARunningPipeline(t *testing.T) {
	prometheus(t, "prometheus") // or skip before the build
	dir := t.TempDir()
	program.In(t, dir)
	dev, problem := program.Dev(t, dir, program.Environ(), program.OnFreePorts...)
	require.Empty(t, problem)
	requireCleanMetrics(t, dev.HTTP)
	s := startServer(t, dev.HTTP)
	l := newLoad(t, dev.Kafka)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	open := map[question]string{}
	for _, q := range questions(t) {
		open[q] = "not asked"
	}
	for tick := time.NewTicker(scrapeEvery / 2); len(open) > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Empty(t, open, "a running pipeline has no answer to these")
		}
		l.round()
		for q := range maps.Clone(open) {
			found, err := s.query(ctx, q.expr)
			require.NoError(t, err, "%s: %s", q.where, q.expr)
			if open[q] = q.answered(found); open[q] == "" {
				delete(open, q)
			}
		}
	}
	require.Eventually(t, func() bool {
		health, err := s.ruleHealth(ctx)
		return err == nil && len(health) == len(rules(t)) && !slices.ContainsFunc(slices.Collect(maps.Values(health)), func(h string) bool { return h == "unknown" })
	}, time.Minute, 20*time.Millisecond)
	health, err := s.ruleHealth(ctx)
	require.NoError(t, err)
	for alert, h := range health {
		require.Equal(t, "ok", h, alert)
	}
}

// requireCleanMetrics lets promtool check names, units and help of all metrics.
func requireCleanMetrics(t *testing.T, addr string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics") //nolint:noctx // a test's
	require.NoError(t, err)
	defer resp.Body.Close()
	check := exec.CommandContext(t.Context(), prometheus(t, "promtool"), "check", "metrics")
	check.Stdin = resp.Body
	said, err := check.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Empty(t, string(said))
}

// A check that takes any answer would not notice a panel that is empty for ever.
func TestWhatAnAnswerMustHave(t *testing.T) {
	value := func(n string) []sample { return []sample{{Value: [2]any{1.5, n}}} }
	require.NotEmpty(t, question{}.answered(nil))
	require.Empty(t, question{empty: true}.answered(nil))
	require.Empty(t, question{}.answered(value("NaN")))
	for _, still := range []string{"0", "NaN", "+Inf"} {
		require.NotEmpty(t, question{moving: true}.answered(value(still)), still)
	}
	require.Empty(t, question{moving: true}.answered(append(value("NaN"), value("0.1")...)))
	require.Equal(t, []string{`notyet_scanner_dead_total{kind="dead"}`, "notyet_dispatcher_slots"},
		selector.FindAllString(`sum(rate(notyet_scanner_dead_total{kind="dead"}[5m])) > notyet_dispatcher_slots`, -1))
}
