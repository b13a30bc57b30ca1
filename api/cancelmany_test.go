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
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// decideCancels does what a scanner does with cancels of many, until the test ends.
func (w *world) decideCancels() {
	w.t.Helper()
	in, topic := intake.New(w.store), [16]byte{3}
	source, err := in.Source(w.t.Context(), schemas.TopicCancels, topic, 0, 0)
	require.NoError(w.t, err)
	c, err := kgo.NewClient(kgo.SeedBrokers(w.broker), kgo.ConsumeTopics(schemas.TopicCancels), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	require.NoError(w.t, err)
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	w.t.Cleanup(func() { stop(); <-ended; c.Close() })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for _, r := range c.PollFetches(ctx).Records() {
				many, err := task.DecodeCancels(r.Value)
				assert.NoError(w.t, err)
				assert.Equal(w.t, map[int]int64{w.source.ID: w.next}, many.Stored, "how far the tasks' source was stored at the list")
				_, err = in.Apply(ctx, intake.Batch{
					Advance: []intake.Advance{{Source: source.ID, From: r.Offset, To: r.Offset + 1}}, Changes: []task.Change{{Seq: task.Seq(source.ID, r.Offset), Cancels: &many}},
				}, func() int64 { return time.Now().UnixMilli() })
				assert.True(w.t, err == nil || ctx.Err() != nil, err)
			}
		}
	}()
}

func TestCancelMany(t *testing.T) {
	w := newWorld(t)
	w.decideCancels()
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 7 {
		w.schedule("orders", fmt.Sprint("a", i), due+int64(i), nil, nil)
	}
	w.schedule("bills", "a9", due, nil, nil)

	for _, prefix := range []string{"id_prefix", "id-prefix"} {
		code, answer := w.do("POST", "/api/v1/tasks/cancel-many", `{"topic":"orders","`+prefix+`":"a","dry_run":true}`)
		require.Equal(t, 200, code, answer)
		require.JSONEq(t, `{"cancelled":0,"too_late":0,"matched":7}`, answer, "a dry run cancels nothing")
	}
	require.Empty(t, w.audited())
	code, answer := w.do("POST", "/api/v1/tasks/cancel-many", fmt.Sprintf(`{"topic":"orders","id_prefix":"a","from":%d,"to":%d}`, due+1, due+4))
	require.Equal(t, 200, code, answer)
	require.JSONEq(t, `{"cancelled":3,"too_late":0,"matched":3}`, answer)
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
	w.decideCancels()
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 1100 {
		w.schedule("orders", fmt.Sprint(i), due+int64(i), nil, nil)
	}
	leave := hold(w.local.lists)
	counted := make(chan CancelledMany)
	go func() {
		done, err := w.local.CancelMany(t.Context(), CancelMany{Topic: "orders", DryRun: true})
		assert.NoError(t, err)
		counted <- done
	}()
	done, err := w.local.CancelMany(t.Context(), CancelMany{Topic: "orders", To: At(due + 100)})
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
	w.decideCancels()
	due := time.Now().Add(time.Hour).UnixMilli()
	tasks := 5*w.local.Cancels.Tasks - 100
	for i := range tasks {
		w.schedule("orders", fmt.Sprint(i), due+int64(i), nil, nil)
	}
	w.local.changeFor = -1 // its time ends with the first piece
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
	require.Equal(t, 5, requests)
	sum := int64(0)
	for _, e := range w.audited() {
		sum += e.Count
	}
	require.EqualValues(t, tasks, sum)

	leave := hold(w.local.changes)
	code, answer := w.do("POST", "/api/v1/tasks/cancel-many", `{"topic":"orders","dry_run":true}`)
	require.Equal(t, 200, code, "who counts cancels nothing: %s", answer)
	leave()

	ended, end := context.WithCancel(t.Context())
	end()
	_, err := w.local.CancelMany(ended, r)
	require.ErrorIs(t, err, context.Canceled, "a caller that is gone")
	next, ok := w.local.changes.Try(share.Account{Tenant: "next"}, 1)
	require.True(t, ok)
	next()
	text, err := json.Marshal(CancelledMany{})
	require.NoError(t, err)
	require.JSONEq(t, `{"cancelled":0,"too_late":0,"matched":0}`, string(text))
}

// Without a scanner nothing is decided: the request says so once its time is over, and a scanner decides what was published later.
func TestCancelManyWithoutAScanner(t *testing.T) {
	w := newWorld(t)
	w.schedule("orders", "a", time.Now().Add(time.Hour).UnixMilli(), nil, nil)
	w.local.changeFor = 3*time.Second - cancelPatience
	_, err := w.local.CancelMany(t.Context(), CancelMany{Topic: "orders"})
	require.ErrorIs(t, err, ErrUndecided)
	code, answer := w.do("POST", "/api/v1/tasks/cancel-many", `{"topic":"orders"}`)
	require.Equal(t, 503, code, answer)
	require.Contains(t, answer, "no scanner has decided them")
	w.decideCancels()
	require.Eventually(t, func() bool {
		v, err := look.New(w.store).Get(t.Context(), "orders", "a")
		return err == nil && v.State == "cancelled"
	}, time.Minute, 10*time.Millisecond)
}

// A filter whose pages are mostly empty comes to its end.
func TestCancelManyOfAFew(t *testing.T) {
	w := newWorld(t)
	w.decideCancels()
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 40 {
		w.schedule("orders", fmt.Sprint("a", i), due+int64(i), nil, nil)
	}
	w.local.Cancels.Tasks, w.local.Cancels.Ahead = 3, 2
	done, err := w.local.CancelMany(t.Context(), CancelMany{Topic: "orders", IDPrefix: "a3"})
	require.NoError(t, err)
	require.Equal(t, CancelledMany{Cancelled: 11, Matched: 11}, done)
	done, err = w.local.CancelMany(t.Context(), CancelMany{Topic: "orders", IDPrefix: "none"})
	require.NoError(t, err)
	require.Zero(t, done)
	done, err = w.local.CancelMany(t.Context(), CancelMany{All: true})
	require.NoError(t, err)
	require.EqualValues(t, 29, done.Cancelled)
}
