package api

import (
	"fmt"
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
	now4, err := w.client.RunTimer(t.Context(), "orders", "a/b", RunTimer{At: TimeText(fmt.Sprint(at(-4)))})
	require.NoError(t, err)
	cancel := schemas.NewRequest(schemas.OpCancel, "orders", now4.ID)
	cancel.Accepted = time.Now().UnixMilli()
	w.put(task.Change{Request: &cancel})
	_, err = w.client.RunTimer(t.Context(), "orders", "a/b", RunTimer{At: TimeText(fmt.Sprint(at(-3)))})
	require.NoError(t, err)

	ask := func(from, to int64, limit int) TimerAudit {
		t.Helper()
		out, err := w.client.AuditTimer(t.Context(), "orders", "a/b", TimerAuditFilter{From: TimeText(fmt.Sprint(from)), To: TimeText(fmt.Sprint(to)), Limit: limit})
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
	out, err := w.client.AuditTimer(t.Context(), "orders", "a", TimerAuditFilter{From: TimeText(fmt.Sprint(now - 25*60_000)), To: TimeText(fmt.Sprint(now + 5*60_000))})
	require.NoError(t, err)
	told := map[int64]string{}
	for _, r := range out.Runs {
		told[(r.At-now)/60_000] = r.State + " " + r.Reason
	}
	require.Equal(t, []string{"not_expected not_set", "missed misfire", "missed misfire", "missed disabled", "not_expected disabled"}, []string{told[-21], told[-18], told[-12], told[-5], told[3]})
	require.Equal(t, out.Expected, out.Missed+out.Made)
}
