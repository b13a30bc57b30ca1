package browser

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// What somebody on call does at night takes few clicks from the first page. That a service is gone is
// seen without any: TestAPageSaysThatItsServiceIsGone.
func TestJobsAtNightTakeFewClicks(t *testing.T) {
	s := startStack(t)
	s.pause(t, "shop.slow")
	s.schedule(t, "shop.slow", "4711", fields{"delay": "0s"})
	s.dead(t, "shop.dead", 3)
	require.Less(t, s.call(t, "POST", "/tasks", fields{"topic": "shop.dead", "id": "other", "at": "2020-01-01T00:00:00Z", "max_lateness": "1s", "value": "v"}, nil), 300)
	require.Eventually(t, func() bool { return s.letters(t, "shop.dead") == 4 }, bound, 10*time.Millisecond)
	for _, id := range []string{"mail-1", "mail-2"} {
		s.schedule(t, "shop.mails", id, fields{"tag": "campaign"})
	}
	s.schedule(t, "shop.mails", "mail-3", nil)
	require.Less(t, s.call(t, "PUT", "/timers/shop.reports/nightly?wait=5s", fields{"cron": "0 3 * * *", "value": "v"}, nil), 300)

	p := newTab(t, s.base, "")
	p.signIn(tokens["operate"])
	job := func(most int, do func()) {
		t.Helper()
		p.open("/")
		p.clicks = 0
		do()
		require.LessOrEqual(t, p.clicks, most)
	}
	enter := func(field, text string) { p.do(chromedp.SendKeys(chromedp.CSS(field), text)) }

	job(2, func() { // why is order 4711 late?
		p.click(`nav a[href="/find"]`)
		enter("#q", "4711"+kb.Enter)
		p.seesIn("#why", "paused")
	})
	job(3, func() { // those of one reason, without a word typed
		p.click(`nav a[href="/deadletters"]`)
		p.click(`#groups a[href$="do=replay"]`)
		p.sees("3 dead letters now")
		p.click("#back")
	})
	job(3, func() { // tonight's dead letters of one reason are sent again
		p.click(`nav a[href="/deadletters"]`)
		enter("#since", "12h")
		enter("main input[name=reason]", "exhausted"+kb.Enter)
		p.eventually("the reason does not choose", `document.querySelectorAll("#letters tbody tr").length === 3`)
		p.click("#replay")
		p.sees("3 dead letters now")
		p.click("#confirm")
		p.sees("Replayed 3 · skipped 0")
	})
	job(3, func() { // one letter, from its page: it died again
		p.open("/deadletters?topic=shop.dead&task_id=other")
		p.click("#letters a")
		p.click("#replay")
		p.click("#confirm")
		p.sees("Replayed 1 · skipped 0")
	})
	job(2, func() { // everything to a sick shop stops
		enter("main input[name=topic]", "shop.mails")
		p.click("#pause")
		p.sees("Pause this target")
		p.click("#confirm")
		p.seesIn("#targets", "shop.mails")
	})
	job(4, func() { // last night's run is made up for
		p.click(`nav a[href="/timers"]`)
		p.click("#timers a")
		p.sees("Last runs")
		enter("#from", "24h")
		p.click("#backfill")
		p.sees("Would make 1")
		p.click("#confirm")
		p.seesIn("#result", "Made 1")
		p.open(timerPage("shop.reports", "nightly"))
		p.seesIn("#last", "delivered")
	})
	job(4, func() { // a campaign is cancelled by its tag
		p.click(`nav a[href="/find"]`)
		enter("main input[name=tag]", "campaign"+kb.Enter)
		p.sees("mail-1")
		p.click("#cancel-many")
		p.sees("2 tasks now")
		p.click("#confirm")
		p.seesIn("#result", "Cancelled 2 · too late 0")
		require.Equal(t, "pending", s.state(t, "shop.mails", "mail-3"))
	})
	p.open(taskPage("shop.mails", "mail-3")) // from the task, its target
	p.clicks = 0
	p.click("#pause")
	p.click("#back")
	require.Equal(t, 2, p.clicks)
}
