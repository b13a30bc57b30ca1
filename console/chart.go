package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/api"
)

// chart is a bar for each minute, in units of the viewBox.
type chart struct {
	Bars          []bar
	Width, Height int
	Most, Sum     int64
	Marks         []mark
}

type bar struct {
	X, Y, Width, Height int
	At                  int64 // Unix ms
	Count               int64
}

type mark struct {
	X  int
	At int64
}

const (
	barWidth    = 6
	chartHeight = 120
)

// newChart draws n minutes from a Unix time in ms on.
func newChart(begin int64, n int, steps []api.ForecastStep) chart {
	c := chart{Width: n * barWidth, Height: chartHeight}
	for _, s := range steps {
		c.Most, c.Sum = max(c.Most, s.Count), c.Sum+s.Count
	}
	for i := 0; i < n; i += 30 {
		c.Marks = append(c.Marks, mark{i * barWidth, begin + int64(i)*60_000})
	}
	for _, s := range steps {
		i := int((s.At - begin) / 60_000)
		if i < 0 || i >= n || s.Count <= 0 {
			continue
		}
		h := max(2, int(s.Count*chartHeight/c.Most))
		c.Bars = append(c.Bars, bar{X: i * barWidth, Y: chartHeight - h, Width: barWidth - 1, Height: h, At: s.At, Count: s.Count})
	}
	slices.SortFunc(c.Bars, func(a, b bar) int { return a.X - b.X })
	return c
}

// curve is a line through the minutes until now, in units of the viewBox.
type curve struct {
	Points        string // of a polyline; empty: there is nothing to show
	Width, Height int
	Most          float64
	Begin, End    int64 // Unix ms
}

const curveHeight = 80

// newCurve draws the minutes before a Unix time in ms. A minute without work is 0.
func newCurve(end int64, minutes []api.Minute, of func(api.Minute) float64) curve {
	end -= end % 60_000
	c := curve{Width: curveMinutes, Height: curveHeight, Begin: end - curveMinutes*60_000, End: end}
	at := map[int64]float64{}
	for _, m := range minutes {
		v := of(m)
		at[(m.At-c.Begin)/60_000] = v
		c.Most = max(c.Most, v)
	}
	if c.Most == 0 {
		return c
	}
	var b strings.Builder
	for i := range int64(curveMinutes) {
		fmt.Fprintf(&b, "%d,%d ", i, curveHeight-int(at[i]*(curveHeight-2)/c.Most))
	}
	c.Points = b.String()
	return c
}
