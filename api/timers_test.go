package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func (w *world) setTimer(topic, id string, when schemas.Timer, value []byte) {
	w.t.Helper()
	r := schemas.NewRequest(schemas.OpTimer, topic, id)
	r.Timer, r.Value, r.Key, r.Accepted = when, value, value, time.Now().UnixMilli()
	w.put(task.Change{Request: &r})
}

func (w *world) timerOp(op schemas.Op, topic, id string) {
	w.t.Helper()
	r := schemas.NewRequest(op, topic, id)
	r.Accepted = time.Now().UnixMilli()
	w.put(task.Change{Request: &r})
}

// TestTimersAreShown: as they were set, from the database and through the API alike.
func TestTimersAreShown(t *testing.T) {
	w := newWorld(t)
	from, until := time.Now().Add(time.Hour).Truncate(time.Hour).UnixMilli(), time.Now().Add(900*time.Hour).UnixMilli()
	w.setTimer("orders", "a/b ü", schemas.Timer{Cron: "30 2 * * *", Timezone: "Europe/Berlin", From: &from, Until: &until, Jitter: time.Minute, Misfire: schemas.MisfireAll}, []byte("v"))
	w.setTimer("orders", "off", schemas.Timer{Every: 90 * time.Second}, nil)
	w.timerOp(schemas.OpTimerDisable, "orders", "off")
	w.setTimer("bills", "gone", schemas.Timer{Every: time.Second}, nil)
	w.timerOp(schemas.OpTimerDelete, "bills", "gone")

	got, err := w.client.Timer(t.Context(), "orders", "a/b ü")
	require.NoError(t, err)
	local, err := w.local.Timer(t.Context(), "orders", "a/b ü")
	require.NoError(t, err)
	require.Equal(t, local, got)
	require.Equal(t, Runs{Cron: "30 2 * * *", Timezone: "Europe/Berlin", From: from, Until: until, Jitter: "1m0s"}, got.Runs)
	require.Equal(t, []string{"enabled", "all", "allow", "v"}, []string{got.State, got.Misfire, got.Overlap, *got.Value})
	next := time.UnixMilli(got.Next).UTC()
	require.Equal(t, 30, next.Minute())
	require.Greater(t, got.Next, from)

	off, err := w.client.Timer(t.Context(), "orders", "off")
	require.NoError(t, err)
	require.Equal(t, "disabled", off.State)
	require.Zero(t, off.Next)
	require.Equal(t, "1m30s", off.Every)
	_, err = w.client.Timer(t.Context(), "bills", "gone")
	require.ErrorIs(t, err, look.ErrNoTimer)

	var names []string
	f := TimerFilter{Limit: 1}
	for {
		page, err := w.client.Timers(t.Context(), f)
		require.NoError(t, err)
		for _, timer := range page.Timers {
			require.Nil(t, timer.Content)
			names = append(names, timer.ID)
		}
		if f.Cursor = page.Cursor; f.Cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"a/b ü", "off"}, names)
	for _, query := range []string{"cursor=x", "cursor=!", "cursor=b3JkZXJzAG9mZg&topic=bills"} {
		code, answer := w.do("GET", "/api/v1/timers?"+query, "")
		require.Equal(t, 422, code)
		require.Contains(t, answer, "cursor")
	}
}

// TestTimersAreAskedFor: each operation becomes the record that the contract describes, and is answered.
func TestTimersAreAskedFor(t *testing.T) {
	w := newWorld(t)
	w.respond(func(r *schemas.Request, position string) []schemas.Event {
		states := map[schemas.Op]schemas.State{schemas.OpTimer: schemas.StateTimerSet, schemas.OpTimerEnable: schemas.StateTimerEnabled,
			schemas.OpTimerDisable: schemas.StateTimerDisabled, schemas.OpTimerDelete: schemas.StateTimerDeleted}
		return []schemas.Event{{Topic: r.Topic, ID: r.ID, State: states[r.Op], Due: 5, At: 7, Request: position, Reason: r.Timer.Cron + r.Timer.Every.String() + string(r.Value)}}
	})
	for i, c := range []struct{ method, path, body, state, reason string }{
		{"PUT", "/orders/n%2F1", `{"cron":"@daily","timezone":"Europe/Berlin","until":"2031-01-01T00:00:00Z","jitter":"5s","misfire":"skip","overlap":"skip","ack":"report","version":3,"key":"k","value":"v"}`, "timer_set", "@daily0sv"},
		{"PUT", "/orders/n", `{"every":"90s"}`, "timer_set", "1m30s"},
		{"POST", "/orders/n/disable", "", "timer_disabled", "0s"},
		{"POST", "/orders/n/enable", "", "timer_enabled", "0s"},
		{"DELETE", "/orders/n", "", "timer_deleted", "0s"},
	} {
		code, answer := w.do(c.method, "/api/v1/timers"+c.path+"?wait=20s", c.body)
		require.Equal(t, http.StatusOK, code, answer)
		var e Event
		require.NoError(t, json.Unmarshal([]byte(answer), &e))
		require.Equal(t, []string{c.state, c.reason}, []string{string(e.State), e.Reason}, "case %d", i)
	}
	code, answer := w.do("PUT", "/api/v1/timers/orders/n", `{"every":"90s"}`)
	require.Equal(t, http.StatusAccepted, code, answer)
	require.Contains(t, answer, `"op":"timer"`)
}

// TestBadTimersAreRefused: with the field, before anything is sent.
func TestBadTimersAreRefused(t *testing.T) {
	w := newWorld(t)
	for body, field := range map[string]string{
		`{}`:                                                         "cron",
		`{"cron":"@daily","every":"90s"}`:                            "every",
		`{"cron":"0 0 30 2 *"}`:                                      "cron",
		`{"cron":"61 * * * *"}`:                                      `cron","value":"61 * * * *"`,
		`{"cron":"@every 5m"}`:                                       `cron","value":"@every 5m"`,
		`{"every":"1h","timezone":""}`:                               "timezone",
		`{"every":"10ms"}`:                                           "every",
		`{"every":"1h","timezone":"Mars/North"}`:                     "timezone",
		`{"every":"1h","until":1600000000000}`:                       "until",
		`{"every":"1h","jitter":"48h"}`:                              "jitter",
		`{"every":"1h","misfire":"never"}`:                           "misfire",
		`{"every":"1h","overlap":"skip"}`:                            "overlap",
		`{"every":"1h","intake":"nowhere"}`:                          "intake",
		`{"every":"1h","headers":[{"key":"notyet-at","value":"1"}]}`: "headers",
	} {
		code, answer := w.do("PUT", "/api/v1/timers/orders/a", body)
		require.Equal(t, 422, code, body)
		require.Contains(t, answer, `"location":"body.`+field, body)
	}
	_, answer := w.do("PUT", "/api/v1/timers/orders/a", `{"cron":"@every 5m"}`)
	require.Contains(t, answer, "cron is an interval: leave cron out, and send every 5m", "names of fields, not of headers")
	_, answer = w.do("PUT", "/api/v1/timers/orders/a", `{"every":"24h","timezone":"Europe/Berlin"}`)
	require.Contains(t, answer, "timezone means nothing beside every")
}

// TestPreview: the instants of the contract where the clocks change, with the runs that were moved.
func TestPreview(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{"cron":"30 2 * * *","timezone":"Europe/Berlin","from":"2027-03-27T00:00:00Z","count":3}`,
			[]string{"2027-03-27T02:30:00+01:00", "2027-03-28T03:00:00+02:00 moved", "2027-03-29T02:30:00+02:00"}},
		{`{"cron":"30 2 * * *","timezone":"Europe/Berlin","from":"2027-10-30T10:00:00Z","count":2}`,
			[]string{"2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"}},
		{`{"cron":"*/30 * * * *","timezone":"Europe/Berlin","from":"2027-03-28T00:30:00Z","count":3}`,
			[]string{"2027-03-28T01:30:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00"}},
		{`{"cron":"*/30 * * * *","timezone":"Europe/Berlin","from":"2027-10-31T00:30:00Z","count":4}`,
			[]string{"2027-10-31T02:30:00+02:00", "2027-10-31T02:00:00+01:00", "2027-10-31T02:30:00+01:00", "2027-10-31T03:00:00+01:00"}},
		{`{"every":"36h","from":"2027-01-01T08:00:00Z","until":"2027-01-04T00:00:00Z"}`, []string{"2027-01-01T08:00:00Z", "2027-01-02T20:00:00Z"}},
		{`{"cron":"30 * * * *","timezone":"Europe/Berlin","from":"2027-03-28T02:15","until":"2027-03-28T04:00"}`, []string{"2027-03-28T03:30:00+02:00"}},
		{`{"every":"1500ms","from":"2027-01-01T08:00:00Z","count":3}`, []string{"2027-01-01T08:00:00Z", "2027-01-01T08:00:01.5Z", "2027-01-01T08:00:03Z"}},
	} {
		code, answer := w.as("read", "POST", "/api/v1/timers/preview", c.body)
		require.Equal(t, 200, code, answer)
		var found Previewed
		require.NoError(t, json.Unmarshal([]byte(answer), &found))
		var got []string
		for _, r := range found.Runs {
			local, err := time.Parse(time.RFC3339, r.Local)
			require.NoError(t, err)
			require.Equal(t, r.At, local.UnixMilli())
			if r.Moved {
				r.Local += " moved"
			}
			got = append(got, r.Local)
		}
		require.Equal(t, c.want, got)
	}
	for _, body := range []string{`{}`, `{"cron":"0 0 30 2 *"}`, `{"cron":"@daily","count":1001}`, `{"cron":"@daily","timezone":"Local"}`} {
		code, answer := w.do("POST", "/api/v1/timers/preview", body)
		require.Equal(t, 422, code, fmt.Sprint(body, answer))
	}
	code, answer := w.do("POST", "/api/v1/timers/preview", `{"cron":"* * * * * *","count":1000}`)
	require.Equal(t, 200, code, answer)
}
