package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
)

// The console reads version 7 and asks to schedule what it read. Meanwhile the business may have published version 8: the
// console's request must not replace it with the content of version 7.
func TestAMoveUndoesNoNewerVersion(t *testing.T) {
	version, value := int64(7), "pay 100"
	mux := http.NewServeMux()
	var sent map[string]any
	mux.HandleFunc("GET /api/v1/task", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Task{Topic: "orders", ID: "a", State: "pending", Due: time.Now().Add(time.Hour).UnixMilli(), Version: &version,
			Settings: &api.Settings{Priority: "normal", Ack: "none", MaxAttempts: 16, Backoff: "exponential:1s:10m", Events: "final"}, Content: &deadletter.Content{Value: &value}})
	})
	mux.HandleFunc("POST /api/v1/tasks", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		require.NoError(t, json.Unmarshal(data, &sent))
		w.WriteHeader(http.StatusAccepted)
	})
	Mount(mux, "test")
	form := url.Values{"do": {"move"}, "topic": {"orders"}, "id": {"a"}, "at": {"2030-01-01T00:00"}, "confirmed": {"yes"}}
	req := httptest.NewRequest(http.MethodPost, "/task", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req = req.WithContext(access.With(req.Context(), access.Caller{Name: "ann", Role: access.Operate, Topics: access.Everything}))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, req)
	require.Equal(t, http.StatusSeeOther, rec.Code, rec.Body.String())
	require.EqualValues(t, 7, sent["version"], "so that version 8, if it came first, makes this request stale")
}

// A question may stand for hours, and its task be another one by then.
func TestAQuestionIsOfTheTaskThatItShowed(t *testing.T) {
	mux := http.NewServeMux()
	due, sent := time.Now().Add(time.Hour).UnixMilli(), 0
	mux.HandleFunc("GET /api/v1/task", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Task{Topic: "orders", ID: "a", State: "pending", Due: due})
	})
	mux.HandleFunc("POST /api/v1/tasks/cancel", func(w http.ResponseWriter, _ *http.Request) {
		sent++
		w.WriteHeader(http.StatusAccepted)
	})
	Mount(mux, "test")
	post := func(form url.Values) *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodPost, "/task", strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req = req.WithContext(access.With(req.Context(), access.Caller{Name: "ann", Role: access.Operate, Topics: access.Everything}))
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, req)
		return rec
	}
	form := url.Values{"do": {"cancel"}, "topic": {"orders"}, "id": {"a"}}
	field := func() string { return fmt.Sprintf(`name="due" value="%d"`, due) }
	require.Contains(t, post(form).Body.String(), field())
	form.Set("due", strconv.FormatInt(due, 10))
	form.Set("confirmed", "yes")
	due += time.Hour.Milliseconds()
	rec := post(form)
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), "Its due time is another one by now: look again.")
	require.Contains(t, rec.Body.String(), field())
	require.Zero(t, sent)
	form.Set("due", strconv.FormatInt(due, 10))
	require.Equal(t, http.StatusSeeOther, post(form).Code)
	require.Equal(t, 1, sent)
}

// A time that has passed would deliver the task at once, and nobody moves one for that.
func TestNoTaskIsMovedIntoThePast(t *testing.T) {
	task := api.Task{Topic: "orders", ID: "a", State: "pending", Due: time.Now().Add(time.Hour).UnixMilli(), Settings: &api.Settings{}, Content: &deadletter.Content{}}
	_, err := moved(&task, "2020-01-01T00:00")
	require.ErrorContains(t, err, "at has passed (2020-01-01T00:00:00Z)")
	_, err = moved(&task, time.Now().Add(2*time.Hour).UTC().Format("2006-01-02T15:04"))
	require.NoError(t, err)
}

// TestWhenATaskIsMoved: a form's time is UTC, and the answer names the part of a time that does not exist.
func TestWhenATaskIsMoved(t *testing.T) {
	for text, want := range map[string]string{
		"2030-01-01T00:00": "2030-01-01T00:00:00Z", "2030-01-01T00:00:07.25": "2030-01-01T00:00:07.25Z", "2030-01-01T02:00:00+02:00": "2030-01-01T00:00:00Z",
		"1893456000000": "2030-01-01T00:00:00Z", "1970-01-02T00:00": "1970-01-02T00:00:00Z",
	} {
		at, err := parseWhen(time.UTC, "at", text)
		require.NoError(t, err, text)
		require.Equal(t, want, at, text)
	}
	for text, want := range map[string]string{
		"": "is empty", "soon": "is neither RFC 3339", "2027-02-29T08:00": "has the day 29, and February 2027 has 28 days", "2026-12-31T24:00": "has the hour 24",
		"2016-12-31T23:59:60Z": "has a leap second", "1893456000": "is below 100000000000, so it is Unix seconds by mistake", "2030-1-1T8:00": "is neither", "2030-01-01T00:00:00,5Z": "is neither",
	} {
		_, err := parseWhen(time.UTC, "at", text)
		require.ErrorContains(t, err, "at "+want, text)
	}
}
