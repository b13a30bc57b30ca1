package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForecast(t *testing.T) {
	w := newWorld(t)
	from := time.Now().Add(time.Hour).UnixMilli()
	for i := range 3 {
		w.schedule("orders", fmt.Sprint(i), from+int64(i)*60_000, nil, nil)
	}
	w.schedule("orders", "same", from+59_999, nil, nil)
	w.schedule("bills", "x", from+120_000, nil, nil)
	code, answer := w.do("GET", fmt.Sprintf("/api/v1/forecast?from=%d&to=%d&step=1m", from, from+180_000), "")
	require.Equal(t, 200, code, answer)
	require.JSONEq(t, fmt.Sprintf(`{"steps":[{"at":%d,"count":2},{"at":%d,"count":1},{"at":%d,"count":2}]}`, from, from+60_000, from+120_000), answer)
	code, answer = w.do("GET", fmt.Sprintf("/api/v1/forecast?from=%d&to=%d&step=1h&topic=bills", from, from+180_000), "")
	require.Equal(t, 200, code, answer)
	require.JSONEq(t, fmt.Sprintf(`{"steps":[{"at":%d,"count":1}]}`, from), answer)
	code, answer = w.do("GET", "/api/v1/forecast?topic=nothing", "")
	require.Equal(t, 200, code, answer)
	require.JSONEq(t, `{"steps":[]}`, answer)

	f := ForecastFilter{Topic: "orders", From: from, To: from + 180_000, Step: time.Minute}
	local, err := w.local.Forecast(t.Context(), f)
	require.NoError(t, err)
	remote, err := w.client.Forecast(t.Context(), f)
	require.NoError(t, err)
	require.Len(t, local.Steps, 3)
	require.Equal(t, local, remote)
}

func TestForecastIsBounded(t *testing.T) {
	w := newWorld(t)
	for query, want := range map[string]string{
		"step=1ms": "step is below a second", "step=soon": "query.step", "step=-1m": "query.step", "from=1800000000000&to=1800000000000": "to is not after from", "from=-1": "is below",
		"from=1800000000000&to=200000000000000&step=1s": "more than 10080 steps", "from=1800000000001&to=1800010080002&step=1s": "more than 10080 steps",
	} {
		code, answer := w.do("GET", "/api/v1/forecast?"+query, "")
		require.Equal(t, 422, code, query)
		require.Contains(t, answer, want, query)
	}
	code, answer := w.do("GET", "/api/v1/forecast?from=1800000000001&to=1800010080001&step=1s", "")
	require.Equal(t, 200, code, answer)
}
