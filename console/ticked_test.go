package console

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

// A task that can be changed has a box, for those who may change it. The question names what is
// ticked, and leads back to the list.
func TestTasksAreTicked(t *testing.T) {
	w := newWorld(t, true)
	for i := range 60 {
		w.schedule("orders", fmt.Sprintf("o-%02d", i), nil)
		w.schedule("orders", fmt.Sprintf("p-%02d", i), nil)
		w.end("orders", fmt.Sprintf("p-%02d", i))
	}
	const hostile = "<img src=x>/\"'&\x00\u202e"
	w.schedule("https://shop.example", hostile, nil)
	_, text := w.as("read").get("/find?topic=orders")
	require.NotContains(t, text, "checkbox\" name=\"task\"")
	require.NotContains(t, text, `id="ticked"`)
	b := w.as("operate")
	resp, text := b.get("/find?topic=orders")
	requireWhole(t, resp, text)
	require.Less(t, len(text), 60<<10)
	boxes := regexp.MustCompile(`name="task" value="([^"]+)" form="ticked"`).FindAllStringSubmatch(text, -1)
	require.Len(t, boxes, 50, "none of an ended task")
	require.Contains(t, text, "Cancel what is ticked…")
	require.Contains(t, text, "Move what is ticked by +1 h…")
	require.Contains(t, text, `aria-label="all of this table" hidden`)
	require.Regexp(t, `^orders/o-\d\d/\d{13}$`, boxes[0][1])
	_, text = b.get("/find?topic=orders&state=cancelled")
	require.NotContains(t, text, `id="ticked"`, "nothing on it can be changed")

	form := url.Values{"topic": {"orders"}, "task": {boxes[0][1], boxes[1][1], boxes[0][1]}, "do": {"cancel-ticked"}}
	resp, text = b.post("/find", form)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	requireWhole(t, resp, text)
	require.Contains(t, text, "Cancel 2 tasks: <strong id=\"named\">orders o-")
	require.Equal(t, 2, strings.Count(text, `name="task" value="orders/o-`))
	require.Contains(t, text, "Keep them</a>")
	require.Contains(t, text, `data-back="/find?topic=orders"`)
	form.Set("do", "move-ticked")
	_, text = b.post("/find", form)
	require.Contains(t, text, "Move 2 tasks by 1 h: ")
	require.Contains(t, text, "Each becomes due an hour later than it is")
	for i := range 11 {
		form.Add("task", boxes[i][1])
	}
	_, text = b.post("/find", form)
	require.Contains(t, text, "Move 11 tasks by 1 h: ")
	require.Contains(t, text, ", and 1 more</strong>")

	_, text = b.get("/find?topic=https://shop.example")
	box := html.UnescapeString(regexp.MustCompile(`name="task" value="([^"]+)"`).FindStringSubmatch(text)[1])
	resp, text = b.post("/find", url.Values{"task": {box}, "do": {"cancel-ticked"}})
	requireWhole(t, resp, text)
	require.Contains(t, text, `https://shop.example &lt;img src=x&gt;/&#34;&#39;&amp;\u0000\u202e</strong>`, "as it is, however it is written")

	for _, wrong := range [][]string{nil, {"orders"}, {"orders/a/b"}, {"orders/%/1"}, many(mostTicked + 1)} {
		resp, text = b.post("/find", url.Values{"task": wrong, "do": {"cancel-ticked"}})
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, text)
		require.Contains(t, text, "task ")
	}
	resp, _ = w.as("read").post("/find", url.Values{"task": {"a/b/1"}, "do": {"cancel-ticked"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/find", strings.NewReader("do=cancel-ticked&confirmed=yes&task=a/b/1"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, _ = b.do(req)
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
}

func many(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("orders/%d/1", i))
	}
	return out
}

// ticking is an API with tasks whose id begins with what becomes of them.
type ticking struct {
	t    *testing.T
	mux  *http.ServeMux
	due  int64
	mu   sync.Mutex
	sent []string
}

func newTicking(t *testing.T, due time.Time) *ticking {
	t.Helper()
	w := &ticking{t: t, mux: http.NewServeMux(), due: due.UnixMilli()}
	value := "v"
	w.mux.HandleFunc("GET /api/v1/task", func(rw http.ResponseWriter, r *http.Request) {
		id := r.FormValue("id")
		if id == "gone" {
			rw.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(rw, `{"status":404,"title":"Not Found","detail":"there is no such task"}`)
			return
		}
		_ = json.NewEncoder(rw).Encode(api.Task{Topic: r.FormValue("topic"), ID: id, State: "pending", Due: w.due,
			Settings: &api.Settings{Priority: "normal", Ack: "none", MaxAttempts: 16, Backoff: "exponential:1s:10m", Events: "final"}, Content: &deadletter.Content{Key: &id, Value: &value}})
	})
	w.mux.HandleFunc("POST /api/v1/tasks/{do}", func(rw http.ResponseWriter, r *http.Request) {
		var to api.Target
		require.NoError(t, json.NewDecoder(r.Body).Decode(&to))
		w.note(r.PathValue("do"), to.ID, *to.Key)
		state := schemas.StateCancelled
		if strings.HasPrefix(to.ID, "late") {
			state = schemas.StateTooLate
		}
		_ = json.NewEncoder(rw).Encode(api.Event{State: state})
	})
	w.mux.HandleFunc("POST /api/v1/tasks", func(rw http.ResponseWriter, r *http.Request) {
		var s api.Schedule
		require.NoError(t, json.NewDecoder(r.Body).Decode(&s))
		w.note("schedule", s.ID, string(s.At))
		rw.WriteHeader(http.StatusAccepted)
	})
	Mount(w.mux, "test")
	return w
}

func (w *ticking) note(parts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, strings.Join(parts, " "))
}

// do sends the confirmed form, and returns what the page then says.
func (w *ticking) do(do string, due int64, ids ...string) string {
	w.t.Helper()
	w.sent = nil
	form := url.Values{"do": {do}, "confirmed": {"yes"}, "tag": {"vip"}}
	for _, id := range ids {
		form.Add("task", ticked{"orders", id, due}.value())
	}
	req := httptest.NewRequest(http.MethodPost, "/find", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req = req.WithContext(access.With(req.Context(), access.Caller{Name: "ann", Role: access.Operate, Topics: access.Everything}))
	rec := httptest.NewRecorder()
	w.mux.ServeHTTP(rec, req)
	require.Equal(w.t, http.StatusSeeOther, rec.Code, rec.Body.String())
	to := rec.Header().Get("Location")
	require.Regexp(w.t, `^/find\?tag=vip&outcome=`, to)
	shown := httptest.NewRequest(http.MethodGet, to, http.NoBody)
	shown.AddCookie(rec.Result().Cookies()[0])
	out := leftOutcome(shown)
	require.Equal(w.t, strings.Contains(out.Text, "("), out.Bad, out.Text)
	slices.Sort(w.sent)
	return out.Text
}

// Each ticked task is cancelled by a request of its own, with its key. The outcome counts what
// became of them, and names the others.
func TestTickedTasksAreCancelled(t *testing.T) {
	w := newTicking(t, time.Now().Add(time.Hour))
	require.Equal(t, "1 task: cancelled", w.do("cancel-ticked", w.due, "a"))
	require.Equal(t, "1 task: too_late (orders late) · 1 task: there is no such task (orders gone) · 2 tasks: cancelled", w.do("cancel-ticked", w.due, "a", "late", "gone", "b"))
	require.Equal(t, []string{"cancel a a", "cancel b b", "cancel late late"}, w.sent)
	var all []string
	for i := range mostTicked {
		all = append(all, fmt.Sprint("late", i))
	}
	text := w.do("cancel-ticked", w.due, all...)
	require.Len(t, w.sent, mostTicked)
	require.Contains(t, text, "200 tasks: too_late (orders late0, ")
	require.Contains(t, text, ", and 190 more)")
	require.Equal(t, "1 task: left as it is, because the due time is another one now. Look again. (orders a)", w.do("cancel-ticked", w.due-1, "a"))
	require.Empty(t, w.sent, "perhaps another task by now")
	w.do("cancel-ticked", w.due, all[0]+strings.Repeat("é", 100))
}

// An hour later than each is due: sent once more, the form moves nothing further. A task that is
// late stays.
func TestTickedTasksAreMoved(t *testing.T) {
	w := newTicking(t, time.Now().Add(time.Hour))
	later := time.UnixMilli(w.due + 3_600_000).UTC().Format(time.RFC3339Nano)
	require.Contains(t, w.do("move-ticked", w.due, "a", "b"), "2 tasks: The request with the new due time is in the intake.")
	require.Equal(t, []string{"schedule a " + later, "schedule b " + later}, w.sent)
	require.Equal(t, "1 task: left as it is, because the due time is another one now. Look again. (orders a)", w.do("move-ticked", w.due-3_600_000, "a"))
	require.Empty(t, w.sent)

	w = newTicking(t, time.Now().Add(-3*time.Hour))
	require.Equal(t, "1 task: not moved, because it is late, held or retrying. Its page can move it. (orders a)", w.do("move-ticked", w.due, "a"))
	require.Empty(t, w.sent, "it is not stopped")
}
