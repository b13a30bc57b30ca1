package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
)

// post sends a form of the console, confirmed, and returns the page that it leads to.
func (d *dev) post(t *testing.T, path string, fields ...string) string {
	t.Helper()
	form := url.Values{"confirmed": {"yes"}}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Jar: jar}).PostForm("http://"+d.http+path, form) //nolint:noctx // a test's
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
	return string(text)
}

// operate sends the form of a change of many, and loads the operation's page until it has ended.
func (d *dev) operate(t *testing.T, path string, fields ...string) (text string) {
	t.Helper()
	text = d.post(t, path, fields...)
	id := regexp.MustCompile(`<h1>Operation (\d+)<`).FindStringSubmatch(text)
	require.NotNil(t, id, text)
	require.Eventually(t, func() bool {
		text = d.page(t, "/operation?id="+id[1])
		return !strings.Contains(text, ">running</span>")
	}, time.Minute, 20*time.Millisecond)
	return text
}

func (d *dev) page(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + d.http + path) //nolint:noctx // a test's
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

func TestConsoleCancelsFiresAndMoves(t *testing.T) {
	d := startDev(t)
	for _, id := range []string{"c", "f", "m"} {
		require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "-t", "orders", "--id", id, "--delay", "1h", "--value", `{"for":"`+id+`"}`, "-H", "own=x").code)
	}
	seen := func(id, what string) func() bool {
		path := "/task?" + url.Values{"topic": {"orders"}, "id": {id}}.Encode()
		return func() bool { return regexpIn(d.page(t, path), what) }
	}
	for _, id := range []string{"c", "f", "m"} {
		require.Eventually(t, seen(id, `id="task-state">pending`), time.Minute, 20*time.Millisecond)
	}
	require.Contains(t, d.post(t, "/task", "do", "cancel", "topic", "orders", "id", "c"), "Answer: cancelled")
	require.Eventually(t, seen("c", `id="task-state">cancelled`), time.Minute, 20*time.Millisecond)

	require.Contains(t, d.post(t, "/task", "do", "fire", "topic", "orders", "id", "f"), "Answer: fired")
	r := first(t, d.kafka, "orders")
	require.Equal(t, `{"for":"f"}`, string(r.Value))

	resp, err := http.PostForm("http://"+d.http+"/task", url.Values{"do": {"move"}, "topic": {"orders"}, "id": {"c"}, "at": {"2031-02-03T04:05"}, "confirmed": {"yes"}}) //nolint:noctx // a test's
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, "what is cancelled is not scheduled again by a move")
	require.Contains(t, d.post(t, "/task", "do", "move", "topic", "orders", "id", "m", "at", "2031-02-03T04:05"), "new due time is in the intake")
	require.Eventually(t, seen("m", "2031-02-03 04:05:00.000 UTC"), time.Minute, 20*time.Millisecond)
	text := d.page(t, "/task?topic=orders&id=m")
	require.Contains(t, text, "&#34;for&#34;: &#34;m&#34;", "the content has moved with it")
	require.Contains(t, text, "Header own")
}

// What is held, waits for a retry or is dead can be moved too, and then comes at the new time alone.
func TestConsoleMovesWhatWaits(t *testing.T) {
	d := startDev(t)
	require.Equal(t, command.ExitDone, d.cmd(t, "target", "pause", "shut").code)
	for held := false; !held; { // the dispatcher hears of a pause within a second, and "shut" gets nothing from then on
		require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "shut", "probe", "--delay", "0s", "--value", "v").code)
		require.Eventually(t, func() bool {
			held = strings.Contains(d.page(t, "/api/v1/targets"), `"held":1`)
			return held || strings.Contains(d.page(t, "/task?topic=shut&id=probe"), `id="task-state">delivered`)
		}, time.Minute, 20*time.Millisecond)
	}
	waits := map[string]string{"held": `id="why">Its target is paused`, "retrying": `id="task-state">waiting_retry`, "dead": `id="task-state">dead`}
	for id, more := range map[string][]string{
		"held": {"-t", "shut"}, "retrying": {"-t", "orders", "--ack", "report", "--ack-timeout", "100ms", "--backoff", "fixed:1h"},
		"dead": {"-t", "orders", "--ack", "report", "--ack-timeout", "100ms", "--max-attempts", "1"},
	} {
		require.Equal(t, command.ExitDone, d.cmd(t, append([]string{"schedule", "--id", id, "--delay", "0s", "--key", "k", "--value", "of " + id}, more...)...).code)
	}
	for id, what := range waits {
		topic := map[bool]string{true: "shut", false: "orders"}[id == "held"]
		path := "/task?topic=" + topic + "&id=" + id
		require.Eventually(t, func() bool { return strings.Contains(d.page(t, path), what) }, time.Minute, 20*time.Millisecond, id)
		require.Contains(t, d.page(t, path), `id="move"`)
		require.Contains(t, d.page(t, path), map[bool]string{true: "Resume", false: "Pause"}[id == "held"]+" its target")
		require.Contains(t, d.post(t, "/task", "do", "move", "topic", topic, "id", id, "at", "2031-02-03T04:05"), "new due time is in the intake", id)
		require.Eventually(t, func() bool {
			text := d.page(t, path)
			return strings.Contains(text, `id="task-state">pending`) && strings.Contains(text, "2031-02-03 04:05:00.000 UTC")
		}, time.Minute, 20*time.Millisecond, id)
		text := d.page(t, path)
		require.Contains(t, text, "of "+id, "the content has moved with it")
		require.Contains(t, text, "<code>k</code>")
		if id != "held" {
			require.Contains(t, text, "ack report within 100ms")
		}
	}
}

// Tasks are cancelled by tag after they were counted. A form without a filter means none.
func TestConsoleCancelsByTag(t *testing.T) {
	d := startDev(t)
	for _, id := range []string{"a", "b", "c"} {
		require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "mails", id, "--delay", "1h", "--tag", "campaign", "--value", "v").code)
	}
	require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "mails", "other", "--delay", "1h", "--value", "v").code)
	for _, id := range []string{"a", "b", "c", "other"} {
		require.Eventually(t, func() bool { return d.cmd(t, "get", "mails", id).code == command.ExitDone }, time.Minute, 20*time.Millisecond)
	}
	require.Contains(t, d.page(t, "/find?tag=campaign"), `id="cancel-many"`)
	require.NotContains(t, d.page(t, "/find?tag=campaign&state=pending"), `id="cancel-many"`, "a state is none of the filters of a cancel")
	question := d.page(t, "/find?do=cancel&tag=campaign")
	require.Contains(t, question, "3 tasks now")
	require.Contains(t, question, "tag campaign")
	require.Contains(t, d.post(t, "/find", "do", "cancel", "tag", "campaign", "agreed", "1"), "There are many more of them now.")
	require.Contains(t, d.operate(t, "/find", "do", "cancel", "tag", "campaign", "agreed", "3"), "Cancelled 3 · too late 0")
	require.Contains(t, d.cmd(t, "get", "mails", "a").stdout, "cancelled")
	require.Contains(t, d.cmd(t, "get", "mails", "other").stdout, "pending")
	require.Contains(t, d.page(t, "/audit?what=operation"), "campaign")
	resp, err := http.PostForm("http://"+d.http+"/find", url.Values{"do": {"cancel"}, "confirmed": {"yes"}}) //nolint:noctx // a test's
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, "no filter is not all")
	require.Contains(t, d.cmd(t, "get", "mails", "other").stdout, "pending")
}

// A timer's page shows its last runs, and makes one, or those of a range.
func TestConsoleMakesRuns(t *testing.T) {
	d := startDev(t)
	require.Equal(t, command.ExitDone, d.cmd(t, "timer", "set", "orders", "hourly", "--cron", "0 * * * *", "--value", "v").code)
	question := d.page(t, "/timer?do=backfill&topic=orders&id=hourly&from=150m")
	require.Regexp(t, "Would make [23] · were there 0", question)
	require.Regexp(t, "from before the timer was set [23]", question)
	require.Contains(t, d.page(t, "/timer?do=run&topic=orders&id=hourly"), "Make this run")
	require.Contains(t, d.post(t, "/timer", "do", "run", "topic", "orders", "id", "hourly"), "it is due now")
	from := time.Now().Add(-150 * time.Minute).UTC().Format(time.RFC3339)
	require.Regexp(t, "Made [23] · were there 0", d.operate(t, "/timer", "do", "backfill", "topic", "orders", "id", "hourly", "from", from))
	require.Eventually(t, func() bool { return strings.Count(d.page(t, "/timer?topic=orders&id=hourly"), ">delivered") >= 2 }, time.Minute, 20*time.Millisecond)
	require.Regexp(t, "Would make 0 · were there [23]", d.page(t, "/timer?do=backfill&topic=orders&id=hourly&from="+url.QueryEscape(from)))
	r := d.cmd(t, "timer", "backfill", "orders", "hourly", "--from", "150m", "--dry-run")
	require.Contains(t, r.stderr, "are from before the timer was set")

	// Of many runs the command lists the latest, and sums all.
	require.Equal(t, command.ExitDone, d.cmd(t, "timer", "set", "orders", "often", "--cron", "* * * * *", "--value", "v").code)
	r = d.cmd(t, "timer", "audit", "orders", "often")
	require.Equal(t, 100, strings.Count(r.stdout, "often@"), r.stdout)
	require.Contains(t, r.stdout, "earlier runs are not listed (--limit)")
	require.Equal(t, 7, strings.Count(d.cmd(t, "timer", "audit", "orders", "often", "-n", "7").stdout, "often@"))
	require.Equal(t, command.ExitUsage, d.cmd(t, "timer", "audit", "orders", "often", "-n", "0").code)
}

func TestConsoleTimers(t *testing.T) {
	d := startDev(t)
	require.Contains(t, d.post(t, "/timer", "do", "set", "topic", "orders", "id", "daily", "cron", "0 9 * * *", "timezone", "Europe/Berlin", "value", "v"), "Answer: timer_set")
	require.Contains(t, d.page(t, "/timers"), "daily")
	require.Contains(t, d.post(t, "/timer", "do", "disable", "topic", "orders", "id", "daily"), "Answer: timer_disabled")
	require.Contains(t, d.page(t, "/timer?topic=orders&id=daily"), `id="timer-state">disabled`)
	require.Contains(t, d.post(t, "/timer", "do", "enable", "topic", "orders", "id", "daily"), "Answer: timer_enabled")
	require.Contains(t, d.page(t, "/timer?topic=orders&id=daily"), "Next runs")

	// A timer that exists keeps what the form leaves empty, and what the form is not about.
	require.Equal(t, command.ExitDone, d.cmd(t, "timer", "set", "orders", "full", "--cron", "0 9 * * *", "--timezone", "Europe/Berlin", "--jitter", "30s", "--misfire", "skip", "--key", "k", "--value", "v", "-H", "own=x", "--ack", "report", "--ack-timeout", "7m", "--overlap", "skip", "--version", "3").code)
	form := []string{"do", "set", "topic", "orders", "id", "full", "cron", "30 10 * * *"}
	question := d.post(t, "/timer", form...)
	require.Regexp(t, `<td data-th="In force">0 9 \* \* \*</td><td data-th="From now on"><strong>30 10 \* \* \*</strong>`, question)
	for _, stays := range []string{"Europe/Berlin", "30s", "k", "v"} {
		require.Contains(t, question, `<td data-th="In force">`+stays+`</td><td data-th="From now on"><span class="dim">stays</span>`)
	}
	seen := regexp.MustCompile(`name="seen" value="([0-9a-f]+)"`).FindStringSubmatch(question)
	require.NotNil(t, seen)
	require.Contains(t, d.post(t, "/timer", append(form, "seen", seen[1])...), "Answer: timer_set")
	var now api.Timer
	require.NoError(t, json.Unmarshal([]byte(d.cmd(t, "timer", "show", "orders", "full", "--json").stdout), &now))
	require.Equal(t, "30 10 * * * Europe/Berlin 30s skip skip", strings.Join([]string{now.Cron, now.Timezone, now.Jitter, now.Misfire, now.Overlap}, " "))
	require.Equal(t, "k v own x", strings.Join([]string{*now.Key, *now.Value, now.Headers[0].Key, *now.Headers[0].Value}, " "))
	require.Equal(t, "report 7m0s", now.Settings.Ack+" "+now.Settings.AckTimeout)
	require.EqualValues(t, 3, *now.Version)
	require.Contains(t, d.post(t, "/timer", append(form, "seen", seen[1])...), "Somebody has changed it meanwhile")
	require.Contains(t, d.post(t, "/preview", "topic", "orders", "id", "full", "cron", "0 12 * * *"), "T12:00:00&#43;0", "in its zone")

	require.Equal(t, command.ExitDone, d.cmd(t, "timer", "set", "--url", "http://127.0.0.1:1/hook?a=b", "--method", "PUT", "--id", "hook", "--every", "1h").code)
	form = []string{"do", "set", "topic", "http://127.0.0.1:1", "id", "hook", "every", "2h"}
	seen = regexp.MustCompile(`name="seen" value="([0-9a-f]+)"`).FindStringSubmatch(d.post(t, "/timer", form...))
	require.Contains(t, d.post(t, "/timer", append(form, "seen", seen[1])...), "Answer: timer_set")
	require.NoError(t, json.Unmarshal([]byte(d.cmd(t, "timer", "show", "http://127.0.0.1:1", "hook", "--json").stdout), &now))
	require.Equal(t, "2h0m0s PUT http://127.0.0.1:1/hook?a=b", strings.Join([]string{now.Every, now.Settings.Method, now.Settings.URL}, " "))

	require.Contains(t, d.post(t, "/timer", "do", "delete", "topic", "http://127.0.0.1:1", "id", "hook"), "Answer: timer_deleted")
	require.Contains(t, d.post(t, "/timer", "do", "delete", "topic", "orders", "id", "full"), "Answer: timer_deleted")
	require.Contains(t, d.post(t, "/timer", "do", "delete", "topic", "orders", "id", "daily"), "Answer: timer_deleted")
	require.Contains(t, d.page(t, "/timers"), "No timer is like that")
}

func TestConsoleReplaysAndPurges(t *testing.T) {
	d := startDev(t)
	for _, id := range []string{"letter-a", "letter-b", "letter-c"} { // too late, so that they die
		require.Equal(t, command.ExitDone, d.cmd(t, "schedule", "-t", "orders", "--id", id, "--at", "2020-01-01T00:00:00Z", "--max-lateness", "1s", "--value", id).code)
	}
	for _, id := range []string{"letter-a", "letter-b", "letter-c"} { // in slots of their own, so in any order
		require.Eventually(t, func() bool { return regexpIn(d.page(t, "/deadletters"), ">"+id+"<") }, time.Minute, 20*time.Millisecond)
	}
	asked := d.post(t, "/deadletters", "do", "replay", "topic", "orders", "confirmed", "")
	require.Contains(t, asked, "3 dead letters now")
	done := d.operate(t, "/deadletters", "do", "replay", "topic", "orders")
	require.Contains(t, done, "Replayed 3 · skipped 0")
	first(t, d.kafka, "orders")
	done = d.operate(t, "/deadletters", "do", "purge", "topic", "orders", "replayed", "on", "shown", "3", "typed", "3")
	require.Contains(t, done, "Deleted 3")
	require.Contains(t, d.page(t, "/deadletters?replayed=on"), "No dead letter is like that")
	require.Contains(t, d.page(t, "/audit"), "purge")
}

func regexpIn(text, pattern string) bool { return regexp.MustCompile(pattern).MatchString(text) }
