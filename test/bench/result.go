package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is one run. The names of figures end in their unit: _ms, _us, _s, _per_s, _mb, _percent,
// or none for a count or a ratio.
type Result struct {
	Shape   string    `json:"shape"`
	Variant string    `json:"variant,omitempty"`
	Label   string    `json:"label,omitempty"` // the operator's name for what was measured
	At      time.Time `json:"at"`
	Tasks   int       `json:"tasks"`
	// Clock is the clock of the lateness: LogAppendTime, or CreateTime if the broker does not
	// support that.
	Clock   string  `json:"clock,omitempty"`
	Figures Figures `json:"figures"`
	// Wrong lists failures: lost or early tasks. Empty in a good run.
	Wrong []string `json:"wrong,omitempty"`
	Notes []string `json:"notes,omitempty"`

	course []point
	load   *load
}

// Figure is one number of a result.
type Figure struct {
	Name  string
	Value float64
}

// Figures keep their order, also in JSON, where they are one object.
type Figures []Figure

// MarshalJSON writes {"name": value, …}.
func (f Figures) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, x := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", x.Name, jsonNumber(x.Value))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func jsonNumber(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "null"
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// UnmarshalJSON reads {"name": value, …} in the order of the text.
func (f *Figures) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	for *f = nil; d.More(); {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value *float64
		if err := d.Decode(&value); err != nil {
			return err
		}
		if value != nil {
			*f = append(*f, Figure{fmt.Sprint(name), *value})
		}
	}
	return nil
}

// Get returns a figure by its name.
func (f Figures) Get(name string) (float64, bool) {
	for _, x := range f {
		if x.Name == name {
			return x.Value, true
		}
	}
	return 0, false
}

func (r *Result) figure(name string, value float64) {
	r.Figures = append(r.Figures, Figure{name, round(value)})
}

// round keeps four digits, because no run is more accurate.
func round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	if scale <= 1 {
		return math.Round(v)
	}
	return math.Round(v*scale) / scale
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func newResult(shape string, tasks int) *Result {
	return &Result{Shape: shape, At: time.Now().UTC().Truncate(time.Second), Tasks: tasks}
}

// delivered adds the results of a tally, failures first.
func (r *Result) delivered(t *tally) {
	r.Clock = "CreateTime"
	if t.byBroker {
		r.Clock = "LogAppendTime"
	}
	lost := t.lost()
	r.figure("lost", float64(lost))
	r.figure("early", float64(t.early))
	r.figure("extra_copies", float64(t.extra))
	if t.again > 0 {
		r.figure("later_attempts", float64(t.again))
	}
	r.quantiles("late", "ms", t.lateness)
	if lost > 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%d of %d tasks were not delivered", lost, r.Tasks))
	}
	if t.early > 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%d tasks were delivered before they were due", t.early))
	}
	r.course = t.points()
}

func (r *Result) quantiles(name, unit string, h *hdrhistogram.Histogram) {
	if h.TotalCount() == 0 {
		return
	}
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 50}, {"p99", 99}, {"p99.9", 99.9}} {
		r.figure(name+"_"+q.name+"_"+unit, float64(h.ValueAtQuantile(q.of)))
	}
	r.figure(name+"_max_"+unit, float64(h.Max()))
}
