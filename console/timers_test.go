package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

// The timers "nightly" and "nightly " are two.
func TestBlanksAreAPartOfATimersID(t *testing.T) {
	mux := http.NewServeMux()
	var changed []string
	body := ""
	mux.HandleFunc("/api/v1/timers/{topic}/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		changed = append(changed, r.PathValue("id"))
		text, _ := io.ReadAll(r.Body)
		body = string(text)
		w.WriteHeader(http.StatusAccepted)
	})
	Mount(mux, "test")
	post := func(form url.Values) string {
		req := httptest.NewRequest(http.MethodPost, "/timer", strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req = req.WithContext(access.With(req.Context(), access.Caller{Name: "ann", Role: access.Operate, Topics: access.Everything}))
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, req)
		require.Less(t, rec.Code, 400, rec.Body.String())
		return rec.Body.String()
	}
	form := url.Values{"do": {"delete"}, "topic": {"orders"}, "id": {"nightly "}}
	require.Contains(t, post(form), `name="id" value="nightly "`)
	form.Set("confirmed", "yes")
	post(form)
	form.Set("do", "set")
	form.Set("every", "1h")
	post(form)
	require.NotContains(t, body, "timezone")
	require.Contains(t, body, "1h")
	require.Equal(t, []string{"nightly ", "nightly"}, changed, "what was typed is trimmed")
	form.Set("value", "one\r\ntwo") // as a browser sends it
	post(form)
	require.Contains(t, body, `"one\ntwo"`)
}

// The rhythm of every begins long ago, and its next runs lie ahead.
func TestNextRunsLieAhead(t *testing.T) {
	w := newWorld(t, true)
	const every = int64(time.Hour / time.Millisecond)
	from := time.Now().UnixMilli() - 100*every - every/2
	until := from + 104*every
	c := w.request("orders", "hourly", nil)
	c.Request.Op, c.Request.Timer = schemas.OpTimer, schemas.Timer{Every: time.Hour, From: &from, Until: &until}
	w.apply(c)
	_, text := w.as("read").get("/timer?topic=orders&id=hourly")
	_, runs, found := strings.Cut(text, "Next runs")
	require.True(t, found, text)
	require.Equal(t, 4, strings.Count(runs, "<tr><td>"))
	for k := int64(101); k <= 104; k++ {
		require.Contains(t, runs, time.UnixMilli(from+k*every).UTC().Format("2006-01-02 15:04:05.000 UTC"))
	}
}
