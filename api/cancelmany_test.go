package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store"
)

func TestCancelMany(t *testing.T) {
	w := newWorld(t)
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 7 {
		w.schedule("orders", fmt.Sprint("a", i), due+int64(i), nil, nil)
	}
	w.schedule("bills", "a9", due, nil, nil)
	var gone []store.Place
	w.local.Unindex = func(_ context.Context, places []store.Place) { gone = append(gone, places...) }

	for _, prefix := range []string{"id_prefix", "id-prefix"} {
		code, answer := w.do("POST", "/api/v1/tasks/cancel-many", `{"topic":"orders","`+prefix+`":"a","dry_run":true}`)
		require.Equal(t, 200, code, answer)
		require.JSONEq(t, `{"cancelled":0,"too_late":0,"matched":7}`, answer, "a dry run cancels nothing")
	}
	require.Empty(t, w.audited())
	code, answer := w.do("POST", "/api/v1/tasks/cancel-many", fmt.Sprintf(`{"topic":"orders","id_prefix":"a","from":%d,"to":%d}`, due+1, due+4))
	require.Equal(t, 200, code, answer)
	require.JSONEq(t, `{"cancelled":3,"too_late":0,"matched":3}`, answer)
	require.Len(t, gone, 3)
	found := w.audited()
	require.Len(t, found, 1)
	require.Equal(t, []any{"admin", "cancel many", "orders", int64(3)}, []any{found[0].Who, found[0].What, found[0].Topic, found[0].Count})
	require.JSONEq(t, fmt.Sprintf(`{"topic":"orders","id_prefix":"a","from":%d,"to":%d}`, due+1, due+4), string(found[0].Extra))

	for who, many := range map[string]func(context.Context, CancelMany) (CancelledMany, error){"local": w.local.CancelMany, "client": w.client.CancelMany} {
		done, err := many(t.Context(), CancelMany{Topic: "orders", IDPrefix: "a", DryRun: true})
		require.NoError(t, err, who)
		require.Equal(t, CancelledMany{Matched: 4}, done, who)
	}
	done, err := w.client.CancelMany(t.Context(), CancelMany{All: true})
	require.NoError(t, err)
	require.Equal(t, CancelledMany{Cancelled: 5, Matched: 5}, done)
}

// TestADryRunTakesNobodysPlace: neither of who cancels, nor, for longer than a page, of who lists. It
// waits for its own.
func TestADryRunTakesNobodysPlace(t *testing.T) {
	w := newWorld(t)
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 1100 {
		w.schedule("orders", fmt.Sprint(i), due+int64(i), nil, nil)
	}
	leave := w.local.lists.hold(t, "")
	counted := make(chan CancelledMany)
	go func() {
		done, err := w.local.CancelMany(t.Context(), CancelMany{Topic: "orders", DryRun: true})
		assert.NoError(t, err)
		counted <- done
	}()
	done, err := w.local.CancelMany(t.Context(), CancelMany{Topic: "orders", To: due + 100})
	require.NoError(t, err)
	require.EqualValues(t, 100, done.Cancelled, "it does not wait for the count")
	select {
	case done := <-counted:
		require.Fail(t, "it had no place", "%+v", done)
	default:
	}
	leave()
	require.Equal(t, CancelledMany{Matched: 1000}, <-counted, "in two pages, one after the other")
}

func TestCancelManyNamesMistakes(t *testing.T) {
	w := newWorld(t)
	for body, location := range map[string]string{
		`{}`:                            "body.all",
		`{"dry_run":true}`:              "body.all",
		`{"all":true,"topic":"orders"}`: "body.all",
		`{"from":1800000000000,"to":1800000000000}`:        "body.to",
		`{"from":1800000000}`:                              "body.from", // seconds
		`{"from":1800000000000,"to":1800000001}`:           "body.to",
		`{"topic":"orders","cursor":"x"}`:                  "body.cursor",
		`{"id_prefix":"a","id-prefix":"b"}`:                "body.id_prefix",
		`{"id_prefix":"` + strings.Repeat("ü", 200) + `"}`: "body.id_prefix",
		`{"from":-1}`: "body.from",
	} {
		code, answer := w.do("POST", "/api/v1/tasks/cancel-many", body)
		require.Equal(t, 422, code, "%s: %s", body, answer)
		require.Contains(t, answer, `"location":"`+location+`"`, body)
	}
}

// A request that comes to the end of its time says where to go on, and one at a time may run.
func TestCancelManyIsBoundedInTime(t *testing.T) {
	w := newWorld(t)
	due := time.Now().Add(time.Hour).UnixMilli()
	const tasks = 2500
	for i := range tasks {
		w.schedule("orders", fmt.Sprint(i), due+int64(i), nil, nil)
	}
	w.local.cancelFor = -1 // its time ends with the first piece
	r := CancelMany{Topic: "orders"}
	requests, total := 0, int64(0)
	for {
		done, err := w.client.CancelMany(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, done.Cancelled, done.Matched)
		requests, total = requests+1, total+done.Cancelled
		if r.Cursor = done.Cursor; r.Cursor == "" {
			break
		}
	}
	require.EqualValues(t, tasks, total)
	require.Equal(t, 3, requests)
	sum := int64(0)
	for _, e := range w.audited() {
		sum += e.Count
	}
	require.EqualValues(t, tasks, sum)

	leave := w.local.changes.hold(t, "")
	code, answer := w.do("POST", "/api/v1/tasks/cancel-many", `{"topic":"orders","dry_run":true}`)
	require.Equal(t, 200, code, "who counts cancels nothing: %s", answer)
	leave()

	ended, end := context.WithCancel(t.Context())
	end()
	_, err := w.local.CancelMany(ended, r)
	require.ErrorIs(t, err, context.Canceled, "a caller that is gone")
	require.Empty(t, w.local.changes.tokens, "the next may")
	text, err := json.Marshal(CancelledMany{})
	require.NoError(t, err)
	require.JSONEq(t, `{"cancelled":0,"too_late":0,"matched":0}`, string(text))
}
