package console

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/task"
)

// Two ids that differ in what no page shows would look the same to whoever confirms a change.
func TestNothingIsInvisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain ü 漢字 😀 a\u00a0b": "plain ü 漢字 😀 a\u00a0b",
		"a\nb\x1b\x7f":          `a\u000ab\u001b\u007f`,
		"a\u202eb\u200b\u2066":  `a\u202eb\u200b\u2066`,
		"a\u061cb":              `a\u061cb`, // turns the direction
		"a\u2060b\ufeff":        `a\u2060b\ufeff`,
		"a\u0085b\u2028":        `a\u0085b\u2028`,
		"a\U000e0041":           `a\ue0041`, // a tag: letters that nobody sees
		"\xff":                  "\uFFFD",
	} {
		require.Equal(t, want, visible(text))
	}
}

func TestNumbersHaveNoExponent(t *testing.T) {
	for ms, want := range map[float64]string{0: "0 ms", 1.5: "1.5 ms", 999: "999 ms", 1000: "1 s", 1480: "1.48 s", 49_970: "50 s", 119_990: "120 s", 600_000: "10 min", 8.64e7: "24 h"} {
		require.Equal(t, want, lasting(ms))
	}
	for n, want := range map[float64]string{0: "0", 0.25: "0.25", 999.9: "999.9", 999.99: "1000", 49_970.4: "49\u202f970"} {
		require.Equal(t, want, short(n))
	}
}

func TestATaskInNoSlotShowsNone(t *testing.T) {
	for slot, shows := range map[int]bool{task.OutOfLine: false, 0: true, 7: true} {
		var out bytes.Buffer
		require.NoError(t, pages["task"].ExecuteTemplate(&out, "content", shown{Data: taskData{Task: api.Task{Slot: slot}}}))
		require.Equal(t, shows, strings.Contains(out.String(), "<dt>Slot</dt>"), slot)
	}
}

// Lists of tasks to come have the held ones last. The number of them leads to these alone.
func TestHeldTasksAreALink(t *testing.T) {
	var out bytes.Buffer
	data := targetsData{Targets: []api.TargetPolicy{{Topic: "news", Paused: true, Held: 12}, {Topic: "mail", Paused: true}}}
	require.NoError(t, pages["targets"].ExecuteTemplate(&out, "content", shown{Data: data, Now: time.UnixMilli(0)}))
	require.Contains(t, out.String(), `<a href="/find?topic=news&amp;to=1970-01-01T00%3a00%3a00Z">12</a>`)
	require.NotContains(t, out.String(), "topic=mail&amp;to")
}

// The river of one target leads to its tasks and letters, and says that the target is paused.
func TestTheRiverOfATargetLeadsOn(t *testing.T) {
	content := func(d *overviewData) string {
		var out bytes.Buffer
		require.NoError(t, pages["overview"].ExecuteTemplate(&out, "content", shown{Data: d, Operate: true}))
		return out.String()
	}
	d := &overviewData{Topic: "news"}
	text := content(d)
	require.Contains(t, text, `href="/find?topic=news">Its tasks</a>`)
	require.Contains(t, text, `href="/deadletters?topic=news">Its dead letters</a>`)
	require.NotContains(t, text, "do=resume")
	d.All.Targets.Paused = []string{"mail", "news"}
	require.Contains(t, content(d), `is <span class="bad">paused</span> <a class="button" href="/targets?do=resume&amp;topic=news">`)
	d.Topic = ""
	require.NotContains(t, content(d), "of-target")
}

// The next attempt is told where it has another time than the task.
func TestTheDueTimeStandsOnce(t *testing.T) {
	for next, shows := range map[int64]bool{0: false, 1000: false, 2000: true} {
		var out bytes.Buffer
		require.NoError(t, pages["task"].ExecuteTemplate(&out, "content", shown{Data: taskData{Task: api.Task{Due: 1000, Next: next}}}))
		require.Equal(t, shows, strings.Contains(out.String(), "<dt>Next</dt>"), next)
	}
}

// A text may say tag:, topic: and state:, and becomes the form that has them. A form with one of them has the text as an id.
func TestTextWithQualifiers(t *testing.T) {
	for text, want := range map[string]string{
		"tag:spring": "tag=spring", "4711 topic:orders state:pending": "q=4711&state=pending&topic=orders", "orders/tag:x": "", "tag:": "", "4711": "", "https://a.example/x": "",
		"topic:https://a.example 7": "q=7&topic=https%3A%2F%2Fa.example",
	} {
		require.Equal(t, want, qualified(&findData{Q: text}).Encode(), text)
	}
	require.Nil(t, qualified(&findData{Q: "tag:x", Topic: "orders"}))
}
