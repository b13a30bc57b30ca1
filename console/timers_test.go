package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
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
}
