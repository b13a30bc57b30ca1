package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A change leads to a page with its outcome: going back and loading again send nothing once more.
func TestAChangeLeadsToAPageWithItsOutcome(t *testing.T) {
	w := newWorld(t, true)
	b := w.as("operate")
	resp, text := b.get("/targets?do=pause&topic=orders")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, text, "Pause this target")
	require.Contains(t, text, "Leave it as it is")
	resp, _ = b.post("/targets", url.Values{"do": {"pause"}, "topic": {"orders"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	to := resp.Header.Get("Location")
	require.Regexp(t, `^/targets\?outcome=`, to)
	for range 2 {
		_, text = b.get(to)
		require.Contains(t, text, `<p id="outcome" role="status" class="good">orders: paused. In force: paused`)
	}
	_, text = b.get("/targets")
	require.NotContains(t, text, `id="outcome"`, "other tabs do not show it")
	_, text = b.get("/targets?outcome=orders:+resumed")
	require.NotContains(t, text, `id="outcome"`, "a link says nothing")
	_, text = w.as("operate").get(to)
	require.NotContains(t, text, `id="outcome"`, "another browser's")
	_, text = b.get("/audit?what=target")
	require.Equal(t, 1, strings.Count(text, "<td>orders</td>"))
}

// An outcome is somebody else's text: it may be long, and no characters of it hide others.
func TestOutcomesFitIntoACookie(t *testing.T) {
	w := newWorld(t, true)
	topic := strings.Repeat("x", 200)
	b := w.as("operate")
	resp, text := b.post("/targets", url.Values{"do": {"pause"}, "topic": {topic}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	_, text = b.get(resp.Header.Get("Location"))
	require.Contains(t, text, topic+": paused")
	rec := header{}
	(&outcome{Text: strings.Repeat("\x00\u202e", 5000), Bad: true}).leave(rec, resp.Request, "/a?b=c")
	require.Less(t, len(rec.Header().Get("Set-Cookie")), 4096)
}

type header http.Header

func (h header) Header() http.Header       { return http.Header(h) }
func (header) Write(b []byte) (int, error) { return len(b), nil }
func (header) WriteHeader(int)             {}
