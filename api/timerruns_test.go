package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// remember says that tasks are kept for a day.
func (w *world) remember() {
	w.t.Helper()
	require.NoError(w.t, intake.New(w.store).ForgetUpTo(w.t.Context(), time.Now().Add(-24*time.Hour).UnixMilli()))
}

// TestOneRunOfATimer: made once for one instant, whatever characters the id has, and in the audit log.
func TestOneRunOfATimer(t *testing.T) {
	w := newWorld(t)
	w.remember()
	w.setTimer("orders", "a/b ü", schemas.Timer{Cron: "30 2 * * *"}, []byte("v"))
	w.timerOp(schemas.OpTimerDisable, "orders", "a/b ü")
	at := time.Now().Add(-time.Minute).UnixMilli()
	for _, body := range []string{`{"at":%d}`, `{"at":"%d"}`, `{"at":%d}`} {
		code, answer := w.do("POST", "/api/v1/timers/orders/a%2Fb%20%C3%BC/run?wait=20s", fmt.Sprintf(body, at))
		require.Equal(t, http.StatusOK, code, answer)
		var run TimerRun
		require.NoError(t, json.Unmarshal([]byte(answer), &run))
		require.Equal(t, TimerRun{Topic: "orders", Timer: "a/b ü", ID: fmt.Sprintf("a/b ü@%d", at), At: at, Made: body == `{"at":%d}` && run.Made}, run)
	}
	again, err := w.client.RunTimer(t.Context(), "orders", "a/b ü", RunTimer{At: At(at)})
	require.NoError(t, err)
	require.False(t, again.Made, "once")
	code, answer := w.do("POST", "/api/v1/timers/orders/a%2Fb%20%C3%BC/run", "")
	require.Equal(t, http.StatusOK, code, answer)
	require.Contains(t, answer, `"made":true`)
	made, err := w.client.Task(t.Context(), "orders", again.ID)
	require.NoError(t, err)
	require.Equal(t, "v", *made.Value)
	log, err := w.client.Audit(t.Context(), AuditFilter{})
	require.NoError(t, err)
	require.Len(t, log.Entries, 2, "what changed nothing is not in the audit log")
	require.Equal(t, []string{"timer-run", "a/b ü"}, []string{log.Entries[1].What, log.Entries[1].Task})

	_, err = w.client.RunTimer(t.Context(), "orders", "none", RunTimer{})
	require.ErrorIs(t, err, look.ErrNoTimer)
	for _, c := range []struct{ path, body, field, problem string }{
		{"run", fmt.Sprintf(`{"at":%d}`, time.Now().Add(time.Hour).UnixMilli()), "body.at", "future"},
		{"run", fmt.Sprintf(`{"at":%d}`, time.Now().Add(-48*time.Hour).UnixMilli()), "body.at", "nobody remembers"},
		{"run", `{"at":"yesterday"}`, "body.at", "RFC 3339"},
		{"run", `{"at":1764000000}`, "body.at", "seconds"},
		{"run?wait=x", ``, "query.wait", "2s"},
		{"backfill", `{"from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"}`, "body.to", "not after from"},
		{"backfill", `{}`, "from", "from"},
		{"backfill", `{"from":1764000000}`, "body.from", "seconds"},
	} {
		code, answer := w.do("POST", "/api/v1/timers/orders/a%2Fb%20%C3%BC/"+c.path, c.body)
		require.Equal(t, 422, code, c.body+answer)
		require.Contains(t, answer, c.field, c.body)
		require.Contains(t, answer, c.problem, c.body)
	}
}

// TestBackfill: once each, whoever was stopped half way, and no more than is meant.
func TestBackfill(t *testing.T) {
	w := newWorld(t)
	w.remember()
	now := time.Now().Truncate(time.Second)
	w.setTimer("orders", "t", schemas.Timer{Every: time.Minute}, []byte("v"))
	ask := func(r Backfill) Backfilled {
		t.Helper()
		if r.To == (Instant{}) {
			r.To = At(now.UnixMilli())
		}
		out, err := w.client.BackfillTimer(t.Context(), "orders", "t", r)
		require.NoError(t, err)
		return out
	}
	from := At(now.Add(-600 * time.Minute).UnixMilli())
	require.Equal(t, Backfilled{Made: 600, BeforeSet: 600}, ask(Backfill{From: from, DryRun: true}))
	w.local.changeFor = 0 // each request ends with its first piece
	first := ask(Backfill{From: from})
	require.Equal(t, 200, first.Made)
	require.Equal(t, now.Add(-400*time.Minute).UnixMilli()/60_000, first.Next/60_000)
	w.local.changeFor = changeBudget
	require.Equal(t, Backfilled{Made: 400, Existing: 200, BeforeSet: 600}, ask(Backfill{From: from}), "the same request goes on")
	require.Equal(t, Backfilled{Existing: 600, BeforeSet: 600}, ask(Backfill{From: from}))
	log, err := w.client.Audit(t.Context(), AuditFilter{})
	require.NoError(t, err)
	require.Len(t, log.Entries, 2)
	require.Equal(t, []int64{400, 200}, []int64{log.Entries[0].Count, log.Entries[1].Count})

	long := At(now.Add(-30 * time.Hour).UnixMilli())
	got := ask(Backfill{From: long, To: from})
	require.InDelta(t, 360, got.Forgotten, 5)
	require.Equal(t, 1200, got.Made+got.Forgotten)
	require.Equal(t, got.Forgotten, ask(Backfill{From: long, To: from, Forgotten: true}).Made)

	_, err = w.client.BackfillTimer(t.Context(), "orders", "none", Backfill{From: from})
	require.ErrorIs(t, err, look.ErrNoTimer)
	refused := func(timer, from, problem string) {
		t.Helper()
		code, answer := w.do("POST", "/api/v1/timers/orders/"+timer+"/backfill", `{"from":"`+from+`"}`)
		require.Equal(t, 422, code, answer)
		require.Contains(t, answer, "body.from")
		require.Contains(t, answer, problem)
	}
	refused("t", "0001-01-01T00:00:00Z", "1970")
	refused("t", "1970-01-01T00:00:01Z", "more than 10000 runs")
	w.setTimer("orders", "large", schemas.Timer{Every: time.Minute}, make([]byte, 3<<20))
	refused("large", from.String(), "256 MiB")
	r := schemas.NewRequest(schemas.OpTimer, "orders", "alone")
	r.Timer, r.Accepted, r.Settings.Ack = schemas.Timer{Every: time.Minute, Overlap: schemas.OverlapSkip}, now.UnixMilli(), schemas.AckReport
	w.put(task.Change{Request: &r})
	refused("alone", from.String(), "overlap skip")
	code, answer := w.do("POST", "/api/v1/timers/orders/alone/backfill", fmt.Sprintf(`{"from":%d,"to":%d}`, now.Add(-90*time.Second).UnixMilli(), now.UnixMilli()))
	require.Equal(t, 200, code, answer)
	require.Contains(t, answer, `"made":1`)
}

// TestTimerAudit: what is there, what is coming, what was missed and why, and what nobody knows.
func TestTimerAudit(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Truncate(time.Minute)
	at := func(minutes int) int64 { return now.Add(time.Duration(minutes) * time.Minute).UnixMilli() }
	set := func(r schemas.Request, accepted int64) {
		r.Accepted = accepted
		w.put(task.Change{Request: &r})
	}
	r := schemas.NewRequest(schemas.OpTimer, "orders", "a/b")
	from, until := at(-20), at(30)
	r.Timer = schemas.Timer{Cron: "* * * * *", From: &from, Until: &until}
	set(r, at(-15))
	for _, op := range []schemas.Op{schemas.OpTimerDisable, schemas.OpTimerEnable} {
		w.timerOp(op, "orders", "a/b")
	}
	require.NoError(t, intake.New(w.store).ForgetUpTo(t.Context(), at(-14))) // remembered from two minutes later on
	now4, err := w.client.RunTimer(t.Context(), "orders", "a/b", RunTimer{At: At(at(-4))})
	require.NoError(t, err)
	cancel := schemas.NewRequest(schemas.OpCancel, "orders", now4.ID)
	cancel.Accepted = time.Now().UnixMilli()
	w.put(task.Change{Request: &cancel})
	_, err = w.client.RunTimer(t.Context(), "orders", "a/b", RunTimer{At: At(at(-3))})
	require.NoError(t, err)

	ask := func(from, to int64, limit int) TimerAudit {
		t.Helper()
		out, err := w.client.AuditTimer(t.Context(), "orders", "a/b", TimerAuditFilter{From: At(from), To: At(to), Limit: limit})
		require.NoError(t, err)
		return out
	}
	all := ask(at(-22), at(40), 0)
	require.Len(t, all.Runs, 62)
	told := map[int64]string{}
	for _, r := range all.Runs {
		require.Equal(t, timer.RunID("a/b", r.At), r.ID)
		told[(r.At-at(0))/60_000] = r.State + " " + r.Reason
	}
	for minute, want := range map[int64]string{
		-22: "not_expected before_from", -16: "not_expected not_set", -14: "unknown forgotten", -10: "missed disabled", -4: "cancelled ", -3: "pending ", 2: "coming ", 30: "coming ", 31: "not_expected after_until",
	} {
		require.Equal(t, want, told[minute], "minute %d", minute)
	}
	require.Equal(t, all.Expected, all.Made+all.Missed+all.Unknown+all.Coming)
	require.Equal(t, 2, all.Made)

	paged := TimerAudit{Runs: []AuditedRun{}}
	for from := at(-22); ; {
		page := ask(from, at(40), 7)
		require.LessOrEqual(t, len(page.Runs), 7)
		paged.Add(page)
		if from = page.Next; from == 0 {
			break
		}
	}
	require.Equal(t, all.Expected, paged.Expected)
	require.Len(t, paged.Runs, 62)

	_, err = w.client.AuditTimer(t.Context(), "orders", "none", TimerAuditFilter{})
	require.ErrorIs(t, err, look.ErrNoTimer)
	for query, field := range map[string]string{
		"from=x": "query.from", "to=1764000000": "query.to", "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": "query.to", "limit=0": "query.limit", "limit=1001": "query.limit", "step=1": "step",
	} {
		code, answer := w.do("GET", "/api/v1/timers/orders/a%2Fb/audit?"+query, "")
		require.Equal(t, 422, code, query+answer)
		require.Contains(t, answer, field, query)
	}
	code, answer := w.do("GET", "/api/v1/timers/orders/a%2Fb/audit", "")
	require.Equal(t, 200, code, answer)
	require.Contains(t, answer, `"next":`, "a day has 1440 minutes")
}

// TestAnAuditSaysWhatIsNotKnown: whether a run that was sent was late, and which runs an earlier definition had.
func TestAnAuditSaysWhatIsNotKnown(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UnixMilli() / 60_000 * 60_000
	require.NoError(t, intake.New(w.store).ForgetUpTo(t.Context(), now-86_400_000))
	set := func(at int64, when schemas.Timer) {
		t.Helper()
		r := schemas.NewRequest(schemas.OpTimer, "orders", "a")
		r.Timer, r.Accepted = when, at
		_, err := intake.New(w.store).Apply(t.Context(), w.batch(&r), store.At(at))
		require.NoError(t, err)
	}
	ask := func() TimerAudit {
		t.Helper()
		out, err := w.client.AuditTimer(t.Context(), "orders", "a", TimerAuditFilter{From: At(now - 40*60_000), To: At(now)})
		require.NoError(t, err)
		return out
	}
	set(now-30*60_000, schemas.Timer{Every: 7 * time.Minute, Timezone: "UTC"})
	set(now-29*60_000, schemas.Timer{Every: 7 * time.Minute, Timezone: "UTC"})
	require.Zero(t, ask().Replaced, "set again, it has the runs that it had")
	set(now-20*60_000, schemas.Timer{Every: 10 * time.Minute, Timezone: "UTC"})
	out := ask()
	require.Equal(t, now-20*60_000, out.Replaced)
	require.Equal(t, []string{task.RunUnknown, "replaced"}, []string{out.Runs[1].State, out.Runs[1].Reason}, "30 minutes ago")

	audited := func(made look.Run) AuditedRun {
		r := AuditedRun{At: 1000}
		made.Due = 1000
		r.tell(&task.Timer{}, made, 5000)
		out.count(&r)
		return r
	}
	out = TimerAudit{}
	for name, c := range map[string]struct {
		made     look.Run
		late     int64
		notKnown bool
	}{
		"delivered":                   {look.Run{View: look.View{State: "delivered"}, Place: 1000}, 0, true},
		"delivered, it was made late": {look.Run{View: look.View{State: "delivered", Created: 4000}, Place: 1000}, 3000, false},
		"delivered, it was put off":   {look.Run{View: look.View{State: "delivered"}, Place: 1500}, 500, false},
		"waits for its report":        {look.Run{View: look.View{State: "waiting_report"}, Place: 61_000}, 0, true},
		"succeeded":                   {look.Run{View: look.View{State: "succeeded"}, Place: 9000}, 0, true},
		"succeeded, it was made late": {look.Run{View: look.View{State: "succeeded", Created: 1001}, Place: 9000}, 1, false},
		"still pending":               {look.Run{View: look.View{State: "pending"}, Place: 1000}, 4000, false},
		"cancelled":                   {look.Run{View: look.View{State: "cancelled"}, Place: 500}, 0, false},
		"expired":                     {look.Run{View: look.View{State: "dead"}, Dead: "expired"}, 0, false},
		"undeliverable":               {look.Run{View: look.View{State: "dead"}, Dead: "undeliverable"}, 0, false},
		"dead":                        {look.Run{View: look.View{State: "dead"}, Dead: "dead"}, 0, true},
	} {
		r := audited(c.made)
		require.Equal(t, c.late, r.Late, name)
		require.Equal(t, c.notKnown, r.NotKnown, name)
	}
	require.Equal(t, []int{11, 4, 4}, []int{out.Made, out.Late, out.NotKnown})
}

// batch is a request as the next record of the intake.
func (w *world) batch(r *schemas.Request) intake.Batch {
	w.next++
	return intake.Batch{Advance: []intake.Advance{{Source: w.source.ID, From: w.next - 1, To: w.next}}, Changes: []task.Change{{Seq: task.Seq(w.source.ID, w.next-1), Request: r}}}
}

// TestMissedRunsAreAudited: missed is said of a run that was dropped or passed while the timer was disabled, and of no other.
func TestMissedRunsAreAudited(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UnixMilli() / 60_000 * 60_000
	require.NoError(t, intake.New(w.store).ForgetUpTo(t.Context(), now-86_400_000))
	r := schemas.NewRequest(schemas.OpTimer, "orders", "a")
	r.Timer, r.Accepted = schemas.Timer{Every: time.Minute, Misfire: schemas.MisfireSkip}, now-20*60_000
	_, err := intake.New(w.store).Apply(t.Context(), w.batch(&r), store.At(now-20*60_000))
	require.NoError(t, err)
	epoch, err := intake.New(w.store).Line().NextEpoch(t.Context())
	require.NoError(t, err)
	slots, err := intake.New(w.store).Line().Acquire(t.Context(), []int{0, 1, 2, 3}, epoch, "me")
	require.NoError(t, err)
	require.Len(t, slots, 4)
	var owned []store.SlotEpoch
	for slot := range 4 {
		owned = append(owned, store.SlotEpoch{Slot: slot, Epoch: epoch})
	}
	makeRuns := func(at int64) {
		t.Helper()
		_, err := intake.New(w.store).MakeRuns(t.Context(), owned, at+90_000, at, time.Minute, map[[16]byte]bool{})
		require.NoError(t, err)
	}
	makeRuns(now - 20*60_000) // 20 and 19 minutes ago
	makeRuns(now - 10*60_000) // 18 to 12 are missed
	off := schemas.NewRequest(schemas.OpTimerDisable, "orders", "a")
	_, err = intake.New(w.store).Apply(t.Context(), w.batch(&off), store.At(now-10*60_000+1))
	require.NoError(t, err)
	out, err := w.client.AuditTimer(t.Context(), "orders", "a", TimerAuditFilter{From: At(now - 25*60_000), To: At(now + 5*60_000)})
	require.NoError(t, err)
	told := map[int64]string{}
	for _, r := range out.Runs {
		told[(r.At-now)/60_000] = r.State + " " + r.Reason
	}
	require.Equal(t, []string{"not_expected not_set", "missed misfire", "missed misfire", "missed disabled", "not_expected disabled"}, []string{told[-21], told[-18], told[-12], told[-5], told[3]})
	require.Equal(t, out.Expected, out.Missed+out.Made)
}
