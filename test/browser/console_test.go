package browser

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// hostile is an id and a value that would do harm if a page trusted it.
const hostile = `<img src=x onerror=alert(1)>"'&\u202e`

// pages are all pages of the console, with a text that each shows.
func pages(t *testing.T, s *stack) map[string]string {
	t.Helper()
	return map[string]string{
		"/":                                  "What was delivered, and what falls due",
		"/runbooks/NotyetLate":               "Meaning",
		"/find":                              "Id, or topic and id",
		"/find?q=order":                      "order-1",
		"/find?topic=shop.orders&ended=on":   "order-3",
		taskPage("shop.orders", "order-1"):   "History",
		taskPage("shop.orders", hostile):     "onerror",
		"/targets":                           "shop.paused",
		"/timers":                            "report",
		timerPage("shop.orders", "report"):   "Europe/Berlin",
		"/deadletters":                       "shop.dead",
		"/deadletter?id=" + s.firstLetter(t): "Died",
		"/operations":                        "cancel-many",
		"/operation?id=1":                    "Cancelled",
		"/cluster":                           "Intake and reports",
		"/audit":                             "shop.paused",
	}
}

func taskPage(topic, id string) string {
	return "/task?" + url.Values{"topic": {topic}, "id": {id}}.Encode()
}

func timerPage(topic, id string) string {
	return "/timer?" + url.Values{"topic": {topic}, "id": {id}}.Encode()
}

// fill makes something to be seen on each page.
func fill(t *testing.T, s *stack) {
	t.Helper()
	for _, id := range []string{"order-1", "order-2", hostile} {
		s.schedule(t, "shop.orders", id, fields{"value": hostile})
	}
	s.schedule(t, "shop.orders", "order-3", fields{"delay": "0s"})
	require.Equal(t, 200, s.call(t, "PATCH", "/targets/shop.paused", fields{"paused": true}, nil))
	require.Less(t, s.call(t, "PUT", "/timers/shop.orders/report?wait=5s", fields{"cron": "30 9 * * mon-fri", "timezone": "Europe/Berlin"}, nil), 300)
	s.dead(t, "shop.dead", 3)
	require.Equal(t, 202, s.call(t, "POST", "/tasks/cancel-many?async=true", fields{"id_prefix": hostile + "none"}, nil))
	require.Eventually(t, func() bool {
		var o struct{ State string }
		return s.call(t, "GET", "/operations/1", fields{}, &o) == 200 && o.State == "done"
	}, bound, 10*time.Millisecond)
}

// Every page, for every role, on a screen and on a phone, bright and dark: it shows what it is for, fits its width, and the browser has
// nothing to complain about.
func TestEveryPage(t *testing.T) {
	s := startStack(t)
	fill(t, s)
	for _, role := range []string{"admin", "read"} {
		t.Run(role, func(t *testing.T) {
			p := newTab(t, s.base, "")
			p.signIn(tokens[role])
			if role == "admin" {
				p.pictured("overview")
			}
			for path, text := range pages(t, s) {
				p.open(path)
				p.sees(text)
				require.Less(t, eval[int](p, `document.querySelector("header").offsetHeight`), 80, "the head has one row on %s", path)
				others := eval[bool](p, `[...document.querySelectorAll("main button")].some(b => !["Find", "Show"].includes(b.textContent))`)
				require.Equal(t, role == "admin" && changes(path), others, "buttons that change something on %s", path)
				if role == "read" {
					require.Zero(t, eval[int](p, `document.querySelectorAll("main form[method=post]").length`), "who may only read finds no form that changes anything on %s", path)
				}
			}
		})
	}
	t.Run("phone", func(t *testing.T) {
		p := newTab(t, s.base, "")
		p.phone()
		p.dark()
		p.signIn(tokens["admin"])
		for path, text := range pages(t, s) {
			p.open(path)
			p.sees(text)
			require.LessOrEqual(t, eval[int](p, "document.documentElement.scrollWidth"), 360, "%s is wider than the phone", path)
			require.Less(t, eval[int](p, luminance), 60, "%s is bright where dark was asked for", path)
		}
	})
}

// luminance of the page's background, 0 to 255.
const luminance = `(() => {
  const c = document.createElement("canvas").getContext("2d");
  c.fillStyle = getComputedStyle(document.body).backgroundColor === "rgba(0, 0, 0, 0)" ? getComputedStyle(document.documentElement).backgroundColor : getComputedStyle(document.body).backgroundColor;
  c.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = c.getImageData(0, 0, 1, 1).data;
  return a === 0 ? 255 : Math.round((r + g + b) / 3);
})()`

// changes tells whether a page has something that an administrator can change.
func changes(path string) bool {
	u, _ := url.Parse(path)
	found := u.Path == "/find" && u.RawQuery != "" && !u.Query().Has("ended")
	return found || u.Path == "/" || u.Path == "/deadletter" || u.Path == "/task" || u.Path == "/targets" || u.Path == "/timers" || u.Path == "/timer" || u.Path == "/deadletters"
}

// What the browser's console says fails a test: here it must have said something.
func TestViolationsAreSeen(t *testing.T) {
	s := startStack(t)
	const violation = "Content Security Policy"
	p := newTab(t, s.base, violation)
	p.signIn(tokens["read"])
	eval[any](p, `void document.body.append(Object.assign(document.createElement("script"), { textContent: "document.title = 'hurt'" }))`)
	select {
	case said := <-p.seen:
		require.Contains(t, said, violation)
	case <-time.After(bound):
		require.Fail(t, "a script on the page ran, or its refusal was not noticed")
	}
	require.NotEqual(t, "hurt", eval[string](p, "document.title"))
}

func TestTasksAreChanged(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	for _, id := range []string{"order-1", "order-2", "order-3", hostile} {
		s.schedule(t, "shop.orders", id, nil)
	}

	p.open("/find")
	p.do(chromedp.SendKeys(chromedp.CSS("#q"), "shop.orders order-1"+kb.Enter))
	p.sees("order-1", "History", `"total": 9.5`)
	p.pictured("task")
	p.click("#cancel")
	p.sees("shop.orders order-1")
	p.click("#back")
	p.sees("scheduled")
	require.Equal(t, "pending", s.state(t, "shop.orders", "order-1"), "who goes back changes nothing")
	p.click("#cancel")
	p.click("#confirm")
	p.seesIn("#outcome", "cancelled")
	require.Equal(t, "cancelled", s.state(t, "shop.orders", "order-1"))
	p.seesIn("#task-state", "cancelled")
	require.Zero(t, eval[int](p, `document.querySelectorAll("#cancel").length`), "it cannot be cancelled again")

	p.open(taskPage("shop.orders", "order-2"))
	p.click("#fire")
	p.click("#confirm")
	p.seesIn("#outcome", "fired")
	p.seesIn("#task-state", "delivered")

	p.open(taskPage("shop.orders", "order-3"))
	at := time.Now().UTC().Add(48 * time.Hour).Truncate(time.Second)
	eval[any](p, `void (document.getElementById("at").value = "`+at.Format("2006-01-02T15:04:05")+`")`)
	p.click("#move")
	p.seesIn("#changes", at.Format("2006-01-02"))
	p.click("#confirm")
	p.seesIn("#outcome", "in the intake")
	require.Eventually(t, func() bool { return s.due(t, "shop.orders", "order-3") == at.UnixMilli() }, bound, 10*time.Millisecond)

	p.open(taskPage("shop.orders", hostile))
	p.click("#cancel")
	p.seesIn("#named", "onerror")
	p.click("#confirm")
	p.seesIn("#outcome", "cancelled")
	require.Equal(t, "cancelled", s.state(t, "shop.orders", hostile))
}

// The box above a table ticks all of it, and its list shows what became of the ticked tasks.
func TestTickedTasksAreChanged(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	for _, id := range []string{"order-1", "order-2", hostile} {
		s.schedule(t, "shop.orders", id, nil)
	}
	due := s.due(t, "shop.orders", "order-1")
	p.open("/find?topic=shop.orders")
	p.click(`input[aria-label="order-1"]`)
	p.click("#move-ticked")
	p.seesIn("#named", "shop.orders order-1")
	p.click("#confirm")
	p.seesIn("#outcome", "1 task: The request with the new due time is in the intake.")
	require.Eventually(t, func() bool { return s.due(t, "shop.orders", "order-1") == due+time.Hour.Milliseconds() }, bound, 10*time.Millisecond)
	p.open("/find?topic=shop.orders")
	p.click(".found th input")
	p.click("#cancel-ticked")
	p.seesIn("#question", "Cancel 3 tasks")
	p.click("#confirm")
	p.seesIn("#outcome", "3 tasks: cancelled")
	for _, id := range []string{"order-1", "order-2", hostile} {
		require.Equal(t, "cancelled", s.state(t, "shop.orders", id))
	}
}

func TestTargetsAreSteered(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "422 (Unprocessable Entity)")
	p.signIn(tokens["operate"])
	p.open("/targets")
	p.sees("None.")
	p.do(chromedp.SendKeys(chromedp.CSS("#topic"), "shop.mail"), chromedp.SendKeys(chromedp.CSS("#rate"), "2.5"))
	p.click("#limit")
	p.sees("shop.mail", "No task has this target")
	p.seesIn("#changes", "2.5")
	p.click("#confirm")
	p.seesIn("#targets", "2.5 a second")
	p.click("#targets button[value=pause]")
	p.click("#confirm")
	p.seesIn("#targets", "paused")
	p.pictured("targets")
	p.click("#targets button[value=resume]")
	p.click("#confirm")
	p.seesIn("#targets", "open")
	p.do(chromedp.SendKeys(chromedp.CSS("#topic"), "shop.mail"), chromedp.SendKeys(chromedp.CSS("#max-in-flight"), "1.5"))
	p.click("#limit")
	p.eventually("the field says nothing", `document.querySelector("#max-in-flight:invalid")?.validationMessage === "This is no whole number"`)
}

func TestTimersAreSet(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	p.open("/timers")
	p.do(chromedp.SendKeys(chromedp.CSS("#cron"), "30 2 * * *"), chromedp.SetValue(chromedp.CSS("#timezone"), "Europe/Berlin"), chromedp.SendKeys(chromedp.CSS("#cron"), " "))
	p.seesIn("#preview", "02:30")
	p.do(chromedp.SendKeys(chromedp.CSS("#cron"), kb.Backspace+"x"))
	p.eventually("the mistake is not named", `document.querySelector("#preview .bad") !== null`)
	p.do(chromedp.SendKeys(chromedp.CSS("#cron"), kb.Backspace))
	p.seesIn("#preview", "02:30")
	p.do(chromedp.SendKeys(chromedp.CSS(`form[data-preview] input[name=topic]`), "shop.reports"), chromedp.SendKeys(chromedp.CSS(`form[data-preview] input[name=id]`), "nightly"))
	p.pictured("timers")
	p.click("#set")
	p.click("#confirm")
	p.seesIn("#outcome", "timer_set")
	p.seesIn("#timer-state", "enabled")
	for _, c := range [][3]string{{"#disable", "timer_disabled", "disabled"}, {"#enable", "timer_enabled", "enabled"}} {
		p.click(c[0])
		p.click("#confirm")
		p.seesIn("#outcome", c[1])
		p.seesIn("#timer-state", c[2])
	}
	p.click("#delete")
	p.click("#confirm")
	p.seesIn("#outcome", "timer_deleted")
	p.sees("No timer is like that.")
}

// Replays and deletes are operations, which go on by themselves.
func TestDeadLettersAreReplayedAndDeleted(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "")
	p.signIn(tokens["admin"])
	s.dead(t, "shop.dead", 5)
	p.open("/deadletters?topic=shop.dead")
	p.pictured("dead letters")
	p.click("#replay")
	p.sees("5")
	p.click("#back")
	require.Equal(t, 5, s.letters(t, "shop.dead"), "who goes back changes nothing")
	p.click("#purge")
	p.seesIn("#question", "Delete for good")
	p.click("#confirm")
	require.True(t, eval[bool](p, `document.querySelector("#typed:invalid") === document.activeElement`), "the number is asked for")
	p.press("5")
	eval[any](p, `void setTimeout(() => { for (const n of [1, 2]) document.querySelector("#confirm").click() })`)
	p.seesIn("#result", "Deleted 5")
	var begun struct{ Operations []struct{ ID int } }
	require.Equal(t, 200, s.call(t, "GET", "/operations", fields{}, &begun))
	require.Len(t, begun.Operations, 1, "a double click asks once")
	require.Zero(t, s.letters(t, "shop.dead"))

	s.dead(t, "shop.again", 2)
	p.open("/deadletters?topic=shop.again")
	p.click("#replay")
	p.click("#confirm")
	p.sees("Replayed 2 · skipped 0")
	p.open("/audit?what=operation")
	p.seesIn("#audit", "shop.again")
}

// The page of an operation is refreshed in place to its end. A click stops one, also without a script.
func TestOperationsAreShownAndStopped(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	for i := range 60 { // more than a refresh is away
		s.schedule(t, "shop.many", fmt.Sprint("many-", i), nil)
	}
	begin := func(id string) {
		p.open("/find?topic=shop.many&q=" + id)
		p.click("#cancel-many")
		p.click("#confirm")
		p.sees("Cancel these tasks", "All operations")
	}
	begin("many-")
	p.seesIn("#operation .state", "done")
	p.seesIn("#result", "Cancelled 60")
	require.EqualValues(t, 60, eval[float64](p, `document.querySelector("#operation progress").value`))
	require.Equal(t, "operation 1", eval[string](p, `document.querySelector("#operation progress").getAttribute("aria-label")`))
	p.click("#back")
	p.sees("To come")
	p.click(`nav a[href="/operations"]`)
	p.seesIn("#operations", "60 of 60")

	require.Less(t, s.call(t, "PUT", "/timers/shop.runs/often?wait=5s", fields{"cron": "* * * * * *", "value": "v"}, nil), 300)
	slow := func(hours time.Duration) string { // 9,000 runs
		var o struct{ ID int }
		from := time.Now().Add(-hours * time.Hour)
		require.Equal(t, 202, s.call(t, "POST", "/timers/shop.runs/often/backfill?async=true", fields{"from": from, "to": from.Add(150 * time.Minute)}, &o))
		return fmt.Sprint("/operations/", o.ID)
	}
	first := slow(6)
	p.open(strings.Replace(first, "s/", "?id=", 1))
	p.seesIn("#operation .state", "running")
	eval[any](p, `void (window.same = document.querySelector("#operation progress"))`)
	require.Equal(t, 200, s.call(t, "DELETE", first, fields{}, nil))
	p.seesIn("#operation .state", "stopped")
	require.True(t, eval[bool](p, `same.isConnected && !document.querySelector("#operation button")`), "in place")
	for i := range time.Duration(3) {
		slow(12 + 6*i)
	}
	p.withoutScripts()
	p.open("/operations")
	p.click("#operations a")
	p.click("#operation button")
	p.seesIn("#outcome", "Stopped")
	p.seesIn("#operation .state", "stopped")
}

// Without a mouse: everything can be reached with keys, and what has the focus can be seen.
func TestKeyboard(t *testing.T) {
	s := startStack(t)
	s.schedule(t, "shop.orders", "order-1", nil)
	s.schedule(t, "shop.returns", "order-1", nil) // a single task would be shown at once
	s.dead(t, "shop.dead", 2)
	p := newTab(t, s.base, "")
	focus := func(id string) {
		t.Helper()
		p.eventually(id+" has no focus", `document.activeElement?.id === "`+id+`"`)
	}
	p.open("/find")
	focus("token")
	p.press(tokens["operate"], kb.Enter)
	focus("q")
	p.scripted()
	p.press("order-1", "?", "g", "t", kb.Backspace, kb.Backspace, kb.Backspace, kb.Enter) // text is no key
	p.sees("With this id")
	p.eventually("the list is shown", `location.search.includes("q=order-1") && document.activeElement.id === "q"`)
	p.scripted()
	p.press(kb.Escape, "j", "j", "k", "x")
	require.Equal(t, "order-1", eval[string](p, `document.activeElement.textContent`))
	require.Equal(t, 1, eval[int](p, `document.querySelectorAll("tr:has(:focus) input:checked").length`))
	require.NotEqual(t, "none 0px", eval[string](p, `(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle + " " + s.outlineWidth })()`), "the focus is visible")
	p.press(kb.Enter)
	p.sees("History")
	p.scripted()
	p.press(kb.Tab)
	p.eventually("the first stop leads past the navigation", `document.activeElement?.className === "skip"`)
	p.press("/")
	focus("seek")

	p.tabTo(`document.activeElement?.id === "cancel"`)
	p.press(kb.Enter)
	focus("back") // of a deed that cannot be undone
	p.sees("Cancel this task", "Keep it")
	p.press(kb.Escape)
	focus("cancel") // it comes back
	p.press(kb.Enter)
	focus("back")
	p.press("g", "t") // not under a dialog
	p.tabTo(`document.activeElement?.id === "confirm"`)
	p.press(kb.Enter)
	p.seesIn("#outcome", "cancelled")

	p.scripted()
	p.press("?")
	p.seesIn("#keys", "Dead letters")
	p.press(kb.Escape)
	p.eventually("the list stays", `!document.querySelector("dialog[open]")`)
	p.press("g", "t")
	p.sees("Change a target")
	p.scripted()
	p.tabTo(`document.activeElement?.id === "topic"`)
	p.press("shop.orders")
	p.tabTo(`document.activeElement?.id === "pause"`)
	p.press(kb.Enter)
	focus("back")
	p.tabTo(`document.activeElement?.id === "confirm"`)
	p.press(kb.Enter)
	p.seesIn("#targets", "paused")

	p.scripted()
	p.press("g", "d")
	p.sees("By reason")
	p.scripted()
	p.press("j", "j", kb.Enter) // past the group
	p.sees("Died")
	p.scripted()
	p.tabTo(`document.activeElement?.id === "replay"`)
	p.press(kb.Enter)
	focus("confirm")
	p.press(kb.Enter)
	p.sees("Replayed 1")

	p.tabTo(`document.activeElement?.id === "sign-out"`)
	p.press(kb.Enter)
	focus("token")
}

// Of two questions the later one is meant, whichever answer comes first. A key that is held down
// answers none.
func TestQuestionsStayWhatTheyAre(t *testing.T) {
	s := startStack(t)
	for _, topic := range []string{"shop.a", "shop.b"} {
		require.Equal(t, 200, s.call(t, "PATCH", "/targets/"+topic, fields{"paused": true}, nil))
	}
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	p.open("/targets")
	p.scripted()
	eval[any](p, `void (() => {
		const real = fetch;
		window.fetch = async (url, options) => {
			const answer = await real(url, options);
			if (String(url).includes("shop.a")) await new Promise((resolve) => { window.release = () => { resolve(); setTimeout(() => { window.released = true }, 200) } });
			return answer;
		};
	})()`)
	p.click(`[data-key="shop.a"] button`)
	p.click(`[data-key="shop.b"] button`)
	p.seesIn("#named", "shop.b")
	p.eventually("the first answer has not come", "!!window.release")
	eval[any](p, "void release()")
	p.eventually("the first answer has not come", "window.released === true")
	p.seesIn("#named", "shop.b")
	p.click("#back")

	eval[any](p, `void document.querySelector('[data-key="shop.b"] button').focus()`)
	enter := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13}
	for range 20 {
		_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, enter)
		require.NoError(t, err)
		enter.AutoRepeat = new(true)
		time.Sleep(30 * time.Millisecond)
	}
	p.seesIn("dialog[open] #named", "shop.b")
	p.press(kb.Escape, "g")
	p.do(chromedp.SendKeys(chromedp.CSS("#topic"), "x"+kb.Escape)) // what is typed ends a g
	p.press("o")
	require.Equal(t, "/targets", eval[string](p, "location.pathname"))
}

// What is ticked is a task, and not a row: a list that somebody comes back to may be another one.
func TestTicksStayWithTheirTasks(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	for _, id := range []string{"order-1", "order-2", "order-3"} {
		s.schedule(t, "shop.orders", id, nil)
	}
	s.dead(t, "shop.dead", 2)
	for path, change := range map[string]func(){
		"/find?topic=shop.orders": func() {
			require.Less(t, s.call(t, "POST", "/tasks/cancel?wait=5s", fields{"topic": "shop.orders", "id": eval[string](p, `document.querySelector(".found tbody a").textContent`)}, nil), 300)
		},
		"/deadletters?topic=shop.dead": func() {
			require.Less(t, s.call(t, "POST", "/tasks", fields{"topic": "shop.dead", "id": "dead-9", "delay": "0s", "value": "v", "ack": "report", "ack_timeout": "100ms", "max_attempts": 1}, nil), 300)
			require.Eventually(t, func() bool { return s.letters(t, "shop.dead") == 3 }, bound, 10*time.Millisecond)
		},
	} {
		p.open(path)
		p.scripted()
		eval[any](p, `void document.querySelectorAll("td input[type=checkbox]")[1].click()`)
		change()
		p.click(`nav a[href="/timers"]`)
		p.sees("Set a timer")
		p.back()
		p.scripted()
		require.Zero(t, eval[int](p, `document.querySelectorAll("td input:checked").length`), path)
		eval[any](p, `void document.querySelectorAll("td input[type=checkbox]")[1].click()`)
		p.do(chromedp.Reload())
		p.scripted()
		require.Zero(t, eval[int](p, `document.querySelectorAll("td input:checked").length`), path)
	}
}

// A page's times are in the zone that somebody chooses. A field says what it understands.
func TestTimesAreUnderstood(t *testing.T) {
	s := startStack(t)
	s.schedule(t, "shop.orders", "order-1", nil)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	p.open(taskPage("shop.orders", "order-1"))
	p.seesIn("#state", "UTC")
	p.do(chromedp.SetValue(chromedp.CSS("#zone"), "Asia/Tokyo"))
	p.click("footer button")
	p.sees("Times are Asia/Tokyo")
	p.seesIn("#state", "JST")
	p.do(chromedp.SendKeys(chromedp.CSS("#at"), "tomorow 9:00"))
	p.seesIn("#at-is .bad", "tomorrow 9:00")
	eval[any](p, `void (document.getElementById("at").value = "")`)
	p.do(chromedp.SendKeys(chromedp.CSS("#at"), "tomorrow 9:00"))
	p.seesIn("#at-is", "09:00:00.000 JST")
	eval[any](p, "void ("+remember+")")
	p.eventually("the page is not refreshed", refreshed)
	p.seesIn("#at-is", "09:00:00.000 JST")
	p.click("#move")
	p.seesIn("#changes", "09:00:00.000 JST")
	p.click("#confirm")
	p.seesIn("#outcome", "in the intake")
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return time.UnixMilli(s.due(t, "shop.orders", "order-1")).In(tokyo).Format("15:04:05.000") == "09:00:00.000"
	}, bound, 10*time.Millisecond)
}

// A mistake is said at its field, or over the form. Both stay as they were typed.
func TestAMistakeKeepsWhatWasTyped(t *testing.T) {
	s := startStack(t)
	p := newTab(t, s.base, "422 (Unprocessable Entity)")
	p.signIn(tokens["operate"])
	p.open("/targets")
	p.do(chromedp.SendKeys(chromedp.CSS("#topic"), "shop.mail"))
	p.click("#limit")
	p.seesIn("dialog[open]", "both empty")
	p.click("#back")
	p.do(chromedp.SendKeys(chromedp.CSS("#rate"), "many"+kb.Enter))
	p.eventually("the field says nothing", `document.querySelector("#rate:invalid")?.validationMessage.startsWith("This is no number")`)
	require.Equal(t, "shop.mail rate many", eval[string](p, `[document.getElementById("topic").value, document.activeElement.id, document.activeElement.value].join(" ")`))
	p.press(kb.Backspace, kb.Backspace, kb.Backspace, kb.Backspace, "2", kb.Enter)
	p.seesIn("dialog[open] #changes", "2")
	p.press(kb.Escape)
	p.eventually("the question stays", `!document.querySelector("dialog[open]")`)
	require.Equal(t, "2", eval[string](p, `document.getElementById("rate").value`))
}

// The pages refresh themselves, and are whole without a script.
func TestRefreshAndNoScript(t *testing.T) {
	s := startStack(t)
	s.schedule(t, "shop.orders", "order-1", nil)
	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	p.open(taskPage("shop.orders", "order-1"))
	p.seesIn("#task-state", "pending")
	require.Less(t, s.call(t, "POST", "/tasks/cancel?wait=5s", fields{"topic": "shop.orders", "id": "order-1"}, nil), 300)
	p.seesIn("#task-state", "cancelled")
}

// Without scripts each deed is possible: its question is a page.
func TestEachDeedWithoutScripts(t *testing.T) {
	s := startStack(t)
	for _, id := range []string{"order-1", "order-2", "order-3", "order-4"} {
		s.schedule(t, "shop.orders", id, fields{"tag": "campaign"})
	}
	s.dead(t, "shop.dead", 3)
	p := newTab(t, s.base, "")
	p.signIn(tokens["admin"])
	p.withoutScripts()
	fill := func(field, text string) { p.do(chromedp.SendKeys(chromedp.CSS(field), text)) }
	deed := func(button, shown, text string) {
		t.Helper()
		p.click(button)
		p.eventually("no page asks", `!!document.querySelector("main form[data-back]")`)
		if eval[bool](p, `!!document.getElementById("typed")`) {
			fill("#typed", eval[string](p, `document.querySelector("[name=shown]").value`))
		}
		p.click("#confirm")
		p.seesIn(shown, text)
	}
	p.open(taskPage("shop.orders", "order-1"))
	deed("#cancel", "#outcome", "cancelled")
	p.open(taskPage("shop.orders", "order-2"))
	fill("#at", "+2h")
	deed("#move", "#outcome", "in the intake")
	p.open(taskPage("shop.orders", "order-3"))
	deed("#fire", "#outcome", "fired")
	p.open("/find?topic=shop.orders")
	p.click(`input[aria-label="order-4"]`)
	deed("#cancel-ticked", "#outcome", "cancelled")
	p.open("/find?tag=campaign")
	deed("#cancel-many", "#result", "Cancelled 1")
	p.open("/targets")
	fill("#topic", "shop.orders")
	fill("#until", "+1d")
	deed("#pause", "#targets", "paused until in 23 h")
	deed("#targets button[value=resume]", "#outcome", "resumed")
	p.open("/timers")
	fill("form[data-preview] input[name=topic]", "shop.reports")
	fill("form[data-preview] input[name=id]", "nightly")
	fill("#every", "1h")
	deed("#set", "#outcome", "timer_set")
	deed("#run", "#outcome", "Made")
	deed("#delete", "#outcome", "timer_deleted")
	p.open("/deadletters?task_id=dead-0")
	deed("#replay", "#result", "Replayed 1")
	p.open("/deadletters?topic=shop.dead")
	deed("#purge", "#result", "Deleted")
	p.do(chromedp.SetValue(chromedp.CSS("#zone"), "Asia/Tokyo"))
	p.click("footer button")
	p.sees("Times are Asia/Tokyo")
}

// A token of one topic sees and changes its own tasks only.
func TestScopedToken(t *testing.T) {
	s := startStack(t)
	s.schedule(t, "shop.orders", "order-1", nil)
	s.schedule(t, "bank.orders", "order-1", nil)
	p := newTab(t, s.base, "")
	p.signIn(tokens["shop"])
	p.open("/find?q=order-1")
	p.sees("order-1")
	p.lacks("bank.orders")
	p.open(taskPage("shop.orders", "order-1"))
	p.sees("History")
}
