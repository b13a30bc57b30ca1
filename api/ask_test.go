package api

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
)

// respond answers each request of in.a on the results topic as a scanner would, with what say makes
// of it, until the test ends.
func (w *world) respond(say func(r *schemas.Request, position string) []schemas.Event) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.broker), kgo.ConsumeTopics("in.a"), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				req, err := schemas.Decode(r, schemas.Limits{})
				if err != nil {
					return
				}
				for _, e := range say(&req, schemas.DefaultID(r.Topic, r.Partition, r.Offset)) {
					_ = client.ProduceSync(ctx, schemas.EncodeEvent("results", e)).FirstErr()
				}
			})
		}
	})
	w.t.Cleanup(func() { cancel(); done.Wait(); client.Close() })
}

func TestWaitReturnsTheAnswerToThisRequestOnly(t *testing.T) {
	w := newWorld(t)
	w.respond(func(r *schemas.Request, position string) []schemas.Event {
		e := schemas.Event{Topic: r.Topic, ID: r.ID, State: schemas.StateCancelled, Due: 5, At: 7, Request: position}
		if r.Op == schemas.OpFire {
			e.State, e.Reason = schemas.StateTooLate, "the task is being delivered"
		}
		other, none := e, e
		other.State, other.Request = schemas.StateNotFound, "in.a/9/999999"
		none.State, none.Request = schemas.StateSucceeded, ""
		return []schemas.Event{other, none, e}
	})
	for _, id := range []string{"a", "a/b", "ü ?&=#%2F"} {
		for _, path := range []string{"/api/v1/tasks/cancel", "/api/v1/tasks/orders/" + url.PathEscape(id) + "/cancel"} {
			body := ""
			if path == "/api/v1/tasks/cancel" {
				text, err := json.Marshal(Target{Topic: "orders", ID: id})
				require.NoError(t, err)
				body = string(text)
			}
			code, answer := w.do("POST", path+"?wait=20s", body)
			require.Equal(t, 200, code, answer)
			var e Event
			require.NoError(t, json.Unmarshal([]byte(answer), &e))
			require.Equal(t, Event{Schema: 1, Topic: "orders", ID: id, State: schemas.StateCancelled, Due: 5, At: 7, Request: e.Request}, e)
			require.Regexp(t, `^in\.a/\d+/\d+$`, e.Request)
		}
	}
	code, answer := w.do("POST", "/api/v1/tasks/orders/a/fire?wait=20s", "")
	require.Equal(t, 200, code, answer)
	require.Contains(t, answer, `"state":"too_late","due":5,"at":7,"reason":"the task is being delivered","request":"in.a/`)
	require.Empty(t, w.answers.waiters, "nobody waits any more")
}

// The answer to a schedule is sent if the request asks for all events. So a caller who waits asks for them.
func TestScheduleWaits(t *testing.T) {
	w := newWorld(t)
	w.respond(func(r *schemas.Request, position string) []schemas.Event {
		if r.Settings.Events != schemas.EventsAll {
			return nil
		}
		if !r.GivenID {
			r.ID = position
		}
		e := schemas.Event{Topic: r.Topic, ID: r.ID, State: schemas.StateScheduled, Due: r.Due, At: 7, Request: position}
		other := e
		other.State, other.Request = schemas.StateStale, "in.a/9/999999"
		return []schemas.Event{other, e}
	})
	for _, body := range []string{`{"topic":"orders","id":"a","delay":"1h"}`, `{"topic":"orders","delay":"1h"}`, `{"topic":"orders","delay":"1h","events":"all"}`} {
		code, answer := w.do("POST", "/api/v1/tasks?wait=20s", body)
		require.Equal(t, 200, code, answer)
		require.Contains(t, answer, `"state":"scheduled"`)
	}
	for _, events := range []string{"none", "final"} {
		code, answer := w.do("POST", "/api/v1/tasks?wait=20s", `{"topic":"orders","delay":"1h","events":"`+events+`"}`)
		require.Equal(t, 422, code, answer)
		require.Contains(t, answer, "body.events")
	}
	require.Empty(t, w.answers.waiters, "nobody waits any more")
	code, answer := w.do("POST", "/api/v1/tasks", `{"topic":"orders","delay":"1h"}`)
	require.Equal(t, 202, code, answer)
	var p Published
	require.NoError(t, json.Unmarshal([]byte(answer), &p))
	require.Equal(t, p.ID, p.Request)
}

func TestWaitForNothingIsAccepted(t *testing.T) {
	w := newWorld(t)
	for _, query := range []string{"?wait=50ms", ""} {
		code, answer := w.do("POST", "/api/v1/tasks/orders/a/cancel"+query, "")
		require.Equal(t, 202, code, answer)
		require.Contains(t, answer, `"op":"cancel"`)
		require.Contains(t, answer, `"offset":`)
	}
	code, answer := w.do("POST", "/api/v1/tasks/orders/a/fire?version=3&key=k&intake=in.a", "")
	require.Equal(t, 202, code, answer)
	var fired *kgo.Record
	for _, r := range w.records("in.a", 3) {
		if r.Key != nil {
			fired = r
		}
	}
	req, err := schemas.Decode(fired, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, schemas.OpFire, req.Op)
	require.Equal(t, int64(3), req.Version)
	require.Equal(t, []byte("k"), req.Key)
}

// TestEveryVersionCanBeSaidInAPath: a clock in nanoseconds has 19 digits.
func TestEveryVersionCanBeSaidInAPath(t *testing.T) {
	w := newWorld(t)
	for version, want := range map[string]int{"0": 202, "1790000000000000000": 202, "9223372036854775807": 202, "9223372036854775808": 422, "-1": 422, "1.0": 422, "99999999999999999999": 422} {
		for _, path := range []string{"POST /api/v1/tasks/orders/a/cancel", "DELETE /api/v1/timers/orders/a"} {
			method, path, _ := strings.Cut(path, " ")
			code, answer := w.do(method, path+"?version="+version, "")
			require.Equal(t, want, code, "%s: %s", version, answer)
			if want == 422 {
				require.Contains(t, answer, "query.version")
			}
		}
	}
	highest := false
	for _, r := range w.records("in.a", 6) {
		req, err := schemas.Decode(r, schemas.Limits{})
		require.NoError(t, err)
		highest = highest || req.Version == 9223372036854775807
	}
	require.True(t, highest)
}

func TestWaitIsBounded(t *testing.T) {
	w := newWorld(t)
	for _, wait := range []string{"31s", "-1s", "0s", "2", "soon"} {
		code, answer := w.do("POST", "/api/v1/tasks/orders/a/cancel?wait="+wait, "")
		require.Equal(t, 422, code, wait)
		require.Contains(t, answer, "query.wait")
		require.Contains(t, answer, "30s")
	}
	waiters := make([]*waiter, maxWaiters)
	for i := range waiters {
		var err error
		waiters[i], err = w.answers.expect(t.Context(), "other")
		require.NoError(t, err)
	}
	_, ok := w.answers.places.Try(share.Account{Tenant: "another"}, 1)
	require.False(t, ok)
	for range 2 * maxHeld {
		w.answers.deliver(schemas.EncodeEvent("results", schemas.Event{ID: "other", State: schemas.StateStale, Request: "x"}))
	}
	w.answers.deliver(schemas.EncodeEvent("results", schemas.Event{ID: "other", State: schemas.StateFired, Request: "mine"}))
	require.Len(t, waiters[0].held, maxHeld)
	e, ok := w.answers.answer(t.Context(), waiters[0], "mine")
	require.True(t, ok, "however many others there are")
	require.Equal(t, schemas.StateFired, e.State)
	for _, one := range waiters {
		w.answers.leave(one)
	}
	code, _ := w.do("POST", "/api/v1/tasks/orders/a/cancel?wait=10ms", "")
	require.Equal(t, 202, code)
}

func TestTheResultsAreReadOnlyWhileSomebodyWaits(t *testing.T) {
	w := newWorld(t)
	one, err := w.answers.expect(t.Context(), "a")
	require.NoError(t, err)
	tail := w.answers.tail
	require.NotNil(t, tail)
	w.answers.leave(one)
	w.answers.mu.Lock()
	w.answers.lastUse = time.Now().Add(-tailIdle)
	w.answers.mu.Unlock()
	require.True(t, w.answers.idle(tail))
	require.Nil(t, w.answers.tail)
	tail.close()
	_, err = w.answers.expect(t.Context(), "a")
	require.NoError(t, err)
	require.NotSame(t, tail, w.answers.tail, "the next waiter starts another reader")
	require.False(t, w.answers.idle(w.answers.tail), "somebody waits")
}

// While Kafka is away, callers try one after the other. None waits longer than one try takes.
func TestManyWaitersWithoutKafka(t *testing.T) {
	log := newWorld(t).answers.log
	synctest.Test(t, func(t *testing.T) {
		a := NewAnswers("results", nil, log)
		require.NoError(t, a.starting.Acquire(t.Context(), 1))
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _ = a.expect(t.Context(), "a") })
		}
		all.Wait()
		require.Equal(t, tailTimeout, time.Since(began))
		require.Len(t, a.waiters["a"], 20)
	})
}

func TestAWaiterWithoutKafkaHasNoAnswer(t *testing.T) {
	a := NewAnswers("results", func() (*kgo.Client, error) { return kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1")) }, newWorld(t).answers.log)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w, err := a.expect(ctx, "a")
	require.NoError(t, err)
	_, ok := a.answer(ctx, w, "in.a/0/0")
	require.False(t, ok)
	require.Nil(t, a.tail)
	a.Close()
}
