package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/store/admin"
)

// by is a context of a caller.
func by(t *testing.T, name string) context.Context {
	t.Helper()
	return access.With(t.Context(), access.Caller{Name: name, Tenant: name, Role: access.Admin, Topics: access.Everything})
}

// hold takes all places that are left.
func hold(turns *share.Turns) (leave func()) {
	var all []func()
	for {
		one, ok := turns.Try(share.Account{}, 1)
		if !ok {
			return func() {
				for _, one := range all {
					one()
				}
			}
		}
		all = append(all, one)
	}
}

// inProcess serves the API of a world without a network, so that synctest's clock holds.
func inProcess(w *world) http.Handler {
	mux := http.NewServeMux()
	db := admin.New(w.store)
	s := &server{fleet: Alone(w.local), intakes: fixed(Intake{Topic: "in"}), answers: w.answers, cursors: &cursors{secret: db.Secret}}
	s.mount(mux, "test")
	return mux
}

func serve(t *testing.T, h http.Handler, name, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	out := httptest.NewRecorder()
	h.ServeHTTP(out, r.WithContext(access.With(r.Context(), access.Caller{Name: name, Tenant: name, Role: access.Admin, Topics: access.Everything})))
	return out
}

// Whatever is limited in number waits five seconds for its turn before it is refused, and says when to
// come again.
func TestRequestsAreServedInTurn(t *testing.T) {
	w := newWorld(t)
	h := inProcess(w)
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			turns              *share.Turns
			method, path, body string
		}{
			{w.local.lists, "GET", "/api/v1/tasks", ""},
			{w.local.lists, "GET", "/api/v1/forecast", ""},
			{w.local.lists, "GET", "/api/v1/deadletters", ""},
			{w.local.lists, "GET", "/api/v1/deadletters/count", ""},
			{w.local.changes, "POST", "/api/v1/tasks/cancel-many", `{"topic":"orders"}`},
			{w.local.changes, "POST", "/api/v1/deadletters/replay", `{"topic":"orders"}`},
			{w.local.changes, "POST", "/api/v1/deadletters/purge", `{"topic":"orders"}`},
			{w.local.lists, "POST", "/api/v1/tasks/cancel-many", `{"topic":"orders","dry_run":true}`},
			{w.answers.places, "POST", "/api/v1/tasks/orders/a/cancel?wait=1s", ""},
		} {
			leave := hold(c.turns)
			began := time.Now()
			refused := serve(t, h, "greedy", c.method, c.path, c.body)
			require.Equal(t, http.StatusServiceUnavailable, refused.Code, c.path)
			require.Equal(t, "1", refused.Header().Get("Retry-After"), c.path)
			require.Contains(t, refused.Body.String(), "nothing was done", c.path)
			require.Equal(t, share.Patience, time.Since(began), c.path)
			leave()
		}
	})
}

// Fifty clients of one token that list at once, a slow list before them, are all served.
func TestFiftyListsAtOnceAreAllServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withoutBroker(t)
		for i := range 5 {
			w.schedule("orders", fmt.Sprint(i), time.Now().Add(time.Hour).UnixMilli(), nil, nil)
		}
		leave := hold(w.local.lists)
		h, began := inProcess(w), time.Now()
		var done sync.WaitGroup
		for range 50 {
			done.Go(func() {
				answer := serve(t, h, "client", "GET", "/api/v1/tasks?limit=1000", "")
				assert.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
				assert.Less(t, time.Since(began), share.Patience)
			})
		}
		time.Sleep(share.Patience - time.Millisecond) // all wait behind the slow list
		synctest.Wait()
		require.Greater(t, w.local.lists.Waiting(), listsAtOnce)
		leave()
		done.Wait()
	})
}

// Two that cancel many tasks take turns, piece by piece: the second does not wait for the end of the
// first.
func TestCancelManyTakesTurns(t *testing.T) {
	w := newWorld(t)
	w.decideCancels()
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 5 {
		w.schedule("orders", fmt.Sprint(i), due, nil, nil)
	}
	leave := hold(w.local.changes)
	done := make(chan CancelledMany)
	go func() {
		out, err := w.local.CancelMany(by(t, "second"), CancelMany{Topic: "orders"})
		assert.NoError(t, err)
		done <- out
	}()
	require.Eventually(t, func() bool { return w.local.changes.Waiting() > 0 }, time.Minute, time.Millisecond)
	leave()
	require.Equal(t, CancelledMany{Cancelled: 5, Matched: 5}, <-done)
}

// The statement of a caller who has left goes on in the database, and keeps its turn until it ends.
func TestACallerWhoLeavesKeepsTheTurnOfItsStatement(t *testing.T) {
	w := newWorld(t)
	ctx, end := context.WithCancel(access.With(t.Context(), access.Caller{Name: "a", Tenant: "a"}))
	statement, left := make(chan struct{}), make(chan error)
	go func() {
		_, err := listing(ctx, w.local, func(ctx context.Context) (struct{}, error) {
			end()
			<-statement
			return struct{}{}, ctx.Err()
		})
		left <- err
	}()
	<-ctx.Done()
	all := func() bool {
		leave, ok := w.local.lists.Try(share.Account{Tenant: "another"}, listsAtOnce)
		if ok {
			leave()
		}
		return ok
	}
	require.False(t, all(), "its place is taken")
	close(statement)
	require.NoError(t, <-left, "the statement was not cut off either")
	require.True(t, all())
}
