package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

// Lists go on by the cursor of the page before, until a page has none. Letters that a caller may not see
// take no room in his pages.
func TestDeadLettersByCursor(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		topic := []string{"bills", "orders"}[i/3]
		w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, Topic: topic, TaskID: fmt.Sprint(i), Reason: "bad"}})
	}
	for name, c := range map[string]struct {
		token, query string
		pages        [][]string
	}{
		"all":                    {"read", "limit=4", [][]string{{"0", "1", "2", "3"}, {"4", "5"}}},
		"with content":           {"operate", "limit=4&content=true", [][]string{{"0", "1", "2", "3"}, {"4", "5"}}},
		"the last page is full":  {"read", "limit=3", [][]string{{"0", "1", "2"}, {"3", "4", "5"}}},
		"those of a topic":       {"read of orders", "limit=2&topic=orders", [][]string{{"3", "4"}, {"5"}}},
		"those that may be seen": {"read of orders", "limit=2", [][]string{{"3", "4"}, {"5"}}},
		"the latest first":       {"read", "limit=4&newest=true", [][]string{{"5", "4", "3", "2"}, {"1", "0"}}},
		"the latest of a topic":  {"read of orders", "limit=2&newest=true&topic=orders", [][]string{{"5", "4"}, {"3"}}},
		"the latest of a caller": {"read of orders", "limit=2&newest=true", [][]string{{"5", "4"}, {"3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var pages [][]string
			for cursor := ""; ; {
				code, answer := w.as(c.token, "GET", "/api/v1/deadletters?"+c.query+cursor, "")
				require.Equal(t, 200, code, answer)
				var page deadletter.Letters
				require.NoError(t, json.Unmarshal([]byte(answer), &page))
				var ids []string
				for _, l := range page.Letters {
					ids = append(ids, l.TaskID)
				}
				pages = append(pages, ids)
				if page.Cursor == "" {
					break
				}
				cursor = "&cursor=" + page.Cursor
			}
			require.Equal(t, c.pages, pages)
		})
	}
	for _, cursor := range []string{"x", "-1", "1.5", "01"} {
		code, answer := w.do("GET", "/api/v1/deadletters?cursor="+cursor, "")
		require.Equal(t, 422, code, answer)
		require.Contains(t, answer, "cursor")
	}
	found, err := deadletter.Collect(t.Context(), w.client, letters.Filter{}, 5)
	require.NoError(t, err)
	require.Len(t, found, 5)
	found, err = deadletter.Collect(t.Context(), w.client, letters.Filter{Newest: true}, 5)
	require.NoError(t, err)
	require.Equal(t, "5", found[0].TaskID)
	page, err := w.client.Letters(t.Context(), letters.Filter{Newest: true, Limit: 2}, "", false)
	require.NoError(t, err)
	code, answer := w.do("GET", "/api/v1/deadletters?cursor="+page.Cursor, "")
	require.Equal(t, 422, code, "a cursor goes one way: %s", answer)
}

func TestIDsOfDeadLettersAreBounded(t *testing.T) {
	w := newWorld(t)
	ids := func(n int) string {
		text, err := json.Marshal(map[string]any{"ids": make([]int64, n), "dry_run": true})
		require.NoError(t, err)
		return string(text)
	}
	code, answer := w.as("admin", "POST", "/api/v1/deadletters/replay", ids(1000))
	require.Equal(t, 200, code, answer)
	code, answer = w.as("admin", "POST", "/api/v1/deadletters/replay", ids(1001))
	require.Equal(t, 422, code, answer)
	require.Contains(t, answer, "ids")
}

// What an intake has rejected without a target is for callers to whom all targets of that intake belong, and
// for no others with a target there.
func TestLettersOfAnIntake(t *testing.T) {
	w := newWorld(t)
	own, err := intake.New(w.store).Source(t.Context(), "in.b", [16]byte{2}, 0, 0)
	require.NoError(t, err)
	for range 2 { // in.a is for every target, in.b for bills
		w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, TaskID: fmt.Sprint(w.source.Topic, "/0/", w.next), Reason: "bad"}})
		w.source, w.next = own, 0
	}
	of := func(token, path string) (int, []string) {
		code, answer := w.as(token, "GET", path, "")
		var page deadletter.Letters
		require.NoError(t, json.Unmarshal([]byte(answer), &page))
		var ids []string
		for _, l := range page.Letters {
			ids = append(ids, l.Topic+" "+l.TaskID)
		}
		return code, ids
	}
	const list, filtered = "/api/v1/deadletters", "/api/v1/deadletters?topic=in.b"
	for token, want := range map[string][]string{"read": {"in.a in.a/0/0", "in.b in.b/0/0"}, "read of bills": {"in.b in.b/0/0"}, "read of orders": nil} {
		code, found := of(token, list)
		require.Equal(t, 200, code)
		require.Equal(t, want, found, token)
		for id, topic := range map[string]string{"1": "in.a", "2": "in.b"} {
			code, answer := w.as(token, "GET", list+"/"+id, "")
			require.Equal(t, slices.Contains(want, topic+" "+topic+"/0/0"), code == 200, "%s %s", token, answer)
		}
	}
	code, found := of("read of bills", filtered)
	require.Equal(t, []any{200, []string{"in.b in.b/0/0"}}, []any{code, found})
	for _, token := range []string{"read of orders", "admin of orders"} {
		code, _ = of(token, filtered)
		require.Equal(t, 403, code)
	}
	code, answer := w.as("admin of orders", "POST", list+"/purge", `{"topic":"in.b"}`)
	require.Equal(t, 403, code, answer)
	code, answer = w.as("admin of bills", "POST", list+"/purge", `{"topic":"in.b"}`)
	require.Equal(t, 200, code)
	require.Contains(t, answer, `"deleted":1,`)
}

func TestCoveringPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, target string
		covers          bool
	}{
		{"bills", "bills", true}, {"shop.*", "shop.*", true}, {"shop.*", "shop.mail.*", true}, {"*", "shop.*", true}, {"shop.?", "shop.?", true}, {"*", "orders", true},
		{"shop.mail.*", "shop.*", false}, {"shop.?", "shop.*", false}, {"*ab*", "x[ab]y", false}, {"shop.*", `shop.\*`, false}, {"*", "https://*", false}, {"bills", "bill*", false},
	} {
		require.Equal(t, c.covers, covers([]string{"other", c.pattern}, c.target), "%s %s", c.pattern, c.target)
	}
}

// A caller for some topics searches the letters of others blind: no answer may depend on what they say.
func TestLettersAreNoOracle(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, Topic: "bills", TaskID: strconv.Itoa(i), Reason: "the secret is 4711"}})
	}
	w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: "own", Reason: "as usual"}})
	ask := func(reason string) string {
		code, answer := w.as("read of orders", "GET", "/api/v1/deadletters?limit=1&reason="+reason, "")
		require.Equal(t, 200, code)
		return answer
	}
	require.Equal(t, ask("4712"), ask("4711"), "whether it is there")
	require.JSONEq(t, `{"deadletters":[]}`, ask("4711"))
	require.Contains(t, ask("usual"), `"own"`)
	for i := range 22 {
		code, answer := w.as("read of orders", "GET", "/api/v1/deadletters/"+strconv.Itoa(i), "")
		if code == 404 {
			require.NotContains(t, answer, "token", "as if there were none")
			continue
		}
		require.Contains(t, answer, `"own"`)
	}
}
