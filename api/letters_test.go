package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
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
