package api

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

func (w *world) tagged(topic, id string, due int64, tag string) {
	w.t.Helper()
	r := schemas.NewRequest(schemas.OpSchedule, topic, id)
	r.Due, r.Accepted, r.Settings.Tag = due, due, tag
	w.put(task.Change{Request: &r})
}

func TestTags(t *testing.T) {
	w := newWorld(t)
	w.decideCancels()
	due := time.Now().Add(time.Hour).UnixMilli()
	for i, tag := range []string{"vip", "shop:7,vip", "vip-2", ""} {
		w.tagged("orders", fmt.Sprint(i), due+int64(i), tag)
	}
	w.tagged("bills", "b", due, "vip")
	listed := func(as, query string) (out []string) {
		t.Helper()
		code, answer := w.as(as, "GET", "/api/v1/tasks?tag="+query, "")
		require.Equal(t, 200, code, answer)
		var page Tasks
		require.NoError(t, json.Unmarshal([]byte(answer), &page))
		for _, one := range page.Tasks {
			out = append(out, one.Topic+"/"+one.ID)
		}
		return out
	}
	require.ElementsMatch(t, []string{"orders/0", "orders/1", "bills/b"}, listed("admin", "vip"))
	require.Equal(t, []string{"orders/1"}, listed("admin", "shop:7"))
	require.Equal(t, []string{"bills/b"}, listed("admin", "vip&topic=bills"))
	require.Equal(t, []string{"orders/0", "orders/1"}, listed("read of orders", "vip"), "none of other topics")
	tasks, err := w.client.Tasks(t.Context(), TaskFilter{Tag: "shop:7", Content: true})
	require.NoError(t, err)
	require.Len(t, tasks.Tasks, 1)
	require.Equal(t, "shop:7,vip", tasks.Tasks[0].Settings.Tag)

	forecast := func(f ForecastFilter) (n int64) {
		t.Helper()
		f.From, f.To = due-60_000, due+60_000
		out, err := w.client.Forecast(t.Context(), f)
		require.NoError(t, err)
		for _, step := range out.Steps {
			n += step.Count
		}
		return n
	}
	require.EqualValues(t, 3, forecast(ForecastFilter{Tag: "vip"}))
	require.EqualValues(t, 2, forecast(ForecastFilter{Tag: "vip", Topic: "orders"}))

	for path, body := range map[string]string{"GET /tasks?tag=a,b": "", "GET /tasks?tag=a%20b": "", "GET /forecast?tag=%2F": "", "POST /tasks/cancel-many": `{"tag":"a,b"}`,
		"GET /deadletters?tag=a,b": "", "GET /deadletters/count?tag=a,b": "", "POST /deadletters/replay": `{"tag":"a b"}`, "POST /deadletters/purge": `{"tag":"a b"}`} {
		var method, at string
		_, err := fmt.Sscan(path, &method, &at)
		require.NoError(t, err)
		code, answer := w.do(method, "/api/v1"+at, body)
		require.Equal(t, 422, code, path)
		require.Contains(t, answer, "is not a tag: write one of 1 to 64 letters, digits or -_.:", path)
	}

	for path, body := range map[string]string{"/tasks/cancel-many": `{"topic":"orders","tag":""}`, "/deadletters/replay": `{"topic":"orders","tag":""}`, "/deadletters/purge": `{"topic":"orders","tag":""}`} {
		code, answer := w.do("POST", "/api/v1"+path, body)
		require.Equal(t, 422, code, "an empty variable of a script selects nothing: %s", answer)
		require.Contains(t, answer, "body.tag")
	}
	code, answer := w.as("operate of orders", "POST", "/api/v1/tasks/cancel-many", `{"tag":"vip"}`)
	require.Equal(t, 403, code, answer)
	code, answer = w.as("operate of orders", "POST", "/api/v1/tasks/cancel-many", `{"tag":"vip","topic":"orders"}`)
	require.Equal(t, 200, code, answer)
	require.JSONEq(t, `{"cancelled":2,"too_late":0,"matched":2}`, answer)
	require.JSONEq(t, `{"tag":"vip","topic":"orders"}`, string(w.audited()[0].Extra))
	require.Equal(t, []string{"bills/b"}, listed("admin", "vip"))
	done, err := w.client.CancelMany(t.Context(), CancelMany{Tag: "vip", DryRun: true})
	require.NoError(t, err)
	require.Equal(t, CancelledMany{Matched: 1}, done)
	require.Equal(t, []string{"orders/2"}, listed("admin", "vip-2"))
}

func TestDeadLettersByTag(t *testing.T) {
	w := newWorld(t)
	settings := schemas.DefaultSettings()
	for _, topic := range []string{"orders", "bills"} {
		for i, tag := range []string{"vip", "vip,shop:7", ""} {
			settings.Tag = tag
			w.put(task.Change{Rejected: &task.DeadLetter{Kind: schemas.KindDead, Topic: topic, TaskID: fmt.Sprint(i), Body: schemas.EncodeBody(nil, nil, []byte("v"), nil, settings)}})
		}
	}
	all := func(f letters.Filter) (out []string) {
		t.Helper()
		found, err := deadletter.Collect(t.Context(), w.client, f, 100)
		require.NoError(t, err)
		for _, l := range found {
			out = append(out, l.Topic+"/"+l.TaskID)
		}
		n, err := w.client.CountLetters(t.Context(), f)
		require.NoError(t, err)
		require.EqualValues(t, len(out), n)
		return out
	}
	require.Equal(t, []string{"orders/0", "orders/1", "bills/0", "bills/1"}, all(letters.Filter{Tag: "vip"}))
	require.Equal(t, []string{"bills/1"}, all(letters.Filter{Tag: "shop:7", Topic: "bills"}))
	l, err := w.client.Letter(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, "vip,shop:7", l.Tag)
	code, answer := w.as("read of orders", "GET", "/api/v1/deadletters?tag=vip", "")
	require.Equal(t, 200, code)
	require.NotContains(t, answer, "bills")
	for _, path := range []string{"replay", "purge"} {
		code, answer = w.as("admin of orders", "POST", "/api/v1/deadletters/"+path, `{"tag":"vip"}`)
		require.Equal(t, 403, code, answer)
	}
	page, err := w.client.ReplayPage(t.Context(), letters.Filter{Tag: "vip", Topic: "orders"}, 0, false)
	require.NoError(t, err)
	require.Len(t, page.Letters, 2)
	require.Equal(t, []string{"bills/0", "bills/1"}, all(letters.Filter{Tag: "vip"}))
	purged, err := w.client.PurgePage(t.Context(), letters.Filter{Tag: "shop:7"}, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, purged.Deleted)
	require.JSONEq(t, `{"tag":"shop:7"}`, string(w.audited()[0].Extra))
}
