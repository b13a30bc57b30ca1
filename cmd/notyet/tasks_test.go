package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
)

// counted is an installation with one task in each minute, which counts seven minutes at a time.
type counted struct{ tasks }

func (counted) Forecast(_ context.Context, f api.ForecastFilter) (out api.Forecast, _ error) {
	for at := f.From; at < f.To; at += f.Step.Milliseconds() {
		if len(out.Steps) == 7 {
			out.Next = at
			break
		}
		out.Steps = append(out.Steps, api.ForecastStep{At: at, Count: 1})
	}
	return out, nil
}

func TestWholeForecast(t *testing.T) {
	const hour, begin = 3_600_000, 1_790_000_000_000
	f := api.ForecastFilter{From: begin, To: begin + 3*hour, Step: time.Hour}
	got, err := wholeForecast(t.Context(), counted{}, f)
	require.NoError(t, err)
	require.Equal(t, []api.ForecastStep{{At: begin, Count: 60}, {At: begin + hour, Count: 60}, {At: begin + 2*hour, Count: 60}}, got.Steps)

	f.Step = time.Minute
	got, err = wholeForecast(t.Context(), counted{}, f)
	require.NoError(t, err)
	require.Len(t, got.Steps, 180)

	got, err = wholeForecast(t.Context(), counted{}, api.ForecastFilter{Step: time.Minute})
	require.NoError(t, err)
	require.Len(t, got.Steps, 60, "an hour from now")
}
