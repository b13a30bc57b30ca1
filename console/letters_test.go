package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// Letters are chosen by time, also by how long ago they died, and a time that cannot be read is named.
func TestLettersAreChosenByTime(t *testing.T) {
	w := newWorld(t, true)
	now := time.Now()
	w.die(task.DeadLetter{Kind: schemas.KindRejected, Topic: "orders", TaskID: "tonight", Reason: "bad"})
	b := w.as("operate")
	for filter, want := range map[string]bool{
		"since=12h": true, "until=12h": false, "since=" + now.Add(time.Hour).UTC().Format(time.RFC3339): false, "since=&until=": true,
		"since=2020-01-01T00:00&until=2020-01-02T00:00": false, "since=2020-01-01T00:00&until=2099-01-02T00:00": true,
	} {
		_, text := b.get("/deadletters?" + filter)
		require.Equal(t, want, strings.Contains(text, "<td>tonight</td>"), filter)
	}
	_, text := b.get("/deadletters?since=12h")
	require.Regexp(t, `id="since" value="`+now.Add(-12*time.Hour).UTC().Format("2006-01-02T15:"), text, "a time that stays what it was on the next page")
	require.Regexp(t, `name="since" value="2`, text, "the change below is about the same letters")
	resp, text := b.get("/deadletters?since=yesterday")
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Contains(t, text, "since is neither")
	_, text = b.get("/deadletters?do=replay&since=12h")
	require.Contains(t, text, "1 dead letters now")
}

// A letter is replayed from its page, and letters that were ticked from their list. The others stay.
func TestSingleLettersAreReplayed(t *testing.T) {
	w := newWorld(t, true)
	w.operate()
	body := schemas.EncodeBody(nil, []byte("v"), nil, nil, schemas.DefaultSettings())
	for _, id := range []string{"a", "b", "c", "d"} {
		w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: "orders", TaskID: id, Reason: "bad", Body: body})
	}
	b := w.as("operate")
	left := func() string {
		_, text := b.get("/deadletters")
		out := ""
		for _, id := range []string{"a", "b", "c", "d"} {
			if strings.Contains(text, "<td>"+id+"</td>") {
				out += id
			}
		}
		return out
	}
	require.Equal(t, "abcd", left())
	_, text := b.get("/deadletter?id=1")
	require.Contains(t, text, `<input type="hidden" name="ids" value="1">`)
	_, text = w.as("read").get("/deadletter?id=1")
	require.NotContains(t, text, "<button id=\"replay\"")

	_, text = b.get("/deadletters?do=replay&topic=orders&ids=1")
	require.Contains(t, text, "1 dead letters now")
	require.Contains(t, text, "topic orders")
	replay := func(ids string) {
		resp, text := b.post("/deadletters", url.Values{"do": {"replay"}, "topic": {"orders"}, "ids": {ids}, "confirmed": {"yes"}})
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
		text = b.ended(resp.Header.Get("Location"))
		require.Contains(t, text, "Replayed "+strconv.Itoa(len(ids)/2+1)+" · skipped 0")
	}
	replay("1")
	require.Equal(t, "bcd", left())
	replay("2,4")
	require.Equal(t, "c", left())

	resp, text := b.get("/deadletters?do=replay&topic=orders&only=ticked")
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, "nothing ticked is not everything")
	require.Contains(t, text, "tick the letters")
	resp, _ = b.get("/deadletters?ids=1,x")
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Equal(t, "c", left())
}

// A letter's form has its topic, key and value. What was changed in it is shown, and then replayed; the rest stays, byte for byte.
func TestALetterIsCorrected(t *testing.T) {
	w := newWorld(t, true)
	body := schemas.EncodeBody(nil, []byte("k"), []byte("{\n \"a\": 1}"), nil, schemas.DefaultSettings())
	w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: "orders", TaskID: "a", Reason: "bad", Body: body})
	w.die(task.DeadLetter{Kind: schemas.KindDead, Topic: "orders", TaskID: "b", Reason: "bad", Body: schemas.EncodeBody(nil, nil, []byte{0xff}, nil, schemas.DefaultSettings())})
	b := w.as("operate")
	_, text := b.get("/deadletter?id=1")
	require.Contains(t, text, `name="topic" value="orders"`)
	require.Contains(t, text, "<textarea name=\"value\" rows=\"12\">\n{\n &#34;a&#34;: 1}</textarea>")
	_, text = b.get("/deadletter?id=2")
	require.NotContains(t, text, "<textarea", "bytes are no text")
	_, text = w.as("read").get("/deadletter?id=1")
	require.NotContains(t, text, `id="edit"`)

	form := url.Values{"id": {"1"}, "topic": {"orders"}, "key": {"k"}, "value": {"{\r\n \"a\": 1}"}}
	resp, text := b.post("/deadletter", form)
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Contains(t, text, "all as they were")
	form.Set("value", "{\r\n \"a\": 2}")
	resp, text = b.post("/deadletter", form)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, text, `<th scope="row">value</th>`)
	require.NotContains(t, text, `<th scope="row">key</th>`)
	form.Set("confirmed", "yes")
	resp, text = b.post("/deadletter", form)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text)
	_, text = b.get(resp.Header.Get("Location"))
	require.Contains(t, text, "Replayed, with another value.")
	got, err := look.New(w.store).Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	replayed, err := schemas.DecodeBody(got.Body)
	require.NoError(t, err)
	require.Equal(t, []string{"k", "{\n \"a\": 2}"}, []string{string(replayed.Key), string(replayed.Value)})
	form.Set("topic", "notyet.intake/3")
	form.Set("id", "2")
	resp, _ = b.post("/deadletter", form)
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	resp, _ = w.as("read").post("/deadletter", form)
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
}
