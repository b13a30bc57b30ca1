package console

import (
	"slices"

	"github.com/notyet/notyet/api"
)

// chart is a bar for each minute, in units of its viewBox.
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
