package figures

import (
	"maps"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A process's figures come from the metrics in its registry. So the stages know nothing of figures,
// and an overview always agrees with a monitor.

const latenessMetric = "notyet_dispatcher_lateness_seconds"

// counters maps counters to counts. Of several labels, all count.
var counters = map[string]string{
	"notyet_dispatcher_delivered_total":    Delivered,
	"notyet_dispatcher_dead_total":         Exhausted,
	"notyet_scanner_store_errors_total":    StoreErrors,
	"notyet_scanner_fetch_errors_total":    FetchErrors,
	"notyet_dispatcher_index_errors_total": IndexErrors,
	"notyet_dispatcher_swept_total":        Swept,
	"notyet_dispatcher_index_drift_total":  IndexDrift,
	"notyet_dispatcher_mismatch_total":     Mismatch,
	"notyet_scanner_reread_offsets_total":  Reread,
	"notyet_scanner_bad_reports_total":     BadReports,
	"notyet_http_sign_ins_failed_total":    FailedSignIns,
}

// labelled are counters with only one counted label value.
var labelled = map[string]struct{ label, value, into string }{
	"notyet_scanner_dead_total":                  {"kind", "dead", Failed},
	"notyet_dispatcher_timer_runs_dropped_total": {"why", "missed", MissedRuns},
}

// requestsMetric counts by kind: all into Stored, some kinds elsewhere or in two places.
const requestsMetric = "notyet_scanner_requests_total"

// levels maps gauges to levels. Of several labels, the sum counts, or the highest (see most).
var levels = map[string]string{
	"notyet_dispatcher_claimed_tasks":              Claimed,
	"notyet_dispatcher_unresponsive_targets":       Unresponsive,
	"notyet_dispatcher_refused_targets":            Refused,
	"notyet_dispatcher_clock_refused_targets":      ClockRefused,
	"notyet_callback_open_circuits":                Circuits,
	"notyet_scanner_unclaimed_slots":               Unclaimed,
	"notyet_scanner_unsettled_slots":               Unsettled,
	"notyet_scanner_halted_partition":              Halted,
	"notyet_scanner_standing_partition_seconds":    Standing,
	"notyet_scanner_quota_wait_seconds":            QuotaWait,
	"notyet_dispatcher_dead_letter_bytes":          LetterBytes,
	"notyet_dispatcher_send_log_full":              SendLogFull,
	"notyet_dispatcher_results_unanswered_seconds": Unanswered,
	"notyet_scanner_results_unanswered_seconds":    Unanswered,
	"notyet_config_refused":                        ConfigRefused,
	"notyet_http_tokens_unusable_seconds":          TokensUnusable,
	"notyet_scanner_oldest_overdue_seconds":        Overdue,
}

// Metrics returns the names of all metrics behind figures. A missing metric counts nothing.
func Metrics() []string {
	return slices.Concat([]string{latenessMetric, requestsMetric}, slices.Collect(maps.Keys(counters)), slices.Collect(maps.Keys(labelled)), slices.Collect(maps.Keys(levels)))
}

type reading struct {
	counts Counts
	levels map[string]int64
}

// read reads the metrics. Metrics of a failing collector are left out.
func read(from prometheus.Gatherer) reading {
	families, _ := from.Gather()
	out := reading{counts: Counts{N: map[string]int64{}}, levels: map[string]int64{}}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			out.add(family.GetName(), m)
		}
	}
	return out
}

func (r *reading) add(metric string, m *dto.Metric) {
	switch name := metric; {
	case name == latenessMetric:
		r.counts.Lateness = histogram(m.GetHistogram())
	case name == requestsMetric:
		r.request(label(m, "kind"), whole(m.GetCounter().GetValue()))
	case counters[name] != "":
		r.counts.N[counters[name]] += whole(m.GetCounter().GetValue())
	case labelled[name].into != "":
		if of := labelled[name]; label(m, of.label) == of.value {
			r.counts.N[of.into] += whole(m.GetCounter().GetValue())
		}
	case levels[name] != "":
		level, value := levels[name], whole(math.Ceil(m.GetGauge().GetValue()))
		if most[level] {
			r.levels[level] = max(r.levels[level], value)
		} else {
			r.levels[level] += value
		}
	}
}

func (r *reading) request(kind string, n int64) {
	if kind == "report" {
		r.counts.N[Reports] += n
		return
	}
	r.counts.N[Stored] += n
	if kind == "rejected" {
		r.counts.N[Rejected] += n
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// whole is a metric's value as a count: not negative, and not too large for one.
func whole(v float64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(min(v, 1<<51))
}

// histogram takes a histogram of the known bounds. Others give nothing, rather than wrong counts.
func histogram(from *dto.Histogram) Histogram {
	if len(from.GetBucket()) != bounds {
		return nil
	}
	out, passed := make(Histogram, buckets), uint64(0)
	for k, b := range from.GetBucket() {
		if math.Abs(b.GetUpperBound()-bound(k)) > bound(k)/1e6 {
			return nil
		}
		out[k] = int64(b.GetCumulativeCount() - passed)
		passed = b.GetCumulativeCount()
	}
	out[bounds] = int64(from.GetSampleCount() - passed)
	return out.plus(nil, 1)
}
