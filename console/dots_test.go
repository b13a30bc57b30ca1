package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
)

// Each of the last 20 runs is a sign, the latest at the end, with words, and leads to its task. One
// without a task leads to the table.
func TestTheLastRunsAreDots(t *testing.T) {
	const hour = 3_600_000
	first := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC).UnixMilli()
	runs := []api.AuditedRun{
		{State: "delivered"}, {State: "succeeded", Late: 3000}, {State: "missed", Reason: "overlap"}, {State: "dead", Reason: "undeliverable"}, {State: "pending", Reason: "jitter"},
		{State: "unknown", Reason: "forgotten"}, {State: "cancelled"}, {State: "stopped"}, {State: "claimed", Late: 8000}, {State: "waiting_retry"}, {State: "waiting_report", NotKnown: true}, {State: "of a later release"},
		{State: "coming"}, {State: "not_expected"},
	}
	runs = append(make([]api.AuditedRun, 9), runs...)
	for i := range runs {
		runs[i].At, runs[i].ID = first+int64(i)*hour, `n"<b>`
		if runs[i].Due = runs[i].At; runs[i].State == "" || runs[i].Reason == "overlap" || runs[i].State == "unknown" {
			runs[i].State, runs[i].Due = max(runs[i].State, "missed"), 0
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/timers/{topic}/{id}", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Timer{Topic: r.PathValue("topic"), ID: r.PathValue("id"), State: "enabled"})
	})
	asked := 0
	mux.HandleFunc("GET /api/v1/timers/{topic}/{id}/audit", func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_ = json.NewEncoder(w).Encode(api.TimerAudit{Runs: runs})
	})
	Mount(mux, "test")
	page := func() string {
		r := httptest.NewRequest(http.MethodGet, "/timer?topic=reports&id=nightly", http.NoBody)
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, r.WithContext(access.With(r.Context(), access.Caller{Name: "ann", Role: access.Operate, Topics: access.Everything})))
		require.Equal(t, http.StatusOK, rec.Code, rec.Body.String())
		requireWhole(t, rec.Result(), rec.Body.String())
		return rec.Body.String()
	}
	text := page()
	require.Equal(t, 1, asked, "the dots cost nothing more")
	_, dots, _ := strings.Cut(text, `id="dots"`)
	dots, _, _ = strings.Cut(dots, "</p>")
	var kinds []string
	for _, part := range strings.Split(dots, `class="`)[2:] {
		kind, _, _ := strings.Cut(part, `"`)
		kinds = append(kinds, kind)
	}
	require.Equal(t, "missed missed missed missed missed missed missed missed sent late missed failed held unknown missed failed held held sent unknown", strings.Join(kinds, " "))
	for _, part := range []string{
		`href="/task?id=n%22%3Cb%3E&amp;topic=reports" class="late" title="2026-11-29 10:00:00.000 UTC: succeeded, at least 3 s late"`,
		`href="#run-1795950000000" class="missed" title="2026-11-29 11:00:00.000 UTC: missed, overlap"`,
		`title="2026-11-29 12:00:00.000 UTC: dead, undeliverable" aria-label="2026-11-29 12:00:00.000 UTC: dead, undeliverable">✕</a>`,
	} {
		require.Contains(t, dots, part)
	}
	require.Contains(t, text, `<tr id="run-1795950000000"><td data-th="Run"><time`, "no link to a task that was never made")
	require.Contains(t, text, `<span class="held">◌</span> held`, "the key")
	runs = nil
	require.NotContains(t, page(), `id="dots"`)
}

// A target that does not answer is said on the page of targets, also without a policy.
func TestSilentTargetsAreSaid(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/targets", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(api.Targets{}) })
	mux.HandleFunc("GET /api/v1/overview", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Overview{Targets: api.TroubledTargets{Unresponsive: []string{`https://a"<b>.example`}}})
	})
	Mount(mux, "test")
	r, rec := httptest.NewRequest(http.MethodGet, "/targets", http.NoBody), httptest.NewRecorder()
	mux.ServeHTTP(rec, r.WithContext(access.With(r.Context(), access.Caller{Name: "ann", Role: access.Operate, Topics: access.Everything})))
	requireWhole(t, rec.Result(), rec.Body.String())
	require.Contains(t, rec.Body.String(), `https://a&#34;&lt;b&gt;.example</a> does not answer <a class="button" href="/targets?do=pause&amp;topic=https%3a%2f%2fa%22%3cb%3e.example">Pause…</a>`)
}
