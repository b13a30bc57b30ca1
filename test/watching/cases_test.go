package watching

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// alertCase is what lets an alert fire. A sample of each series is taken every minute: all is well until healthy, then something is
// wrong for a while, then all is well again.
type alertCase struct {
	alert  string
	labels string // of the alert, besides its severity
	series map[string]course
}

// course writes the samples of a series, in promtool's notation.
type course func(well, wrong, again int) string

const (
	healthy = 10  // minutes until something is wrong
	slack   = 6   // minutes that a rate over 5 minutes needs to see it
	after   = 100 // minutes until the alert must be quiet again: some look back an hour
)

// gauge is a value while all is well, and another while something is wrong.
func gauge(well, wrong float64) course {
	return func(a, b, c int) string {
		return strings.Join([]string{constant(well, a), constant(wrong, b), constant(well, c)}, " ")
	}
}

// counter rises only while something is wrong, by so much a minute.
func counter(rise int) course {
	return func(a, b, c int) string {
		return strings.Join([]string{constant(0, a), rising(rise, rise, b), constant(float64(rise*b), c)}, " ")
	}
}

// once is a counter that rises one time, when something is wrong.
func once(by int) course {
	return func(a, b, c int) string {
		return strings.Join([]string{constant(0, a), constant(float64(by), b+c)}, " ")
	}
}

// steady is a counter that always rises, by so much a minute.
func steady(rise int) course {
	return func(a, b, c int) string { return rising(0, rise, a+b+c) }
}

// halting is a counter that rises, except while something is wrong.
func halting(rise int) course {
	return func(a, b, c int) string {
		return strings.Join([]string{rising(0, rise, a), constant(float64(rise*(a-1)), b), rising(rise*(a-1), rise, c)}, " ")
	}
}

// gone is a series that is not there while something is wrong.
func gone(value float64) course {
	return func(a, b, c int) string {
		return fmt.Sprintf("%s stale _x%d %s", constant(value, a), b-1, constant(value, c))
	}
}

// appears is a series that is there only while something is wrong.
func appears(value float64) course {
	return func(a, b, c int) string { return fmt.Sprintf("_x%d %s stale", a, constant(value, b)) }
}

func constant(v float64, n int) string { return fmt.Sprintf("%g+0x%d", v, n-1) }

func rising(from, by, n int) string { return fmt.Sprintf("%d+%dx%d", from, by, n-1) }

var alertCases = []alertCase{
	{alert: "NotyetLate", series: map[string]course{
		`notyet_dispatcher_lateness_seconds_bucket{instance="d1",le="0.064"}`: halting(100),
		`notyet_dispatcher_lateness_seconds_bucket{instance="d1",le="4.096"}`: halting(100),
		`notyet_dispatcher_lateness_seconds_bucket{instance="d1",le="8.192"}`: steady(100),
		`notyet_dispatcher_lateness_seconds_bucket{instance="d1",le="+Inf"}`:  steady(100),
	}},
	{alert: "NotyetIntakeBacklog", series: map[string]course{"notyet_scanner_store_errors_total": counter(60), "notyet_scanner_fetch_errors_total": counter(0)}},
	{alert: "NotyetIntakeBacklog", series: map[string]course{"notyet_scanner_store_errors_total": counter(0), "notyet_scanner_fetch_errors_total": counter(60)}},
	{alert: "NotyetIntakeHalted", labels: `partition="3",topic="notyet.intake"`, series: map[string]course{
		`notyet_scanner_halted_partition{instance="s1",topic="notyet.intake",partition="3"}`: appears(1)}},
	{alert: "NotyetIntakeStands", labels: `partition="3",topic="notyet.intake"`, series: map[string]course{
		`notyet_scanner_standing_partition_seconds{instance="s1",topic="notyet.intake",partition="3"}`: appears(75)}},
	{alert: "NotyetIntakeAtQuota", labels: `quota="pending-tasks",topic="shop"`, series: map[string]course{
		`notyet_scanner_quota_wait_seconds{instance="s1",quota="pending-tasks",topic="shop"}`: gauge(0, 3700), `notyet_scanner_quota_wait_seconds{instance="s2",quota="pending-tasks",topic="shop"}`: gauge(0, 20)}},
	{alert: "NotyetIntakeQuotaRetention", labels: `quota="pending-tasks",topic="shop"`, series: map[string]course{`notyet_scanner_quota_wait_seconds{instance="s1",quota="pending-tasks",topic="shop"}`: gauge(3000, 605_000)}},
	{alert: "NotyetBacklog", series: map[string]course{
		`notyet_dispatcher_claimed_tasks{instance="d1"}`: gauge(3000, 400_000), `notyet_dispatcher_claimed_tasks{instance="d2"}`: gauge(3000, 200_000)}},
	{alert: "NotyetOverdue", series: map[string]course{`notyet_scanner_unclaimed_slots{instance="s1"}`: gauge(0, 8), `notyet_scanner_unclaimed_slots{instance="s2"}`: gauge(0, 8)}},
	{alert: "NotyetStuck", series: map[string]course{"notyet_scanner_unsettled_slots": gauge(0, 1)}},
	{alert: "NotyetOldestOverdue", series: map[string]course{"notyet_scanner_oldest_overdue_seconds": gauge(299, 301)}},
	{alert: "NotyetUnownedSlots", series: map[string]course{`notyet_dispatcher_slots{instance="d1"}`: gauge(32, 32), `notyet_dispatcher_slots{instance="d2"}`: gone(32)}},
	{alert: "NotyetNoScanner", series: map[string]course{"notyet_scanner_unclaimed_slots": gone(0)}},
	{alert: "NotyetNoDispatcher", series: map[string]course{"notyet_dispatcher_slots": gone(64)}},
	{alert: "NotyetRetriesExhausted", labels: `kind="undeliverable"`, series: map[string]course{
		`notyet_dispatcher_dead_total{kind="undeliverable"}`: counter(2), `notyet_dispatcher_dead_total{kind="dead"}`: counter(0)}},
	{alert: "NotyetReportsExhausted", series: map[string]course{`notyet_scanner_dead_total{kind="dead"}`: counter(1), `notyet_scanner_dead_total{kind="rejected"}`: counter(0)}},
	{alert: "NotyetRejections", series: map[string]course{`notyet_scanner_dead_total{kind="dead"}`: counter(0), `notyet_scanner_dead_total{kind="rejected"}`: counter(1)}},
	{alert: "NotyetBadReports", series: map[string]course{"notyet_scanner_bad_reports_total": counter(1)}},
	{alert: "NotyetTargetSick", series: map[string]course{"notyet_dispatcher_unresponsive_targets": gauge(0, 1)}},
	{alert: "NotyetClockRefused", series: map[string]course{"notyet_dispatcher_clock_refused_targets": gauge(0, 1)}},
	{alert: "NotyetTargetRefused", series: map[string]course{"notyet_dispatcher_refused_targets": gauge(0, 1)}},
	{alert: "NotyetCallbackOriginDown", series: map[string]course{"notyet_callback_open_circuits": gauge(0, 2)}},
	{alert: "NotyetTimerRunsMissed", series: map[string]course{
		`notyet_dispatcher_timer_runs_dropped_total{why="missed"}`: once(3), `notyet_dispatcher_timer_runs_dropped_total{why="overlap"}`: steady(1)}},
	{alert: "NotyetSendLogFull", series: map[string]course{`notyet_dispatcher_send_log_full{instance="d1"}`: gauge(0, 1), `notyet_dispatcher_send_log_full{instance="d2"}`: gauge(0, 0)}},
	{alert: "NotyetResultsUnanswered", series: map[string]course{"notyet_dispatcher_results_unanswered_seconds": gauge(1, 90), "notyet_scanner_results_unanswered_seconds": gauge(1, 1)}},
	{alert: "NotyetResultsUnanswered", series: map[string]course{"notyet_dispatcher_results_unanswered_seconds": gauge(1, 1), "notyet_scanner_results_unanswered_seconds": gauge(1, 90)}},
	{alert: "NotyetConfigRefused", labels: `instance="d1"`, series: map[string]course{`notyet_config_refused{instance="d1"}`: gauge(0, 1), `notyet_config_refused{instance="d2"}`: gauge(0, 0)}},
	{alert: "NotyetTokensUnusable", series: map[string]course{`notyet_http_tokens_unusable_seconds{instance="d1"}`: gauge(0, 30), `notyet_http_tokens_unusable_seconds{instance="d2"}`: gauge(0, 0)}},
	{alert: "NotyetSignInsFail", series: map[string]course{`notyet_http_sign_ins_failed_total{instance="s1"}`: counter(20), `notyet_http_sign_ins_failed_total{instance="s2"}`: counter(20)}},
	{alert: "NotyetIndexDrift", series: map[string]course{"notyet_dispatcher_index_drift_total": once(1)}},
	{alert: "NotyetIndexMissed", series: map[string]course{"notyet_dispatcher_swept_total": counter(60), "notyet_dispatcher_index_errors_total": counter(0)}},
	{alert: "NotyetIndexMissed", series: map[string]course{"notyet_dispatcher_swept_total": counter(0), "notyet_dispatcher_index_errors_total": counter(60)}},
	{alert: "NotyetMismatch", series: map[string]course{"notyet_dispatcher_mismatch_total": once(1)}},
	{alert: "NotyetDatabaseSetBack", series: map[string]course{"notyet_scanner_reread_offsets_total": once(8211)}},
	{alert: "NotyetDeadLettersPileUp", series: map[string]course{`notyet_dispatcher_dead_letter_bytes{instance="d1"}`: gauge(9e9, 11e9), `notyet_dispatcher_dead_letter_bytes{instance="d2"}`: gauge(0, 0)}},
}

// write appends the case to a file for `promtool test rules`.
func (c alertCase) write(w io.Writer, r rule, pending int) {
	wrong := pending + slack + 4
	fmt.Fprint(w, "  - interval: 1m\n    input_series:\n")
	for _, name := range slices.Sorted(maps.Keys(c.series)) {
		fmt.Fprintf(w, "      - {series: '%s', values: '%s'}\n", name, c.series[name](healthy+1, wrong, after))
	}
	labels := fmt.Sprintf(`alertname=%q,alertstate="firing",severity=%q`, c.alert, r.Labels["severity"])
	if c.labels != "" {
		labels += "," + c.labels
	}
	fmt.Fprint(w, "    promql_expr_test:\n")
	expect := func(at int, fires bool) {
		samples := ""
		if fires {
			samples = fmt.Sprintf("{labels: 'ALERTS{%s}', value: 1}", labels)
		}
		fmt.Fprintf(w, "      - {expr: 'ALERTS{alertname=%q,alertstate=\"firing\"}', eval_time: %dm, exp_samples: [%s]}\n", c.alert, at, samples)
	}
	expect(healthy, false)
	if pending > 0 {
		expect(healthy+pending, false)
	}
	expect(healthy+pending+slack+2, true)
	expect(healthy+wrong+after, false)
}
