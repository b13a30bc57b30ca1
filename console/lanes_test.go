package console

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/task"
)

// Targets that do not answer come first, then paused ones, then those with most late and dead tasks,
// then busy ones. A pause covers its time, and a dot has the letters of its time.
func TestLanes(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 31, 0, time.UTC)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	letters := []deadletter.Letter{{Topic: "many", DiedAt: ago(0)}, {Topic: "many", DiedAt: ago(time.Minute)}, {Topic: "few", DiedAt: ago(31 * time.Minute)}, {Topic: "many", DiedAt: ago(119 * time.Minute)}, {Topic: "old", DiedAt: ago(6*time.Hour + 2*time.Hour)}}
	all := &api.Overview{Targets: api.TroubledTargets{Unresponsive: []string{"silent"}, Paused: []string{"ended", "paused"}, Limited: []string{"limited"}}}
	policies := []api.TargetPolicy{{Topic: "paused", Held: 12, Paused: true, Changed: ago(30 * time.Minute)}, {Topic: "ended", Paused: true, Changed: ago(3 * time.Hour), Until: ago(-time.Hour)}, {Topic: "limited", Held: 1000}, {Topic: "open", Held: 3}}
	for _, of := range reaches {
		v := newRiver(now.UnixMilli(), of, time.UTC)
		got := newLanes(v, all, policies, letters)
		var names, states []string
		at := map[string]lane{}
		for _, l := range got.Lanes {
			names, states, at[l.Topic] = append(names, l.Topic), append(states, l.State()), l
			require.LessOrEqual(t, l.From+l.Width, v.Width)
			count := 0
			for _, d := range l.Dots {
				count += d.Count
				require.LessOrEqual(t, d.X, v.Now)
				require.GreaterOrEqual(t, d.X, 0)
			}
			require.Equal(t, l.Dead, count)
			require.LessOrEqual(t, len(l.Dots), laneCells+1)
		}
		require.Equal(t, "silent ended paused many few limited", strings.Join(names, " "))
		require.Equal(t, []string{"does not answer", "paused, and changed last at 2026-11-29 09:00:31.000 UTC, 0 tasks wait", "paused, and changed last at 2026-11-29 11:30:31.000 UTC, 12 tasks wait", "", "", "limited, 1000 or more tasks wait"}, states)
		require.False(t, got.More)
		unknown := newLanes(v, &api.Overview{Targets: api.TroubledTargets{Paused: []string{"unread"}}}, policies, nil).Lanes[0]
		require.Equal(t, []any{"paused", v.Now, barWidth}, []any{unknown.State(), unknown.From, unknown.Width}, "its time is not known")
		require.Equal(t, v.Width, at["paused"].From+at["paused"].Width)
		require.Equal(t, 3, at["many"].Dead)
		if of.step == 1 {
			require.Equal(t, []int{450, 750}, []int{at["paused"].From, at["paused"].Width})
			require.Equal(t, []int{0, 900}, []int{at["ended"].From, at["ended"].Width})
			require.Equal(t, 3, len(at["many"].Dots))
			require.Equal(t, "/deadletters?since=1795946400000&topic=few", at["few"].Letters())
			require.Equal(t, "11:20: 1 dead", at["few"].Dots[0].Says())
		}
	}
	v := newRiver(now.UnixMilli(), reaches[0], time.UTC)
	minute := func(before, sent, late, veryLate int64) api.TrafficMinute {
		return api.TrafficMinute{At: v.now - before*60_000, Delivered: sent, Late: late, VeryLate: veryLate}
	}
	all.Traffic = []api.Traffic{
		{Topic: "sick", Series: []api.TrafficMinute{minute(120, 10, 10, 10), minute(119, 10, 0, 0), minute(1, 100, 2, 0), minute(121, 7, 7, 7)}}, {Topic: "dying", Series: []api.TrafficMinute{{At: v.now, Dead: 4}}},
		{Topic: "busy", Series: []api.TrafficMinute{minute(60, 1600, 0, 0)}}, {Topic: "limited", Series: []api.TrafficMinute{minute(60, 16, 0, 0)}},
	}
	busy := newLanes(v, all, policies, letters)
	var names []string
	for _, l := range busy.Lanes {
		names = append(names, l.Topic)
	}
	require.Equal(t, "silent ended paused sick dying many few busy limited", strings.Join(names, " "))
	require.Equal(t, "at least 120 delivered, 12 of them late", busy.Lanes[3].State())
	require.Equal(t, []flow{{"late", "M550 16V12h49V16"}, {"very-late", "M0 16V15h49V16"}}, busy.Lanes[3].Flow)
	require.Equal(t, []flow{{"sent", "M300 16V0h49V16"}}, busy.Lanes[7].Flow)
	require.False(t, busy.More)
	all.Targets.Unresponsive = strings.Split("a b c d e f g h i", " ")
	got := newLanes(newRiver(now.UnixMilli(), reaches[0], time.UTC), all, nil, letters)
	require.Len(t, got.Lanes, shownLanes)
	require.True(t, got.More)
}

// A pause, with its time, and dead letters are on the first page, as a picture and as a
// table. A token for one topic sees nothing of others.
func TestTheFirstPageHasLanes(t *testing.T) {
	w := newWorld(t, true)
	token, entry := access.NewToken("some", access.Read, []string{"orders*"})
	text, err := yaml.Marshal([]access.Entry{entry})
	require.NoError(t, err)
	old, err := os.ReadFile(w.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.file, append(old, text...), 0o600))
	w.tokens["some"] = token
	b := w.as("operate")
	_, page := b.get("/")
	require.NotContains(t, page, `id="lanes"`)
	const hostile = `bills"<script>x</script>`
	for _, topic := range []string{"orders.eu", "orders.eu", hostile} {
		w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: topic, TaskID: fmt.Sprint(w.next), Reason: "bad"})
	}
	for _, topic := range []string{"orders.us", "secret"} {
		_, err = w.fleet.ChangeTarget(t.Context(), topic, api.TargetChange{Paused: new(true)})
		require.NoError(t, err)
	}
	require.NoError(t, admin.New(w.store).SaveMinute(t.Context(), "d1", time.Now().Unix()/60-3, []byte(`{"v":1,"n":{"delivered":9},"targets":[{"t":"orders.uk","n":[5,1]},{"t":"secret","n":[4]},{"t":"bills\"<b onclick=x>","n":[2]}]}`)))
	require.Eventually(t, func() bool {
		_, page = b.get("/") // an overview is shown for some time
		return strings.Contains(page, "orders.us is paused")
	}, time.Minute, 50*time.Millisecond)
	_, lanes, found := strings.Cut(page, `id="lanes"`)
	require.True(t, found)
	require.Contains(t, page, "<h3>Targets, those in trouble first</h3>")
	require.Contains(t, lanes, `paused, and changed last at 2`)
	require.Contains(t, lanes, "0 tasks wait")
	require.Equal(t, 2, strings.Count(lanes, `<rect fill="url(#hatch)"`))
	require.Contains(t, lanes, `<a href="/find?topic=orders.us" tabindex="-1"><rect`)
	require.Regexp(t, `<a href="/deadletters\?since=\d+&amp;topic=orders.eu" tabindex="-1"><circle cx="\d+" cy="8" r="4"><title>\d\d:\d\d: 2 dead</title>`, lanes)
	require.Regexp(t, `<td><a href="/find\?topic=orders.eu">orders.eu</a></td><td></td><td><a href="/deadletters\?since=\d+&amp;topic=orders.eu">2</a></td><td><time`, lanes)
	require.Contains(t, lanes, `>none</td>`)
	require.Contains(t, lanes, "bills&#34;&lt;script&gt;")
	require.Contains(t, lanes, "at least 6 delivered, 1 of them late")
	require.Regexp(t, `<a href="/\?topic=bills%22%3Cb&#43;onclick%3Dx%3E" tabindex="-1"><path class="sent" d="M\d+ 16V\d+h49V16"/></a>`, lanes)
	require.NotContains(t, page, "there are older ones")
	resp, page := b.get("/?topic=orders.uk")
	requireWhole(t, resp, page)
	require.NotContains(t, page, `id="lanes"`)
	require.Regexp(t, `<g class="late"><a href="/find\?ended=on&amp;from=\d+&amp;to=\d+&amp;topic=orders.uk" tabindex="-1"><path d="M\d+ 120V0"><title>\d\d:\d\d: 6 delivered, p99 over 1 s late</title>`, page)

	some := w.browser()
	require.Eventually(t, func() bool {
		resp, _ := some.post("/sign-in", map[string][]string{"token": {token}, "next": {"/find"}})
		return resp.StatusCode == http.StatusSeeOther
	}, time.Minute, 50*time.Millisecond)
	resp, page = some.get("/")
	requireWhole(t, resp, page)
	require.Contains(t, page, "paused, and changed last")
	require.Contains(t, page, "2 dead letters")
	require.Contains(t, page, "at least 6 delivered")
	require.NotContains(t, page, "secret")
	require.NotContains(t, page, "bills")
	resp, page = some.get("/?topic=secret")
	requireWhole(t, resp, page)
	require.NotContains(t, page, "4 delivered")
	require.Contains(t, page, "Deliveries are not shown: they are not known.")

	for range laneLetters {
		w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: "orders.eu", TaskID: fmt.Sprint(w.next), Reason: "bad"})
	}
	require.Eventually(t, func() bool {
		_, page = b.get("/")
		return strings.Contains(page, "Dead letters are the latest 200: there are older ones.")
	}, time.Minute, 50*time.Millisecond)
	require.Contains(t, page, "200 dead letters")
	require.NotContains(t, page, ">none</td>")
}

// Full lanes under a full river are still a small page. Nothing is told of letters that were not
// looked at.
func TestLanesAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 31, 0, time.UTC)
	v := newRiver(now.UnixMilli(), reaches[0], time.UTC)
	late := 1500.0
	var minutes []api.Minute
	var steps []api.ForecastStep
	for i := range int64(120) {
		minutes = append(minutes, api.Minute{At: v.begin + i*60_000, Work: api.Work{Delivered: 200, LatenessP99: &late}})
		steps = append(steps, api.ForecastStep{At: v.now + i*60_000, Count: 12_345})
	}
	v.flow(minutes)
	v.come(steps)
	v.draw("", "")
	all := api.Overview{Now: &api.Work{}}
	var letters []deadletter.Letter
	var policies []api.TargetPolicy
	for i := range laneLetters {
		topic := fmt.Sprintf("%04d%s", i%shownLanes, strings.Repeat("-a-longer-name", 17))
		letters = append(letters, deadletter.Letter{Topic: topic, DiedAt: v.now - int64(i)*36_000})
		if i < 6 {
			all.Targets.Paused = append(all.Targets.Paused, topic)
			policies = append(policies, api.TargetPolicy{Topic: topic, Paused: true, Held: 1000, Changed: v.begin})
		}
		if i < shownLanes {
			busy := api.Traffic{Topic: fmt.Sprintf("shop.orders.of-an-ordinary-%02d", i)}
			for m := range int64(120) {
				busy.Series = append(busy.Series, api.TrafficMinute{At: v.begin + m*60_000, Delivered: 12_345, Late: (m / 10 % 3) * 1000, VeryLate: (m / 10 % 2) * 500})
			}
			all.Traffic = append(all.Traffic, busy)
		}
	}
	long := newLanes(v, &all, policies, letters)
	require.Less(t, len(long.Lanes), shownLanes, "a name stands in several links")
	require.True(t, long.More)
	ordinary := newLanes(v, &api.Overview{Traffic: all.Traffic}, nil, nil)
	require.Len(t, ordinary.Lanes, shownLanes)
	require.False(t, ordinary.More)
	d := &overviewData{River: v, All: all, Lanes: long}
	for i := range 20 {
		d.All.Targets.Unresponsive = append(d.All.Targets.Unresponsive, fmt.Sprintf("another-with-a-longer-name-%04d", i))
		d.Cluster.Services = append(d.Cluster.Services, api.Service{Kind: "dispatcher", HTTP: "10.123.123.123:8080", Version: "v1.2.3-0.20261130"})
	}
	d.All.Targets.Limited = d.All.Targets.Unresponsive
	d.Lanes.Looked, d.Lanes.Older, d.Lanes.More, d.LanesErr = laneLetters, true, true, "the database is away"
	d.Lanes.Lanes[1].Dead = 0
	var out bytes.Buffer
	troubled := d.All.Targets
	troubled.Paused = troubled.Unresponsive
	require.NoError(t, pages["overview"].ExecuteTemplate(&out, "layout", shown{Data: &overviewData{River: v, All: api.Overview{Targets: troubled}, Cluster: d.Cluster, Lanes: ordinary}, Page: "overview", Sections: sections, Operate: true}))
	require.Less(t, out.Len(), 60<<10, "ten lanes with ordinary names")
	out.Reset()
	require.NoError(t, pages["overview"].ExecuteTemplate(&out, "layout", shown{Data: d, Page: "overview", Sections: sections, Operate: true}))
	require.Less(t, out.Len(), 60<<10)
	require.Contains(t, out.String(), "1000 or more tasks wait, 20 dead letters")
	require.Contains(t, out.String(), "Others are in trouble too")
	require.Contains(t, out.String(), "Dead letters are the latest 200: there are older ones.")
	require.Contains(t, out.String(), "Of targets in trouble, not all is known: the database is away")
	require.Contains(t, out.String(), ">not known</td>")
	require.NotContains(t, out.String(), ">none</td>")
}
