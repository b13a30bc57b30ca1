package chaos

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/notyet/notyet/test/chaos/check"
	"github.com/notyet/notyet/test/chaos/history"
)

//go:embed figures.tmpl
var figuresText string

//go:embed report.tmpl
var reportText string

var templates = template.Must(template.Must(template.New("figures").Funcs(template.FuncMap{
	"counts": counts, "quantiles": quantiles, "outcomes": outcomes, "phases": func() []string { return check.Phases },
	"round": func(d time.Duration) time.Duration { return d.Round(time.Second) }, "atMost": atMost, "sum": sum, "stamped": stampedBySender, "kindNames": kindNames,
	"overlapping": overlapping, "findings": byInvariant, "first": func(all []check.Finding) []check.Finding { return all[:min(len(all), 20)] },
	"bugs": func() []check.Bug { return check.Bugs }, "caught": caught, "cpus": runtime.NumCPU,
}).Parse(figuresText)).New("report").Parse(reportText))

// Print writes the figures, and those of each kind of fault.
func (r *Report) Print(w io.Writer) error {
	if err := templates.ExecuteTemplate(w, "figures", r); err != nil {
		return err
	}
	return templates.ExecuteTemplate(w, "kinds", r)
}

// Write writes the published report, and beside it a CSV file of the faults by kind.
func (r *Report) Write(path string) error {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, "report", r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return r.writeKinds(strings.TrimSuffix(path, filepath.Ext(path)) + ".csv")
}

func (r *Report) writeKinds(path string) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	rows := [][]string{{"fault", "times", "longest_gap_ms", "recovery_p50_ms", "recovery_max_ms", "extra_copies", "example"}}
	first := map[string]string{}
	for _, f := range r.History.Faults {
		if _, ok := first[f.Kind]; !ok {
			first[f.Kind] = f.Target + ": " + f.Evidence
		}
	}
	f := r.Result.Figures
	for _, name := range kindNames(f.Kinds) {
		k := f.Kinds[name]
		row := []string{name}
		for _, n := range []int64{int64(k.Count), k.Gap, k.Recovery.ValueAtQuantile(50), k.Recovery.Max(), int64(f.Copies[name])} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, append(row, first[name]))
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("writing the faults: %w", err)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// caught returns how many of the planted mistakes the checker notices.
func caught() (n int) {
	for _, b := range check.Bugs {
		if b.Caught() {
			n++
		}
	}
	return n
}

func stampedBySender(all []history.Delivery) (n int) {
	for i := range all {
		if all[i].Stamp > 0 {
			n++
		}
	}
	return n
}

// counts lists a map's entries, the largest first, and of equal ones by name.
func counts(m map[string]int) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(m[b]-m[a], strings.Compare(a, b)) })
	var parts []string
	for _, n := range names {
		parts = append(parts, fmt.Sprintf("%s %d", n, m[n]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// quantiles returns the cells of a table's row: number, p50, p99, p99.9, maximum.
func quantiles(h *hdrhistogram.Histogram) string {
	return fmt.Sprintf("%d | %d | %d | %d | %d", h.TotalCount(), h.ValueAtQuantile(50), h.ValueAtQuantile(99), h.ValueAtQuantile(99.9), h.Max())
}

func outcomes(ops []history.Op) string {
	m := map[string]int{}
	for i := range ops {
		m[ops[i].Outcome]++
	}
	return counts(m)
}

// atMost returns the upper bound, with 95 % confidence, of the probability of an event that was
// seen 0 times in n.
func atMost(n int) string { return fmt.Sprintf("%.1e", 3/float64(max(n, 1))) }

func kindNames(kinds map[string]*check.Kind) []string {
	return slices.Sorted(maps.Keys(kinds))
}

func byInvariant(all []check.Finding) string {
	m := map[string]int{}
	for _, f := range all {
		m[f.Invariant]++
	}
	return counts(m)
}

func overlapping(all []history.Fault) int {
	n := 0
	for _, f := range all {
		if f.Overlap {
			n++
		}
	}
	return n
}
