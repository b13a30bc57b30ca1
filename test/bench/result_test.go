package bench

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFiguresKeepOrderThroughJSON(t *testing.T) {
	r := newResult("burst", 3)
	r.figure("zebra_per_s", 12345.678)
	r.figure("ant_ms", 0.0123456)
	r.figure("nothing", math.NaN())
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"figures":{"zebra_per_s":12346,"ant_ms":0.01235,"nothing":null}`)
	var back Result
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, Figures{{"zebra_per_s", 12346}, {"ant_ms", 0.01235}}, back.Figures)
	require.Equal(t, r.At, back.At)
}

func TestRound(t *testing.T) {
	for in, want := range map[float64]float64{0: 0, 1: 1, 0.5: 0.5, 1.23456: 1.235, 99.994: 99.99, 123456: 123456, 1234.5: 1235, -1.23456: -1.235} {
		require.InDelta(t, want, round(in), 1e-12, "%v", in)
	}
}

func TestLostAndEarlyAreWrong(t *testing.T) {
	x := (&tally{}).expect(2)
	x.arrived(0, 1000, 999)
	r := newResult("burst", 2)
	r.delivered(x)
	require.Equal(t, []string{"1 of 2 tasks were not delivered", "1 tasks were delivered before they were due"}, r.Wrong)

	good := (&tally{}).expect(1)
	good.arrived(0, 1000, 1000)
	good.arrived(0, 1000, 1000)
	r = newResult("burst", 1)
	r.delivered(good)
	require.Empty(t, r.Wrong, "a copy is told, and no failure")
	extra, _ := r.Figures.Get("extra_copies")
	require.Equal(t, 1.0, extra)
}

func TestSettledInTheWindow(t *testing.T) {
	done := make(chan struct{})
	close(done)
	begin := time.Now()
	s := &settling{b: &Bench{db: &database{}}, begin: begin, end: begin.Add(10 * time.Second), before: 50, after: 150, done: done}
	r := newResult("sustained", 0)
	require.NoError(t, s.into(r))
	rate, _ := r.Figures.Get("settled_per_s")
	require.Equal(t, 10.0, rate)

	s.variant.Report, s.succeeded = true, 70
	r = newResult("sustained", 0)
	require.NoError(t, s.into(r))
	require.Equal(t, Figures{{"succeeded_per_s", 7}, {"reports_per_s", 10}}, r.Figures, "a stored report may still wait for its task")
	s.b.db = nil
	r = newResult("sustained", 0)
	require.NoError(t, s.into(r))
	require.Empty(t, r.Figures, "without a database nothing is known")
}

func TestBesideComparesWhatATaskCosts(t *testing.T) {
	before, after, r := newResult("steady", 1), newResult("steady", 1), newResult("backlog", 1)
	before.figure("cpu_us_per_task", 200)
	after.figure("cpu_us_per_task", 250)
	after.figure("only_after", 1)
	r.compare(before, after)
	require.Equal(t, Figures{{"before_cpu_us_per_task", 200}, {"after_cpu_us_per_task", 250}, {"cpu_ratio", 1.25}}, r.Figures)
	require.Empty(t, r.Notes)
}

func TestReport(t *testing.T) {
	l, err := ReadLines(strings.NewReader(`{"about":"a machine"}
{"shape":"burst","tasks":20000,"figures":{"lost":0,"early":0,"late_p99_ms":90,"drain_per_s":15000}}
{"shape":"burst","tasks":20000,"figures":{"lost":0,"early":0,"late_p99_ms":70,"drain_per_s":16000}}

{"shape":"sustained","variant":"plain","tasks":1000000,"figures":{"delivered_per_s":9000}}
{"shape":"sustained","variant":"ids","tasks":1000000,"figures":{"delivered_per_s":3000}}
{"shape":"sustained","variant":"plain","label":"dev","tasks":1000,"figures":{"delivered_per_s":2000}}
{"peer":"asynq","shape":"burst","n":20000,"drain_per_s":4500.4,"p50_ms":300,"p99_ms":580,"max_ms":600,"early":0,"lost":0,"dups":0}
`))
	require.NoError(t, err)
	text := l.Markdown()
	for _, line := range []string{
		"a machine.",
		"| 20,000 due in one second | p99 at most 100 ms late | 80 ms (70 to 90, 2 runs) | 0.8 | yes |",
		"| sustained: scheduled, delivered, settled | 20,000/s or more | 9,000 /s | 0.45 | no |",
		"| the same beside asynq | 3 times asynq or more | 2 times | 0.67 | no |",
		"| sustained with ids and final events | 0.5 of the plain case or more | 0.33 of plain | 0.67 | no |",
		"| `notyet dev`: sustained | 3,000/s or more | 2,000 /s | 0.67 | no |",
		"| asynq | burst | 20,000 | 0 | 0 | 0 | 300 | 580 | 600 | 4,500 |",
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "history", "what was not measured has no line")
	rows, err := csv.NewReader(strings.NewReader(l.CSV())).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+len(l.Runs))
	require.Equal(t, []string{"burst", "20000", "0", "0", "", "", "90", "", "", "15000", "", "", ""}, rows[1])
	require.Equal(t, []string{"dev sustained plain", "1000", "", "", "", "", "", "", "", "2000", "", "", ""}, rows[5])

	_, err = ReadLines(strings.NewReader("{\"about\":\"x\"}\n{\"figures\":{}}\n"))
	require.ErrorContains(t, err, "line 2")
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1.5: "1.5", 99.999: "100", 100: "100", 1234.6: "1,235", 1234567: "1,234,567", -3.25: "-3.25"} {
		require.Equal(t, want, digits(v))
	}
}

func TestPlotDrawsBothCurves(t *testing.T) {
	x := (&tally{}).expect(100)
	for i := range 100 {
		x.arrived(i, int64(1000+i*10), int64(1000+i*30))
	}
	r := newResult("burst", 100)
	r.delivered(x)
	file := filepath.Join(t.TempDir(), "burst.svg")
	require.NoError(t, r.Plot(file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, want := range []string{"<svg", "late (ms)", "latest", "mean", "delivered", "burst"} {
		require.Contains(t, string(text), want)
	}
	require.ErrorContains(t, newResult("ingest", 1).Plot(file), "no course")
}
