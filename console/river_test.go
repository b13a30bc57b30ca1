package console

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
)

// One bar for each step, late ones in their colour. A burst leaves the others to be seen, and the
// table has the same sums.
func TestRiver(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 31, 0, time.UTC)
	minute := func(before int, perSecond, p99 float64) api.Minute {
		at := now.Truncate(time.Minute).Add(-time.Duration(before) * time.Minute)
		return api.Minute{At: at.UnixMilli(), Work: api.Work{Delivered: perSecond, LatenessP99: &p99}}
	}
	comes := func(after time.Duration, n int64) api.ForecastStep {
		return api.ForecastStep{At: now.Truncate(time.Minute).Add(after).UnixMilli(), Count: n}
	}
	for _, of := range reaches {
		v := newRiver(now.UnixMilli(), of, time.UTC)
		v.flow([]api.Minute{minute(3, 2, 4), minute(61, 1, 1500), minute(100, 1, 90_000), minute(7000, 5, 4)})
		v.come([]api.ForecastStep{comes(0, 7), comes(time.Hour, 100_000), comes(2*time.Hour-time.Minute, 1), comes(8*24*time.Hour, 5)})
		v.draw("orders", "")
		says := map[string]bool{}
		var ended, coming int64
		for _, b := range v.Bars {
			says[fmt.Sprint(b.Class, " ", b.Count)] = true
			require.GreaterOrEqual(t, b.Y, 0)
			require.Equal(t, riverHeight, b.Y+b.Height)
			require.GreaterOrEqual(t, b.Height, 2, "it can be seen")
			require.Less(t, b.X, v.Width)
			require.Equal(t, b.ended, b.X <= v.Now && b.Class != "comes")
		}
		for i, r := range v.Rows {
			ended, coming = ended+r.Delivered, coming+r.Comes
			require.Less(t, r.From, r.To)
			require.True(t, i == 0 || v.Rows[i-1].To == r.From, "nothing between two rows")
		}
		require.Equal(t, int64(240), ended, of.Name)
		require.Equal(t, int64(100_008), coming, of.Name)
		require.Equal(t, coming, v.Coming)
		require.True(t, says["sent 120"] || of.step > 1 && len(says) > 0, says)
		if of.step == 1 {
			require.Equal(t, map[string]bool{"sent 120": true, "late 60": true, "very-late 60": true, "comes 7": true, "comes 100000": true, "comes 1": true}, says)
			require.Contains(t, v.Bars[0].Path, "ended=on&from=1795953420000&to=1795953480000&topic=orders")
			require.Equal(t, "11:57: 120 delivered, p99 4 ms late", v.Bars[0].Says)
		}
	}
}

// The river of one target has the colours of its late deliveries, and says no more than is known.
func TestRiverOfATarget(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 31, 0, time.UTC)
	v := newRiver(now.UnixMilli(), reaches[0], zoneNamed("Europe/Berlin"))
	at := func(before int64) int64 { return v.now - before*60_000 }
	v.flowOf([]api.Traffic{{Topic: "orders", Series: []api.TrafficMinute{{At: at(3), Delivered: 100, Late: 1}, {At: at(2), Delivered: 100, Late: 2}, {At: at(1), Delivered: 100, Late: 2, VeryLate: 2}, {At: at(0), Dead: 1}}}})
	v.draw("orders", "")
	require.True(t, v.Known)
	require.Equal(t, "11:00", v.Marks[0].Text)
	require.Len(t, v.Bars, 3)
	require.Equal(t, []string{"12:57: 100 delivered", "12:58: 100 delivered, p99 over 1 s late", "12:59: 100 delivered, p99 over 1 min late"}, []string{v.Bars[0].Says, v.Bars[1].Says, v.Bars[2].Says})
}

// The river of a tag has its ended tasks at their due times, and says that it knows no more.
func TestRiverOfATag(t *testing.T) {
	v := newRiver(time.Date(2026, 11, 29, 12, 0, 31, 0, time.UTC).UnixMilli(), reaches[0], time.UTC)
	at := v.now - 3*60_000
	v.ended([]api.Task{{State: "delivered", Due: at}, {State: "succeeded", Due: at + 59_999}, {State: "cancelled", Due: at}, {State: "dead", Due: at}, {State: "delivered", Due: 1}})
	v.draw("", `a"&b`)
	require.Len(t, v.Bars, 1)
	require.Equal(t, "11:57: 2 delivered", v.Bars[0].Says)
	require.Contains(t, v.Bars[0].Path, "&tag=a%22%26b&")

	w := newWorld(t, true)
	token, entry := access.NewToken("some", access.Read, []string{"orders*"})
	text, err := yaml.Marshal([]access.Entry{entry})
	require.NoError(t, err)
	old, err := os.ReadFile(w.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.file, append(old, text...), 0o600))
	const tag, hostile = "sale", `"><img src=x onerror=alert(1)></svg><script>x</script>'&`
	for i, topic := range []string{"orders", "orders", "secret", hostile} {
		c := w.request(topic, fmt.Sprint("t", i), nil)
		c.Request.Due, c.Request.Settings.Tag = time.Now().Add(30*time.Minute).UnixMilli(), tag
		w.apply(c)
	}
	whole, some := w.as("operate"), w.browser()
	require.Eventually(t, func() bool {
		resp, _ := some.post("/sign-in", url.Values{"token": {token}, "next": {"/find"}})
		return resp.StatusCode == http.StatusSeeOther
	}, time.Minute, 50*time.Millisecond)
	_, page := whole.get("/?tag=sale")
	require.Contains(t, page, "4 tasks fall due. Deliveries stand at their due times, without their lateness.")
	require.NotContains(t, page, `id="lanes"`)
	_, page = some.get("/?tag=sale")
	require.Contains(t, page, "2 tasks fall due.")
	for _, name := range []string{"secret", "img", "script>x"} {
		require.NotContains(t, page, name)
	}
	_, page = some.get("/?tag=sale&topic=secret")
	require.Contains(t, page, "It is not known what falls due. Deliveries are not shown:")
	for _, path := range []string{"/?", "/find?", "/targets?do=pause&"} {
		for _, name := range []string{"topic", "tag"} {
			resp, page := whole.get(path + url.Values{name: {hostile}}.Encode())
			requireWhole(t, resp, page)
			require.NotContains(t, page, "<img")
			require.NotContains(t, page, "<script>")
		}
	}
}

// The river of a timer: what became of its runs, the worst of a bar, and those to come.
func TestTheRiverOfATimer(t *testing.T) {
	const minute, hour = 60_000, 3_600_000
	for every, ahead := range map[int64]int64{minute: 120, hour: 1440, 24 * hour: 7 * 1440, 400 * hour: 7 * 1440} {
		require.Equal(t, ahead, reachOfTimer(every).ahead, every)
	}
	now := time.Date(2026, 11, 29, 12, 0, 30, 0, time.UTC).UnixMilli()
	v := newRiver(now, reachOfTimer(minute), time.UTC)
	at := func(minutes int64, state string) api.AuditedRun {
		return api.AuditedRun{At: v.now + minutes*minute, State: state}
	}
	late := at(-2, "delivered")
	late.Late = 3000
	v.runs([]api.AuditedRun{
		at(-500, "missed"), at(-4, "not_expected"), at(-3, "delivered"), late, at(-2, "delivered"), at(-1, "delivered"), at(-1, "missed"), at(0, "delivered"), at(0, "pending"), at(1, "coming"), at(500, "coming"),
	}, v.now+2*minute)
	var said []string
	for _, b := range v.Bars {
		said = append(said, b.Says)
	}
	require.ElementsMatch(t, []string{"11:57: 1 sent", "11:58: 2 run, some late or held", "11:59: 2 run, some missed or failed", "12:00: 1 sent", "12:00: 1 to come", "12:01: 1 to come"}, said)
	require.Contains(t, v.Note, "Runs from 12:02 on are not shown")
}
