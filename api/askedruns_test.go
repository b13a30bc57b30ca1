package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
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
		code, answer := w.do("POST", "/api/v1/timers/orders/a%2Fb%20%C3%BC/run?wait=2s", fmt.Sprintf(body, at))
		require.Equal(t, http.StatusOK, code, answer)
		var run TimerRun
		require.NoError(t, json.Unmarshal([]byte(answer), &run))
		require.Equal(t, TimerRun{Topic: "orders", Timer: "a/b ü", ID: fmt.Sprintf("a/b ü@%d", at), At: at, Made: body == `{"at":%d}` && run.Made}, run)
	}
	again, err := w.client.RunTimer(t.Context(), "orders", "a/b ü", RunTimer{At: TimeText(fmt.Sprint(at))})
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
		if r.To == "" {
			r.To = TimeText(now.Format(time.RFC3339))
		}
		out, err := w.client.BackfillTimer(t.Context(), "orders", "t", r)
		require.NoError(t, err)
		return out
	}
	from := TimeText(now.Add(-600 * time.Minute).Format(time.RFC3339))
	require.Equal(t, Backfilled{Made: 600}, ask(Backfill{From: from, DryRun: true}))
	w.local.cancelFor = 0 // each request ends with its first piece
	first := ask(Backfill{From: from})
	require.Equal(t, 200, first.Made)
	require.Equal(t, now.Add(-400*time.Minute).UnixMilli()/60_000, first.Next/60_000)
	w.local.cancelFor = cancelBudget
	require.Equal(t, Backfilled{Made: 400, Existing: 200}, ask(Backfill{From: from}), "the same request goes on")
	require.Equal(t, Backfilled{Existing: 600}, ask(Backfill{From: from}))
	log, err := w.client.Audit(t.Context(), AuditFilter{})
	require.NoError(t, err)
	require.Len(t, log.Entries, 2)
	require.Equal(t, []int64{400, 200}, []int64{log.Entries[0].Count, log.Entries[1].Count})

	long := TimeText(now.Add(-30 * time.Hour).Format(time.RFC3339))
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
	refused("t", "1970-01-01T00:00:00Z", "more than 10000 runs")
	w.setTimer("orders", "large", schemas.Timer{Every: time.Minute}, make([]byte, 3<<20))
	refused("large", string(from), "256 MiB")
	r := schemas.NewRequest(schemas.OpTimer, "orders", "alone")
	r.Timer, r.Accepted, r.Settings.Ack = schemas.Timer{Every: time.Minute, Overlap: schemas.OverlapSkip}, now.UnixMilli(), schemas.AckReport
	w.put(task.Change{Request: &r})
	refused("alone", string(from), "overlap skip")
	code, answer := w.do("POST", "/api/v1/timers/orders/alone/backfill", fmt.Sprintf(`{"from":%d,"to":%d}`, now.Add(-90*time.Second).UnixMilli(), now.UnixMilli()))
	require.Equal(t, 200, code, answer)
	require.Contains(t, answer, `"made":1`)
}
