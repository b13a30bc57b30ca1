package console

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// Letters with one cause are a group, however their ids and numbers differ. The group leads to its
// letters, and to no others.
func TestLettersByReason(t *testing.T) {
	w := newWorld(t, true)
	die := func(topic, kind, reason string, n int) {
		for i := range n {
			w.die(task.DeadLetter{Kind: kind, Topic: topic, TaskID: fmt.Sprint(reason, i), Reason: fmt.Sprintf(reason, i)})
		}
	}
	die("orders", schemas.KindDead, "card %d is locked", 7)
	die("orders", schemas.KindUndeliverable, "the record has %d bytes", 3)
	die("bills", schemas.KindDead, "card %d is locked", 2)
	die("bills", schemas.KindDead, "<b>%d</b>", 1)
	b := w.as("operate")
	_, page := b.get("/deadletters")
	rows := regexp.MustCompile(`<tr><td><a href="(/deadletters[^"]*)">(\d+)</a></td>`).FindAllStringSubmatch(page, -1)
	var counts []string
	for _, r := range rows {
		counts = append(counts, r[2])
	}
	require.Equal(t, []string{"7", "3", "2", "1"}, counts)
	require.Contains(t, page, "card … is locked")
	require.NotContains(t, page, "<b>")
	to, err := url.Parse(html.UnescapeString(rows[0][1]))
	require.NoError(t, err)
	require.Equal(t, url.Values{"topic": {"orders"}, "kind": {"dead"}, "reason": {"is locked"}}, to.Query())
	_, page = b.get(to.String())
	require.Equal(t, 7, len(regexp.MustCompile(`name="ids"`).FindAllString(page, -1)))
	_, page = b.get(to.String() + "&do=replay")
	require.Contains(t, page, "7 dead letters now.", "the whole group is sent again from its row")
	_, page = b.get("/deadletters")
	require.Contains(t, page, rows[0][1]+`&amp;do=replay">Replay…</a>`)
	_, page = w.as("read").get("/deadletters")
	require.NotContains(t, page, "do=replay")
}

func TestWhatReasonsShare(t *testing.T) {
	for reason, shared := range map[string]string{
		"HTTP 503 from 10.0.0.7:443":                         "HTTP … from ….….….…:…",
		`the header "notyet-at" is wrong`:                    "the header … is wrong",
		"order 4f0c1a7e-9c1b-4c55-8d2f-0a1b2c3d4e5f is gone": "order … is gone",
		"declined": "declined",
		"":         "",
	} {
		require.Equal(t, shared, grouped(letterFilter{}, []deadletter.Letter{{Reason: reason}})[0].Reason)
	}
}
