package bench

import (
	"fmt"
	"image/color"
	"maps"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot draws a run into an SVG file: the lateness of each tenth of a second, and below it the
// number of deliveries so far. A run without deliveries is an error.
func (r *Result) Plot(file string) error {
	if len(r.course) == 0 {
		return fmt.Errorf("plotting to %s: a run of %s has no course to draw", file, r.Shape)
	}
	late, err := r.latenessPlot()
	if err != nil {
		return fmt.Errorf("plotting: %w", err)
	}
	drained, err := r.drainPlot()
	if err != nil {
		return fmt.Errorf("plotting: %w", err)
	}
	canvas := vgsvg.New(24*vg.Centimeter, 20*vg.Centimeter)
	rows := [][]*plot.Plot{{late}, {drained}}
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadTop: vg.Millimeter * 4, PadBottom: vg.Millimeter * 4, PadRight: vg.Millimeter * 8, PadLeft: vg.Millimeter * 4, PadY: vg.Millimeter * 8}
	for i, at := range plot.Align(rows, tiles, draw.New(canvas)) {
		rows[i][0].Draw(at[0])
	}
	return save(file, canvas)
}

func save(file string, canvas *vgsvg.Canvas) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("plotting: %w", err)
	}
	if _, err = canvas.WriteTo(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("plotting to %s: %w", file, err)
	}
	return f.Close()
}

func (r *Result) latenessPlot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s %s: %d tasks", r.Shape, r.Variant, r.Tasks)
	p.Y.Label.Text, p.Y.Min = "late (ms)", 0
	p.Legend.Top = true
	for _, line := range []struct {
		name string
		of   func(point) float64
		ink  color.Color
	}{
		{"latest", func(x point) float64 { return x.worst }, color.RGBA{R: 200, A: 255}},
		{"mean", func(x point) float64 { return x.mean }, color.RGBA{B: 200, A: 255}},
	} {
		l, err := r.line(line.of)
		if err != nil {
			return nil, err
		}
		l.Color = line.ink
		p.Add(l)
		p.Legend.Add(line.name, l)
	}
	return p, nil
}

func (r *Result) drainPlot() (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "seconds since the first delivery", "delivered"
	l, err := r.line(func(x point) float64 { return x.delivered })
	if err == nil {
		p.Add(l)
	}
	return p, err
}

func (r *Result) line(of func(point) float64) (*plotter.Line, error) {
	xys := make(plotter.XYs, len(r.course))
	for i, x := range r.course {
		xys[i] = plotter.XY{X: x.seconds, Y: of(x)}
	}
	return plotter.NewLine(xys)
}

// point is a tenth of a second of a run.
type point struct {
	seconds   float64 // since the first delivery
	delivered float64 // so far
	worst     float64 // ms late
	mean      float64
}

// points are a tally's tenths of a second in order.
func (t *tally) points() []point {
	var out []point
	sum := 0
	for _, at := range slices.Sorted(maps.Keys(t.timeline)) {
		m := t.timeline[at]
		sum += m.delivered
		out = append(out, point{
			seconds: float64(at*tenth-t.first/tenth*tenth) / 1000, delivered: float64(sum),
			worst: float64(m.worst), mean: float64(m.sum) / float64(m.delivered),
		})
	}
	return out
}
