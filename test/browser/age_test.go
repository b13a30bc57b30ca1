package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const (
	footer    = `document.getElementById("shown").textContent`
	remember  = `window.before = ` + footer
	refreshed = `window.before !== ` + footer
)

// A refresh changes texts in place: marks, the focus, typed text and scrolled tables stay.
func TestARefreshTakesNothingAway(t *testing.T) {
	s := startStack(t)
	s.schedule(t, "shop.orders", "order-1", nil)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	p.open("/cluster")
	p.seesIn("#age", "live")
	eval[any](p, `void (document.styleSheets[0].insertRule("#slots { width: 12rem }"), window.row = document.querySelector("#services tbody tr"), document.getElementById("slots").scrollLeft = 60,
		getSelection().selectAllChildren(document.querySelector("#services tbody td")), window.marked = getSelection().toString(), `+remember+`)`)
	p.eventually("the page is not refreshed", refreshed)
	require.True(t, eval[bool](p, `row.isConnected && marked !== "" && getSelection().toString() === marked`), "the mark stays")
	require.EqualValues(t, 60, eval[float64](p, `document.getElementById("slots").scrollLeft`), "the table stays where it was scrolled to")

	p.open("/")
	p.do(chromedp.SendKeys(chromedp.CSS("main input[name=topic]"), "shop"))
	eval[any](p, "void ("+remember+")")
	p.eventually("a page with the focus in a form stands still", refreshed)
	require.Equal(t, "shop", eval[string](p, `document.activeElement.name === "topic" ? document.activeElement.value : "the focus has gone"`))

	// Rows that come and go leave the others what they are: a button with the focus is not another's.
	p.open("/targets")
	for _, topic := range []string{"shop.b", "shop.c"} {
		require.Equal(t, 200, s.call(t, "PATCH", "/targets/"+topic, fields{"paused": true}, nil))
	}
	p.seesIn("#targets", "shop.c")
	eval[any](p, `void (window.focused = document.querySelector('[data-key="shop.c"] button')).focus()`)
	require.Equal(t, 200, s.call(t, "PATCH", "/targets/shop.a", fields{"paused": true}, nil))
	require.Equal(t, 200, s.call(t, "PATCH", "/targets/shop.b", fields{"paused": false}, nil))
	p.seesIn("#targets", "shop.a")
	require.True(t, eval[bool](p, `document.activeElement === focused && focused.closest("tr").innerText.startsWith("shop.c")`))
	require.Equal(t, "shop.a,shop.c", eval[string](p, `[...document.querySelectorAll("#targets tbody tr")].map((row) => row.cells[0].innerText).join()`))
}

// A form that somebody types in stays, when a list beside it comes or a form before it goes.
func TestARefreshKeepsHalfTypedForms(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	p.open("/targets")
	p.sees("None.")
	p.do(chromedp.SendKeys(chromedp.CSS("#rate"), "2"), chromedp.SendKeys(chromedp.CSS("#topic"), "shop.mail"))
	const typed = `[document.getElementById("rate").value, document.getElementById("topic").value, document.activeElement.id].join()`
	for _, paused := range []bool{true, false} { // so the table comes, and goes
		require.Equal(t, 200, s.call(t, "PATCH", "/targets/shop.a", fields{"paused": paused}, nil))
		p.eventually("the page is not refreshed", fmt.Sprintf(`(document.getElementById("targets") !== null) === %t`, paused))
		require.Equal(t, "2,shop.mail,topic", eval[string](p, typed))
	}

	require.Less(t, s.call(t, "POST", "/tasks", fields{"topic": "shop.dead", "id": "dead-0", "delay": "0s", "value": "v", "ack": "report", "ack_timeout": "20s", "max_attempts": 1}, nil), 300)
	require.Eventually(t, func() bool { return s.state(t, "shop.dead", "dead-0") == "waiting_report" }, bound, 10*time.Millisecond)
	p.open(taskPage("shop.dead", "dead-0"))
	p.do(chromedp.SendKeys(chromedp.CSS("#at"), "tomor"))
	p.seesIn("#task-state", "dead")
	require.Equal(t, "tomor", eval[string](p, `document.activeElement.id === "at" ? document.activeElement.value : "the focus has gone"`))
}

// A page says within 15 s that its service is gone, and then that it is back.
func TestAPageSaysThatItsServiceIsGone(t *testing.T) {
	s := startStack(t)
	to, err := url.Parse(s.base)
	require.NoError(t, err)
	service := httputil.NewSingleHostReverseProxy(to)
	var away atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler)
		}
		service.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	tabs := map[string]*tab{}
	for _, path := range []string{"/", "/find?tag=x", "/timers", "/deadletters", "/audit"} { // live, and pages that nothing refreshes
		p := newTab(t, proxy.URL, "ERR_EMPTY_RESPONSE")
		p.signIn(tokens["read"])
		p.open(path)
		p.seesIn("#age", map[bool]string{true: "live", false: "as of"}[path == "/"])
		tabs[path] = p
	}
	away.Store(true)
	gone := time.Now()
	for path, p := range tabs {
		p.seesIn("#gone", "No answer from this service: this page is as of")
		require.Less(t, time.Since(gone), time.Minute, "%s: 15 s after the last answer, unless the machine stands still", path)
	}
	tabs["/"].seesIn("#age", "as of 1")
	away.Store(false)
	tabs["/"].seesIn("#age", "live")
	for _, p := range tabs {
		p.lacks("No answer")
	}
}

// A session that ended elsewhere is told, and signing in leads back.
func TestAPageSaysThatItsSessionHasEnded(t *testing.T) {
	s := startStack(t)
	s.schedule(t, "shop.orders", "order-1", nil)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	p.open(taskPage("shop.orders", "order-1"))
	p.seesIn("#age", "live")
	eval[any](p, `void fetch("/sign-out", { method: "POST", redirect: "manual" })`)
	p.seesIn("#gone", "You are signed out · Sign in")
	p.click("#gone a")
	p.do(chromedp.SendKeys(chromedp.CSS("#token"), tokens["operate"]))
	p.click("#sign-in")
	p.seesIn("#task-state", "pending")

	p.click("#cancel")
	p.sees("Keep it")
	eval[any](p, `void fetch("/sign-out", { method: "POST", redirect: "manual" }).then(() => { window.out = true })`)
	p.eventually("the session does not end", "window.out === true")
	p.click("#confirm")
	p.sees("nothing was changed")
	p.do(chromedp.SendKeys(chromedp.CSS("#token"), tokens["operate"]))
	p.click("#sign-in")
	p.seesIn("#task-state", "pending")
	require.Equal(t, "pending", s.state(t, "shop.orders", "order-1"))
}

// Back and a reload after a change send nothing again, and lead to pages that the browser can show.
func TestBackAndReloadSendNothing(t *testing.T) {
	s := startStack(t)
	for _, id := range []string{"order-1", "order-2"} {
		s.schedule(t, "shop.orders", id, nil)
	}
	changes := func() int { return len(s.audit(t)) }
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	p.open(taskPage("shop.orders", "order-1"))
	p.click("#cancel")
	p.sees("Keep it")
	p.click("#confirm")
	p.seesIn("#outcome", "cancelled")
	before := changes()
	p.do(chromedp.Reload())
	p.seesIn("#outcome", "cancelled")
	p.back()
	p.eventually("Back leads to the task", `!location.search.includes("outcome=")`)
	p.seesIn("#task-state", "cancelled")
	p.lacks("Answer:")

	p.open("/timers")
	for name, value := range map[string]string{"topic": "shop.reports", "id": "nightly", "every": "1h", "value": "much"} {
		eval[any](p, `void (document.querySelector("form[data-preview] [name=`+name+`]").value = "`+value+`")`)
	}
	p.click("#set")
	p.click("#confirm")
	p.seesIn("#outcome", "timer_set")
	p.do(chromedp.Reload())
	p.seesIn("#outcome", "timer_set")
	p.back()
	p.sees("Set a timer")
	require.Equal(t, before+1, changes(), "the timer was set once")
}
