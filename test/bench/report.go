package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Peer is one line of another system's measurement.
type Peer struct {
	Peer     string  `json:"peer"`
	Shape    string  `json:"shape"`
	N        int     `json:"n"`
	Drain    float64 `json:"drain_per_s"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Max      float64 `json:"max_ms"`
	Early    int     `json:"early"`
	Lost     int     `json:"lost"`
	Dups     int     `json:"dups"`
	Settings string  `json:"settings"`
}

// Lines is the content of a file of results.
type Lines struct {
	About []string // {"about": "…"}: where and how it was measured
	Runs  []Result
	Peers []Peer
}

// ReadLines reads results and peers' lines, one JSON object a line, in any order.
func ReadLines(r io.Reader) (Lines, error) {
	var out Lines
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		if err := out.add(text); err != nil {
			return out, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return out, lines.Err()
}

func (l *Lines) add(text []byte) error {
	var kind struct{ About, Peer, Shape string }
	if err := json.Unmarshal(text, &kind); err != nil {
		return err
	}
	switch {
	case kind.About != "":
		l.About = append(l.About, kind.About)
		return nil
	case kind.Peer != "":
		l.Peers = append(l.Peers, Peer{})
		return json.Unmarshal(text, &l.Peers[len(l.Peers)-1])
	case kind.Shape != "":
		l.Runs = append(l.Runs, Result{})
		return json.Unmarshal(text, &l.Runs[len(l.Runs)-1])
	}
	return errors.New("it is no result: those have a shape")
}

// Markdown returns the goals with the measured figures, then the peers. CSV has the runs.
func (l Lines) Markdown() string {
	var b strings.Builder
	for _, a := range l.About {
		b.WriteString(a + ".\n\n")
	}
	b.WriteString("| what | goal | measured | of the goal | met |\n|---|---|---|---|---|\n")
	for _, g := range goals {
		if row := g.row(l); row != "" {
			b.WriteString(row)
		}
	}
	if len(l.Peers) > 0 {
		b.WriteString("\n| peer | shape | messages | lost | early | doubled | p50 ms | p99 ms | max ms | drained a second |\n|---|---|---|---|---|---|---|---|---|---|\n")
	}
	for _, p := range l.Peers {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %s | %s | %s | %s |\n", p.Peer, p.Shape, digits(float64(p.N)), p.Lost, p.Early, p.Dups, digits(p.P50), digits(p.P99), digits(p.Max), digits(p.Drain))
	}
	return b.String()
}

// CSV returns every run, a line each.
func (l Lines) CSV() string {
	var b strings.Builder
	b.WriteString("run,tasks,lost,early,extra_copies,p50_ms,p99_ms,p99.9_ms,max_ms,per_s,settled_per_s,reports_per_s,cpu_us_per_task\n")
	for _, r := range l.Runs {
		b.WriteString(r.row())
	}
	return b.String()
}

func (r Result) row() string {
	cell := func(names ...string) string {
		for _, n := range names {
			if v, ok := r.Figures.Get(n); ok {
				return strconv.FormatFloat(v, 'f', -1, 64)
			}
		}
		return ""
	}
	name := strings.TrimSpace(strings.Join([]string{r.Label, r.Shape, r.Variant}, " "))
	return strings.Join([]string{
		name, strconv.Itoa(r.Tasks), cell("lost", "after_lost"), cell("early", "after_early"), cell("extra_copies", "after_extra_copies"),
		cell("late_p50_ms", "after_late_p50_ms"), cell("late_p99_ms", "after_late_p99_ms"), cell("late_p99.9_ms", "after_late_p99.9_ms"), cell("late_max_ms", "after_late_max_ms"),
		cell("delivered_per_s", "drain_per_s", "ingest_per_s", "asked_per_s", "after_delivered_per_s"), cell("succeeded_per_s", "settled_per_s"), cell("reports_per_s"), cell("cpu_us_per_task", "after_cpu_us_per_task"),
	}, ",") + "\n"
}

// digits formats a number for people: 12,345 or 1.25.
func digits(v float64) string {
	if v < 100 {
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// find returns a figure of all matching runs.
func (l Lines) find(figure string, match func(Result) bool) []float64 {
	var out []float64
	for _, r := range l.Runs {
		if v, ok := r.Figures.Get(figure); ok && match(r) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
