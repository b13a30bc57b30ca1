package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// fresh forgets the overview that was shown last.
func (w *world) fresh() { w.local.overview.last.Store(nil) }

func (w *world) overview(minutes int) Overview {
	w.t.Helper()
	w.fresh()
	out, err := w.client.Overview(w.t.Context(), minutes, "")
	require.NoError(w.t, err)
	return out
}

func (o Overview) alerts() map[string]string {
	out := map[string]string{}
	for _, a := range o.Alerts {
		out[a.Name] = a.Why
	}
	return out
}

func TestOverview(t *testing.T) {
	w := newWorld(t)
	empty := w.overview(180)
	require.Empty(t, empty.Missing)
	require.Equal(t, Reporting{}, empty.Services)
	require.Equal(t, &Overdue{}, empty.Overdue)
	require.Nil(t, empty.Now.LatenessP99, "of nothing there is no lateness")
	require.Contains(t, empty.alerts(), "NotyetNoScanner")
	require.Contains(t, empty.alerts(), "NotyetNoDispatcher")
	require.Equal(t, "4 of 4 slots have no living owner", empty.alerts()["NotyetUnownedSlots"])

	ctx := t.Context()
	require.NoError(t, admin.New(w.store).Beat(ctx, admin.Service{ID: "s", Kind: "scanner", Figures: []byte(`{"v":1,"window_ms":60000,"last":{"n":{"stored":120,"rejected":6}}}`)}))
	require.NoError(t, admin.New(w.store).Beat(ctx, admin.Service{ID: "d1", Kind: "dispatcher", Member: "me",
		Figures: []byte(`{"v":1,"window_ms":60000,"last":{"n":{"delivered":990},"lateness":[990]},"levels":{"claimed":500000,"unresponsive":2},"targets":["bills"]}`)}))
	require.NoError(t, admin.New(w.store).Beat(ctx, admin.Service{ID: "d2", Kind: "dispatcher", Member: "other",
		Figures: []byte(`{"v":1,"window_ms":30000,"last":{"n":{"delivered":60},"lateness":[0,0,0,0,60]},"levels":{"claimed":1},"targets":["orders"],"more":3}`)}))
	require.NoError(t, admin.New(w.store).Beat(ctx, admin.Service{ID: "later", Kind: "scanner", Figures: []byte(`{"v":2}`)}))
	_, err := intake.New(w.store).Line().Acquire(ctx, []int{0, 1, 2, 3}, 7, "me")
	require.NoError(t, err)
	for topic, p := range map[string]admin.Policy{"paused": {Paused: true, Rate: 5}, "limited": {Rate: 5}, "open": {}} {
		_, err := admin.New(w.store).SetPolicy(ctx, topic, 1, func(admin.Policy) admin.Policy { return p })
		require.NoError(t, err)
	}
	due := time.Now().Add(-time.Hour).UnixMilli()
	w.schedule("orders", "late", due, nil, nil)
	w.schedule("orders", "coming", time.Now().Add(time.Hour).UnixMilli(), nil, nil)
	w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: "dead", Reason: "bad"}})

	got := w.overview(180)
	require.Empty(t, got.Missing)
	require.Equal(t, Reporting{Alive: 4, Reporting: 3}, got.Services, "one is of a later version")
	require.InDelta(t, time.Now().UnixMilli(), got.At, 60_000)
	require.InDelta(t, 990.0/60+60.0/30, got.Now.Delivered, 0.001)
	require.InDelta(t, 2.0, got.Now.Stored, 0.001)
	require.InDelta(t, 0.1, got.Now.Dead, 0.001)
	require.Less(t, *got.Now.LatenessP50, 0.5)
	require.Greater(t, *got.Now.LatenessP99, 4.0, "60 of 1050 came between 4 and 8 ms")
	require.Less(t, *got.Now.LatenessP99, 8.0)
	require.Equal(t, int64(1), got.Overdue.Count)
	require.False(t, got.Overdue.More)
	require.Equal(t, due, got.Overdue.Oldest)
	require.Equal(t, []LetterKind{{Kind: "rejected", Count: 1}}, got.DeadLetters)
	require.Equal(t, TroubledTargets{Unresponsive: []string{"bills", "orders"}, MoreUnresponsive: 3, Paused: []string{"paused"}, Limited: []string{"limited"}}, got.Targets)
	require.Equal(t, map[string]string{
		"NotyetBacklog": "500001 tasks are claimed and not settled", "NotyetTargetSick": "2 partitions of targets, and origins of callbacks, do not answer",
	}, got.alerts())

	for _, bad := range []string{"0", "361", "x"} {
		code, answer := w.do("GET", "/api/v1/overview?minutes="+bad, "")
		require.Equal(t, 422, code, answer)
		require.Contains(t, answer, "minutes")
	}
}

func TestOverviewSeries(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	newest := time.Now().Add(-arrival).Unix()/60 - 1
	put := func(process string, minute int64, data string) {
		t.Helper()
		require.NoError(t, admin.New(w.store).SaveMinute(ctx, process, minute, []byte(data)))
	}
	put("a", newest-50, `{"v":1,"n":{"delivered":60,"stored":6},"lateness":[60]}`)
	put("b", newest-50, `{"v":1,"n":{"delivered":60,"dead":6},"lateness":[0,0,0,60]}`)
	put("c", newest-50, `{"v":2,"n":{"delivered":1000}}`)
	put("a", newest-300, `{"v":1,"n":{"delivered":600}}`)
	put("a", newest, `{"v":1,"n":{"delivered":120}}`)
	put("a", newest+20, `{"v":1,"n":{"delivered":120}}`) // of a clock that was wrong

	series := w.overview(360).Series
	require.Len(t, series, 3)
	require.Equal(t, (newest-300)*60_000, series[0].At)
	require.InDelta(t, 10.0, series[0].Delivered, 0.001)
	p50, p99 := series[1].LatenessP50, series[1].LatenessP99
	require.Less(t, *p50, 0.51)
	require.Greater(t, *p99, 2.0, "of both together")
	series[1].LatenessP50, series[1].LatenessP99 = nil, nil
	require.Equal(t, Minute{At: (newest - 50) * 60_000, Work: Work{Delivered: 2, Stored: 0.1, Dead: 0.1}}, series[1])
	require.Equal(t, newest*60_000, series[2].At)
	require.Len(t, w.overview(100).Series, 2, "no more minutes than were asked for")

	put("late", newest, `{"v":1,"n":{"delivered":60}}`)
	// A minute may end while the test runs.
	require.InDelta(t, 3.0, w.overview(2).Series[0].Delivered, 0.001, "figures that arrive late count")
	other := newOverviewer(w.store)
	again, err := other.get(ctx)
	require.NoError(t, err)
	require.Equal(t, w.overview(360).Series, again.Series, "each process shows the same, and one that was restarted too")
}

// A process reads what is final once. So how much is read does not grow with the hours, nor with
// how often pages ask.
func TestOverviewReadsFinalMinutesOnce(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	now := time.Unix(1_800_000_000, 0)
	newest := last(now)
	put := func(minute int64, n int) {
		t.Helper()
		require.NoError(t, admin.New(w.store).SaveMinute(ctx, "a", minute, fmt.Appendf(nil, `{"v":1,"n":{"delivered":%d}}`, n)))
	}
	for m := newest - 100; m <= newest; m++ {
		put(m, 60)
	}
	s := &w.local.overview.series
	require.NoError(t, s.read(ctx, now))
	require.Len(t, points(s.minutes, now), 101)

	for m := newest - 100; m <= newest; m++ {
		put(m, 120) // which nobody does once it is final
	}
	require.NoError(t, s.read(ctx, now))
	double := 0
	for _, p := range points(s.minutes, now) {
		if p.Delivered == 2 {
			double++
		}
	}
	require.Equal(t, figures.FinalAfter, double, "the others were not read again")

	later := now.Add(3 * time.Hour)
	require.NoError(t, s.read(ctx, later))
	for m := newest - figures.FinalAfter + 1; m <= newest; m++ {
		require.Equal(t, int64(120), s.minutes[m].N[figures.Delivered], "what became final meanwhile was read once more")
	}
	require.Len(t, points(s.minutes, later), 101)
	require.NoError(t, s.read(ctx, now))
	require.Len(t, points(s.minutes, now), 101, "a clock that was set back")
	require.NoError(t, s.read(ctx, now.Add(48*time.Hour)))
	require.Empty(t, points(s.minutes, now.Add(48*time.Hour)))
	require.Empty(t, s.minutes, "nothing is kept that is not shown")

	// A reading that is cut off goes on where it was.
	cut := newOverviewer(w.store)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, cut.series.read(ended, now))
	require.NoError(t, cut.series.read(ctx, now))
	require.Len(t, points(cut.series.minutes, now), 101)
}

func TestOverviewOfADatabaseThatIsAway(t *testing.T) {
	w := newWorld(t)
	w.local.overview.turn <- struct{}{} // somebody waits for the database
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := w.local.overview.get(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "whoever comes meanwhile does not wait for ever")
	require.Equal(t, 504, statusOf(problem(err)))
	<-w.local.overview.turn

	shown, err := w.local.overview.get(t.Context())
	require.NoError(t, err)
	w.local.overview.last.Store(&shownOverview{at: time.Now().Add(time.Minute), Overview: shown}) // however long this machine stands still
	w.local.overview.turn <- struct{}{}
	again, err := w.local.overview.get(t.Context())
	require.NoError(t, err, "one that is not old costs nothing")
	require.Equal(t, shown, again)
}

func statusOf(err error) int {
	var status interface{ GetStatus() int }
	if errors.As(err, &status) {
		return status.GetStatus()
	}
	return 0
}

// An overview is for all who ask meanwhile. One of them may leave while it is read.
func TestACallerWhoLeavesSpoilsNoOverview(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		w.fresh()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond)
		_, _ = w.local.overview.get(ctx)
		cancel()
		out, err := w.local.overview.get(t.Context())
		require.NoError(t, err)
		require.Empty(t, out.Missing)
	}
}

func TestOverviewNamesWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	o := newOverviewer(w.store)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var p parts
	o.readParts(ended, time.Now(), &p)
	names := map[string]bool{}
	for _, m := range p.missing {
		require.NotEmpty(t, m.Why)
		names[m.What] = true
	}
	require.Equal(t, map[string]bool{"series": true, "overdue": true, "dead_letters": true, "targets": true, "alerts": true}, names)
	require.True(t, p.misses("overdue"))
}

func TestAlertsOfTheOverview(t *testing.T) {
	text, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(t, err)
	known := map[string]string{}
	for _, m := range regexp.MustCompile(`- alert: (\w+)\n +expr: (.*)`).FindAllStringSubmatch(string(text), -1) {
		known[m[1]] = m[2]
	}
	for _, r := range rules {
		expr, there := known[r.name]
		require.True(t, there, "%s is not in docs/alerts.yml", r.name)
		delete(known, r.name)
		if r.judge != nil {
			continue
		}
		for _, m := range regexp.MustCompile(`> (\S+)`).FindAllStringSubmatch(expr, -1) {
			most, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err, expr)
			require.InDelta(t, most, r.most, 0, "%s: %s", r.name, expr)
		}
		var minutes int64
		if m := regexp.MustCompile(`\[(\w+)\]`).FindStringSubmatch(expr); m != nil {
			d, err := time.ParseDuration(m[1])
			require.NoError(t, err, expr)
			minutes = int64(d.Minutes())
		}
		require.Equal(t, minutes, r.minutes, "%s: %s", r.name, expr)
	}
	require.Empty(t, known, "what Prometheus tells, the overview tells")

	all := []admin.Service{{Kind: "all", Member: "me"}}
	owned := []store.Slot{{Slot: 0, Owner: "me"}}
	late := make(figures.Histogram, 16)
	late[15] = 5
	for name, c := range map[string]struct {
		e       evidence
		minutes int64          // how many minutes the counts are old; 0: they are of the latest
		counts  figures.Counts // of the latest minutes
		want    string
	}{
		"all is well":                       {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.Delivered: 1 << 40, figures.StoreErrors: 30}, Lateness: figures.Histogram{5}}},
		"late":                              {e: evidence{services: all, slots: owned}, counts: figures.Counts{Lateness: late}, want: "NotyetLate"},
		"late a while ago":                  {e: evidence{services: all, slots: owned}, minutes: 5, counts: figures.Counts{Lateness: late}},
		"scanners cannot store":             {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.StoreErrors: 31}}, want: "NotyetIntakeBacklog"},
		"scanners cannot read":              {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.FetchErrors: 31}}, want: "NotyetIntakeBacklog"},
		"given up":                          {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.Exhausted: 1}}, want: "NotyetRetriesExhausted"},
		"failed for good":                   {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.Failed: 1}}, want: "NotyetReportsExhausted"},
		"reports that cannot be read":       {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.BadReports: 1}}, want: "NotyetBadReports"},
		"runs missed a while ago":           {e: evidence{services: all, slots: owned}, minutes: 14, counts: figures.Counts{N: map[string]int64{figures.MissedRuns: 1}}, want: "NotyetTimerRunsMissed"},
		"some tokens are refused":           {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.FailedSignIns: 100}}},
		"somebody guesses tokens":           {e: evidence{services: all, slots: owned}, minutes: 14, counts: figures.Counts{N: map[string]int64{figures.FailedSignIns: 101}}, want: "NotyetSignInsFail"},
		"drift an hour ago":                 {e: evidence{services: all, slots: owned}, minutes: 59, counts: figures.Counts{N: map[string]int64{figures.IndexDrift: 1}}, want: "NotyetIndexDrift"},
		"drift longer ago":                  {e: evidence{services: all, slots: owned}, minutes: 60, counts: figures.Counts{N: map[string]int64{figures.IndexDrift: 1}}},
		"Redis is away":                     {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.IndexErrors: 31}}, want: "NotyetIndexMissed"},
		"Redis is incomplete":               {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.Swept: 31}}, want: "NotyetIndexMissed"},
		"mismatch":                          {e: evidence{services: all, slots: owned}, counts: figures.Counts{N: map[string]int64{figures.Mismatch: 1}}, want: "NotyetMismatch"},
		"the database was set back":         {e: evidence{services: all, slots: owned}, minutes: 14, counts: figures.Counts{N: map[string]int64{figures.Reread: 1}}, want: "NotyetDatabaseSetBack"},
		"a slot of a process that is gone":  {e: evidence{services: all, slots: []store.Slot{{Owner: "gone"}}}, want: "NotyetUnownedSlots"},
		"a free slot":                       {e: evidence{services: all, slots: []store.Slot{{}}}, want: "NotyetUnownedSlots"},
		"a free slot and scanners alone":    {e: evidence{services: []admin.Service{{Kind: "scanner"}, all[0]}, slots: []store.Slot{{}}}, want: "NotyetUnownedSlots"},
		"no scanner":                        {e: evidence{services: []admin.Service{{Kind: "dispatcher", Member: "me"}}, slots: owned}, want: "NotyetNoScanner"},
		"no dispatcher, slots are not read": {e: evidence{services: []admin.Service{{Kind: "scanner"}}}, want: "NotyetNoDispatcher"},
	} {
		t.Run(name, func(t *testing.T) {
			c.e.now = &figures.Total{}
			c.e.since = func(minutes int64) figures.Counts {
				if minutes > c.minutes {
					return c.counts
				}
				return figures.Counts{}
			}
			var got []string
			for _, a := range alerts(&c.e) {
				require.NotEmpty(t, a.Why)
				got = append(got, a.Name)
			}
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []string{c.want}, got)
		})
	}
}

func TestAlertsByLevel(t *testing.T) {
	for level, want := range map[string]string{
		figures.Halted: "NotyetIntakeHalted", figures.Standing: "NotyetIntakeStands", figures.Unclaimed: "NotyetOverdue", figures.Unsettled: "NotyetStuck",
		figures.Unresponsive: "NotyetTargetSick",
	} {
		e := &evidence{services: []admin.Service{{Kind: "all", Member: "me"}}, now: &figures.Total{Levels: map[string]int64{level: 1}},
			since: func(int64) figures.Counts { return figures.Counts{} }}
		found := alerts(e)
		require.Len(t, found, 1, level)
		require.Equal(t, want, found[0].Name)
		require.Contains(t, found[0].Why, "1", "how many")
		e.now.Levels = map[string]int64{figures.Overdue: 300}
		require.Empty(t, alerts(e))
		e.now.Levels[figures.Overdue]++
		require.Equal(t, "NotyetOldestOverdue", alerts(e)[0].Name)
		e.now.Levels = map[string]int64{figures.QuotaWait: 3600}
		require.Empty(t, alerts(e))
		e.now.Levels[figures.QuotaWait]++
		require.Equal(t, "NotyetIntakeAtQuota", alerts(e)[0].Name)
	}
}

// A token for some topics is told the figures of its topics, and of no others. What is of the whole
// installation is withheld, and never zero.
func TestOverviewOfSomeTopics(t *testing.T) {
	w := newWorld(t)
	late := time.Now().Add(-time.Hour).UnixMilli()
	for i := range 3 {
		w.schedule("orders", fmt.Sprint("late", i), late+int64(i), nil, nil)
		w.schedule("orders", fmt.Sprint("soon", i), time.Now().Add(30*time.Minute).UnixMilli(), nil, nil)
	}
	for i := range 5 {
		w.schedule("bills", fmt.Sprint("late", i), late-1000, nil, nil)
		w.schedule("bills", fmt.Sprint("soon", i), time.Now().Add(30*time.Minute).UnixMilli(), nil, nil)
		w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindDead, Topic: []string{"orders", "bills"}[i%2], TaskID: fmt.Sprint(i), Reason: "bad"}})
	}
	for _, topic := range []string{"orders", "bills"} {
		_, err := admin.New(w.store).SetPolicy(t.Context(), topic, 1, func(admin.Policy) admin.Policy { return admin.Policy{Paused: true} })
		require.NoError(t, err)
	}
	require.NoError(t, admin.New(w.store).Beat(t.Context(), admin.Service{ID: "d1", Kind: "dispatcher", Member: "me",
		Figures: []byte(`{"v":1,"window_ms":60000,"last":{"n":{"delivered":990},"lateness":[990]},"targets":["bills"],"more":2}`)}))
	require.NoError(t, admin.New(w.store).SaveMinute(t.Context(), "d1", last(time.Now())-3, []byte(`{"v":1,"n":{"delivered":9},"targets":[{"t":"orders","n":[5]},{"t":"bills","n":[4]}]}`)))
	asked := func(token, path string, into any) {
		t.Helper()
		code, text := w.as(token, "GET", path, "")
		require.Equal(t, 200, code, text)
		require.NoError(t, json.Unmarshal([]byte(text), into))
	}
	for token, c := range map[string]struct {
		topic         string
		overdue, dead int64
		oldest        int64
		silent        []string
	}{"read of orders": {"orders", 3, 3, late, []string{}}, "admin of bills": {"bills", 5, 2, late - 1000, []string{"bills"}}} {
		w.fresh()
		var got Overview
		asked(token, "/api/v1/overview?own=true", &got)
		require.Equal(t, &Overdue{Count: c.overdue, Oldest: c.oldest}, got.Overdue, token)
		require.Equal(t, []LetterKind{{schemas.KindDead, c.dead, false}}, got.DeadLetters, token)
		require.Equal(t, TroubledTargets{Unresponsive: c.silent, Paused: []string{c.topic}, Limited: []string{}}, got.Targets, token)
		require.Nil(t, got.Now)
		require.Empty(t, got.Series)
		require.Empty(t, got.Alerts)
		require.Empty(t, got.Missing)
		require.Equal(t, []string{"now", "series", "alerts"}, got.Withheld)
		require.Len(t, got.Traffic, 1, "no other topic")
		require.Equal(t, c.topic, got.Traffic[0].Topic)
		var due, named Forecast
		asked(token, "/api/v1/forecast?own=true", &due)
		asked(token, "/api/v1/forecast?topic="+c.topic, &named)
		require.NotEmpty(t, due.Steps)
		require.Equal(t, named.Steps[0].Count, due.Steps[0].Count)
	}
	w.fresh()
	var whole Overview
	asked("read", "/api/v1/overview", &whole)
	require.Equal(t, int64(8), whole.Overdue.Count)
	require.Empty(t, whole.Withheld)
	require.NotNil(t, whole.Now)
	require.Len(t, whole.Traffic, 2)
	code, _ := w.as("read of orders", "GET", "/api/v1/overview?own=true&topic=bills", "")
	require.Equal(t, 403, code)
	asked("read", "/api/v1/overview?topic=bills", &whole)
	require.Len(t, whole.Traffic, 1)
	require.Equal(t, int64(4), whole.Traffic[0].Series[0].Delivered)
}

// Sick targets come first and leave half of the room to busy ones.
func TestTrafficOfTargets(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	of := map[string]figures.Deliveries{}
	for i := range 20 {
		of[fmt.Sprintf("busy-%02d", i)] = figures.Deliveries{InTime: int64(100 + i)}
		of[fmt.Sprintf("sick-%02d", i)] = figures.Deliveries{Late: int64(i), VeryLate: 1, Dead: 2}
	}
	c := &condition{now: now, minutes: map[int64]figures.Minute{last(now): {Targets: of}, last(now) - 60: {Targets: map[string]figures.Deliveries{"old": {InTime: 1000}}}}}
	var names []string
	got := c.traffic("", 60, nil)
	for _, one := range got {
		names = append(names, one.Topic)
	}
	require.Equal(t, strings.Fields("sick-19 sick-18 sick-17 sick-16 sick-15 busy-19 busy-18 busy-17 busy-16 busy-15"), names)
	require.Equal(t, []TrafficMinute{{At: last(now) * 60_000, Delivered: 20, Late: 20, VeryLate: 1, Dead: 2}}, got[0].Series)
	require.Equal(t, "old", c.traffic("", 61, nil)[5].Topic)
	require.Len(t, c.traffic("busy-00", 60, nil), 1)
	require.Empty(t, c.traffic("old", 60, nil))
	require.Len(t, c.traffic("", 60, func(topic string) bool { return topic == "sick-00" }), 1)
}
