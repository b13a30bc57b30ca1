package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/task"
)

// ended loads the page of an operation until it has ended.
func (b *browser) ended(path string) (text string) {
	b.w.t.Helper()
	require.Eventually(b.w.t, func() bool {
		resp, now := b.get(path)
		require.Equal(b.w.t, http.StatusOK, resp.StatusCode, now)
		text = now
		return !strings.Contains(text, ">running</span>")
	}, time.Minute, 20*time.Millisecond)
	return text
}

func (w *world) rejected(n int) {
	w.t.Helper()
	for i := range n {
		w.die(task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: fmt.Sprint("r", i), Reason: "bad"})
	}
}

// A form begins an operation, and its page shows it to the end, whichever services run meanwhile.
func TestABulkFormBeginsAnOperation(t *testing.T) {
	w := newWorld(t, true)
	w.rejected(7)
	b := w.as("admin")
	_, text := b.get("/operations")
	require.Contains(t, text, `id="none">None.`)
	resp, text := b.post("/deadletters", url.Values{"do": {"purge"}, "topic": {"orders"}, "confirmed": {"yes"}, "shown": {"7"}, "typed": {" 7"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	page := resp.Header.Get("Location")
	require.Equal(t, "/operation?id=1", page)
	w.restart()
	_, text = b.get(page)
	require.Contains(t, text, ">running</span>")
	require.Contains(t, text, "Delete for good: <strong id=\"named\">topic orders</strong>")
	require.Contains(t, text, "also without this page and after a restart")
	require.Contains(t, text, `data-age="live"`)
	_, text = b.get("/operations")
	require.Contains(t, text, `<tr data-key="1">`)
	require.Contains(t, text, `<a href="/operations" aria-current="page"`)
	require.NotContains(t, text, `value="stop"`, "rows move while the list is refreshed")
	_, text = b.get(page)
	require.Equal(t, 1, strings.Count(text, `value="stop"`))
	_, text = w.as("operate").get(page)
	require.NotContains(t, text, `value="stop"`, "who may not purge does not stop it")
	_, text = w.as("read").get(page)
	require.NotContains(t, text, "<form method=\"post\" action=\"/operations\"")

	stop := w.operate()
	text = b.ended(page)
	stop()
	require.Contains(t, text, `class="good">Deleted 7</p>`)
	require.Contains(t, text, `max="7" value="7"`)
	require.Contains(t, text, "7 of 7")
	require.NotContains(t, text, `value="stop"`)
	_, text = b.get("/operations")
	require.Contains(t, text, "<td>Deleted 7</td>")
}

// Nobody has agreed to letters that die while the question stands.
func TestAQuestionIsAboutTheLettersThatItCounts(t *testing.T) {
	w := newWorld(t, true)
	w.rejected(3)
	b := w.as("admin")
	resp, text := b.post("/deadletters", url.Values{"do": {"purge"}, "topic": {"orders"}})
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, text, "3 dead letters now.")
	asked := regexp.MustCompile(`name="asked" value="(\d+)"`).FindStringSubmatch(text)
	require.Len(t, asked, 2, text)
	resp, _ = b.post("/deadletters", url.Values{"do": {"purge"}, "topic": {"orders"}, "confirmed": {"yes"}, "asked": {asked[1]}, "shown": {"3"}, "typed": {"3"}})
	o, err := w.fleet.Operation(t.Context(), 1)
	require.NoError(t, err)
	require.JSONEq(t, `{"topic":"orders","until":"`+asked[1]+`"}`, string(o.Request))
	_, text = b.get(resp.Header.Get("Location"))
	require.Contains(t, text, ">topic orders</strong>")
	require.Equal(t, "5 or more", orMore(5, "x"))
}

// Deletes, and changes of many, need their number typed. The service itself sees to it.
func TestTheNumberOfManyIsTyped(t *testing.T) {
	w := newWorld(t, true)
	w.rejected(2)
	b := w.as("admin")
	purge := url.Values{"do": {"purge"}, "topic": {"orders"}, "confirmed": {"yes"}}
	for _, wrong := range [][2]string{{"", ""}, {"2", ""}, {"2", "3"}, {"", "2"}} {
		purge["shown"], purge["typed"] = wrong[:1], wrong[1:]
		resp, text := b.post("/deadletters", purge)
		require.Equal(t, http.StatusOK, resp.StatusCode, wrong)
		require.Contains(t, text, `id="mistyped"`, wrong)
		require.Contains(t, text, `name="shown" value="2"`)
	}
	_, text := b.get("/operations")
	require.Contains(t, text, `id="none"`, "nothing was begun")
	_, text = b.get("/deadletters?do=replay&kind=dead")
	require.NotContains(t, text, `name="typed"`, "of few it is not asked for")
	for want, number := range map[string]string{"1001": toType(1001, false, false), "": toType(1000, false, false), "5": toType(5, true, false), "1": toType(1, false, true)} {
		require.Equal(t, want, number)
	}
	require.Empty(t, toType(0, false, true))
}

// Who stops one needs no script, and hears that it has ended where it has.
func TestAnOperationIsStopped(t *testing.T) {
	w := newWorld(t, true)
	w.rejected(1)
	b := w.as("admin")
	resp, _ := b.post("/deadletters", url.Values{"do": {"purge"}, "kind": {"rejected"}, "confirmed": {"yes"}, "shown": {"1"}, "typed": {"1"}})
	page, form := resp.Header.Get("Location"), url.Values{"do": {"stop"}, "id": {"1"}}
	for role, status := range map[string]int{"read": http.StatusForbidden, "operate": http.StatusForbidden} {
		resp, text := w.as(role).post("/operations", form)
		require.Equal(t, status, resp.StatusCode, text)
	}
	resp, text := b.post("/operations", form)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	require.True(t, strings.HasPrefix(resp.Header.Get("Location"), page), resp.Header.Get("Location"))
	_, text = b.get(resp.Header.Get("Location"))
	require.Contains(t, text, "Stopped. What is done stays.")
	require.Contains(t, text, `<span class="state bad">stopped</span>`)
	resp, text = b.post("/operations", form)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	_, text = b.get(resp.Header.Get("Location"))
	require.Contains(t, text, "Not stopped: the operation has ended (stopped)")
	for id, status := range map[string]int{"4242": http.StatusNotFound, "x": http.StatusUnprocessableEntity} {
		resp, _ = b.get("/operation?id=" + id)
		require.Equal(t, status, resp.StatusCode)
		resp, _ = b.post("/operations", url.Values{"do": {"stop"}, "id": {id}})
		require.Equal(t, status, resp.StatusCode)
	}
	resp, _ = b.post("/operations", url.Values{"do": {"go"}, "id": {"1"}})
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	root := access.With(t.Context(), access.Caller{Name: "root", Tenant: "root", Role: access.Admin, Topics: access.Everything})
	for range admin.RunningOperations {
		_, err := w.fleet.BeginCancelMany(root, api.CancelMany{Topic: "orders"})
		require.NoError(t, err)
	}
	resp, text = b.post("/deadletters", url.Values{"do": {"replay"}, "topic": {"orders"}, "confirmed": {"yes"}})
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Contains(t, text, "10 operations are running for you")
}

// A token for some topics sees the operations about these alone. Names do nothing.
func TestOperationsOfOthersAreNotSeen(t *testing.T) {
	w := newWorld(t, false)
	const hostile = `<img src=x onerror=alert(1)>"` + "\u202e"
	as := func(topics []string, method, path string, form url.Values) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		rec := httptest.NewRecorder()
		w.mux.ServeHTTP(rec, r.WithContext(access.With(r.Context(), access.Caller{Name: hostile, Tenant: topics[0], Role: access.Admin, Topics: topics})))
		return rec
	}
	all, shop := access.Everything, []string{"shop.*"}
	for topic, topics := range map[string][]string{"bank.vault": all, "shop.orders": shop, "": all} {
		rec := as(topics, http.MethodPost, "/deadletters", url.Values{"do": {"replay"}, "topic": {topic}, "reason": {hostile}, "task_id": {hostile}, "confirmed": {"yes"}})
		require.Equal(t, http.StatusSeeOther, rec.Code, rec.Body.String())
	}
	require.Equal(t, 3, strings.Count(as(all, http.MethodGet, "/operations", nil).Body.String(), "<tr data-key"))
	text := as(shop, http.MethodGet, "/operations", nil).Body.String()
	require.Equal(t, 1, strings.Count(text, "<tr data-key"))
	require.NotContains(t, text, "bank")
	found := 0
	for id := 1; id <= 3; id++ {
		path := fmt.Sprint("/operation?id=", id)
		whole := as(all, http.MethodGet, path, nil)
		requireWhole(t, whole.Result(), whole.Body.String())
		require.Contains(t, whole.Body.String(), "onerror")
		require.NotContains(t, whole.Body.String(), "<img")
		shown := regexp.MustCompile(`(value|href)="[^"]*"`).ReplaceAllString(whole.Body.String(), "")
		require.NotContains(t, shown, "\u202e")
		rec := as(shop, http.MethodGet, path, nil)
		if rec.Code == http.StatusOK {
			found++
			require.Contains(t, rec.Body.String(), "topic shop.orders")
			continue
		}
		require.Equal(t, http.StatusNotFound, rec.Code)
		require.Equal(t, http.StatusNotFound, as(shop, http.MethodPost, "/operations", url.Values{"do": {"stop"}, "id": {fmt.Sprint(id)}}).Code)
	}
	require.Equal(t, 1, found)
}
