package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/store/admin"
)

// by is a context of a caller.
func by(t *testing.T, name string) context.Context {
	t.Helper()
	return access.With(t.Context(), access.Caller{Name: name, Role: access.Admin})
}

// hold takes one place at a time until there is no more for the token.
func (t *turns) hold(test *testing.T, name string) (leave func()) {
	var all []func()
	for range t.share {
		one, err := t.take(by(test, name), 1)
		require.NoError(test, err)
		all = append(all, one)
	}
	return func() {
		for _, one := range all {
			one()
		}
	}
}

func TestATokenTakesNoMoreThanItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(4, 2)
		leave := all.hold(t, "greedy")
		for range 100 { // they wait
			go func() {
				_, err := all.take(by(t, "greedy"), 1)
				assert.ErrorIs(t, err, ErrTurn)
			}()
		}
		synctest.Wait()
		began := time.Now()
		for range 2 {
			_, err := all.take(by(t, "another"), 1)
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(began), "it waits for nobody")
		_, err := all.take(by(t, "third"), 1)
		require.ErrorIs(t, err, ErrTurn)
		require.Equal(t, turnWait, time.Since(began))
		synctest.Wait()
		leave()
		require.Len(t, all.tokens, 1, "nothing is kept of tokens without requests")
	})
}

// Behind whatever one token asks for, a request of another waits for no more than the share of that.
func TestTurnsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1, 1)
		first, err := all.take(by(t, "greedy"), 1)
		require.NoError(t, err)
		var served atomic.Int64
		one := func(name string) {
			leave, err := all.take(by(t, name), 1)
			assert.NoError(t, err)
			served.Add(1)
			time.Sleep(time.Millisecond)
			leave()
		}
		for range 1000 / 10 {
			go one("greedy")
		}
		synctest.Wait()
		first()
		one("another")
		require.LessOrEqual(t, served.Load(), int64(2))
		time.Sleep(time.Second)
		require.EqualValues(t, 101, served.Load(), "and nobody is forgotten")
	})
}

func TestAWaitIsOneForAllPlacesOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newTurns(1, 1), newTurns(1, 1)
		leave := first.hold(t, "a")
		second.hold(t, "a")
		time.AfterFunc(3*time.Second, leave)
		began, ctx := time.Now(), waiting(by(t, "b"))
		_, err := first.take(ctx, 1)
		require.NoError(t, err)
		_, err = second.take(ctx, 1)
		require.ErrorIs(t, err, ErrTurn)
		require.Equal(t, turnWait, time.Since(began))
	})
}

// A request that has waited in vain leaves the share of its token as it was.
func TestAWaitInVainTakesNothingOfTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(3, 2)
		leave := all.hold(t, "greedy")
		_, err := all.take(by(t, "another"), 1) // its share is remembered while it has a place
		require.NoError(t, err)
		_, err = all.take(by(t, "another"), 1)
		require.ErrorIs(t, err, ErrTurn)
		leave()
		_, err = all.take(by(t, "another"), 1)
		require.NoError(t, err)
	})
}

func TestWhoLeavesGivesItsTurnUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1, 1)
		leave := all.hold(t, "a")
		ctx, end := context.WithCancel(by(t, "b"))
		time.AfterFunc(time.Second, end)
		_, err := all.take(ctx, 1)
		require.ErrorIs(t, err, context.Canceled)
		leave()
		require.Empty(t, all.tokens)
		all.hold(t, "c")
	})
}

// A place that nobody else wants is had, however long the request took to come to it: its body may have
// come slowly.
func TestAFreePlaceIsHadAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2, 1)
		ctx := waiting(by(t, "slow"))
		time.Sleep(turnWait + time.Second)
		leave, err := all.take(ctx, 1)
		require.NoError(t, err)
		_, err = all.take(ctx, 1)
		require.ErrorIs(t, err, ErrTurn, "it waits no longer, though")
		leave()
		require.Empty(t, all.tokens)
	})
}

// Many small requests of one token are refused only where its share has no room.
func TestManyRequestsOfATokenFitIntoItsShare(t *testing.T) {
	all := newTurns(bodyBudget, bodyBudget/2)
	for range 1000 {
		_, err := all.take(by(t, "gateway"), 1000)
		require.NoError(t, err)
	}
}

// inProcess serves the API of a world without a network, so that synctest's clock holds.
func inProcess(w *world) http.Handler {
	mux := http.NewServeMux()
	db := admin.New(w.store)
	s := &server{local: w.local, intakes: fixed(Intake{Topic: "in"}), answers: w.answers, auditor: &auditor{audit: db.Audit}, cursors: &cursors{secret: db.Secret}}
	s.mount(mux, "test")
	return mux
}

func serve(t *testing.T, h http.Handler, name, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	out := httptest.NewRecorder()
	h.ServeHTTP(out, r.WithContext(access.With(r.Context(), access.Caller{Name: name, Role: access.Admin})))
	return out
}

// Whatever is limited in number waits five seconds for its turn before it is refused, and says when to
// come again.
func TestRequestsAreServedInTurn(t *testing.T) {
	w := newWorld(t)
	h := inProcess(w)
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			turns              *turns
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
			leave := c.turns.hold(t, "greedy")
			began := time.Now()
			refused := serve(t, h, "greedy", c.method, c.path, c.body)
			require.Equal(t, http.StatusServiceUnavailable, refused.Code, c.path)
			require.Equal(t, "1", refused.Header().Get("Retry-After"), c.path)
			require.Contains(t, refused.Body.String(), "nothing was done", c.path)
			require.Equal(t, turnWait, time.Since(began), c.path)
			leave()
		}
	})
}

// Fifty clients of one token that list at once, a slow list before them, are all served.
func TestFiftyListsAtOnceAreAllServed(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.schedule("orders", fmt.Sprint(i), time.Now().Add(time.Hour).UnixMilli(), nil, nil)
	}
	leave := w.local.lists.hold(t, "client")
	h := inProcess(w)
	var done sync.WaitGroup
	for range 50 {
		done.Go(func() {
			answer := serve(t, h, "client", "GET", "/api/v1/tasks?limit=1000", "")
			assert.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
		})
	}
	require.Eventually(t, func() bool {
		w.local.lists.mu.Lock()
		defer w.local.lists.mu.Unlock()
		return w.local.lists.tokens["client"].requests > listsAtOnce/2
	}, 5*time.Second, time.Millisecond)
	leave()
	done.Wait()
}

// Two that cancel many tasks take turns, piece by piece: the second does not wait for the end of the
// first.
func TestCancelManyTakesTurns(t *testing.T) {
	w := newWorld(t)
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 5 {
		w.schedule("orders", fmt.Sprint(i), due, nil, nil)
	}
	leave := w.local.changes.hold(t, "first")
	done := make(chan CancelledMany)
	go func() {
		out, err := w.local.CancelMany(by(t, "second"), CancelMany{Topic: "orders"})
		assert.NoError(t, err)
		done <- out
	}()
	require.Eventually(t, func() bool {
		w.local.changes.mu.Lock()
		defer w.local.changes.mu.Unlock()
		return w.local.changes.tokens["second"] != nil
	}, 5*time.Second, time.Millisecond)
	leave()
	require.Equal(t, CancelledMany{Cancelled: 5, Matched: 5}, <-done)
}

// The statement of a caller who has left goes on in the database, and keeps its turn until it ends.
func TestACallerWhoLeavesKeepsTheTurnOfItsStatement(t *testing.T) {
	w := newWorld(t)
	ctx, end := context.WithCancel(by(t, "a"))
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
	require.False(t, w.local.lists.all.TryAcquire(listsAtOnce), "its place is taken")
	close(statement)
	require.NoError(t, <-left, "the statement was not cut off either")
	require.True(t, w.local.lists.all.TryAcquire(listsAtOnce))
}
