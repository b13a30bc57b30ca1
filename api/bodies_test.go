package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
)

func TestBodiesAreBounded(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("POST", "/api/v1/tasks/cancel", `{"topic":"orders","id":"`+strings.Repeat("x", 2<<20)+`"}`)
	require.Equal(t, 413, code)
	require.Less(t, len(answer), 2000)

	m := newMemory(nil, []Intake{{Limits: schemas.Limits{MaxValueBytes: 8 << 20}}})
	require.Less(t, m.largest, int64(bodyBudget), "one request of the largest size fits beside another")
}

func TestBodiesOfAllRequestsAreBoundedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		s := &server{intakes: fixed(Intake{Topic: "in"})}
		s.mount(mux, "test")
		s.bodies = share.NewTurns(100, 0, 100)
		post := func(size int) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/api/v1/tasks", strings.NewReader(strings.Repeat(" ", size)))
			r.Header.Set("Content-Length", strconv.Itoa(size)) // as the server leaves it there
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, r.WithContext(access.With(r.Context(), access.Caller{Role: access.Operate, Topics: access.Everything})))
			return answer
		}
		require.Equal(t, 400, post(100).Code, "it is read, and is no JSON")
		answer := post(101)
		require.Equal(t, 503, answer.Code)
		require.Equal(t, "1", answer.Header().Get("Retry-After"))
		require.Equal(t, 400, post(100).Code, "what was taken is given back")
	})
}

// However many bodies of unknown length one tenant's tokens send, and end none, others' bodies are read at once.
func TestSlowBodiesOfATenantLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		s := &server{intakes: fixed(Intake{Topic: "in"})}
		s.mount(mux, "test")
		post := func(c access.Caller, body io.Reader) (status int) {
			r := httptest.NewRequest(http.MethodPost, "/api/v1/timers/preview", body)
			r.Header.Del("Content-Length")
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, r.WithContext(access.With(r.Context(), c)))
			return answer.Code
		}
		never, end := io.Pipe()
		var slow sync.WaitGroup
		defer slow.Wait()
		defer func() { _ = end.Close() }()
		for i := range 1400 {
			slow.Go(func() {
				post(access.Caller{Name: fmt.Sprint(i % 200), Tenant: "shop", Role: access.Read, Topics: []string{"shop.*"}}, never)
			})
		}
		synctest.Wait()
		began := time.Now()
		for range 3 {
			for _, c := range []access.Caller{{Name: "root", Tenant: "x", Role: access.Admin, Topics: access.Everything}, {Name: "billing", Tenant: "billing", Role: access.Read, Topics: []string{"bills"}}} {
				require.Equal(t, 200, post(c, strings.NewReader(`{"every":"1h","count":1}`)), c.Name)
			}
		}
		require.Zero(t, time.Since(began), "they wait for nobody")
	})
}

// Nothing is read of a body that the operation does not have, so waiting without one takes no memory of bodies.
func TestRequestsWithoutABodyCountNone(t *testing.T) {
	mux := http.NewServeMux()
	s := &server{intakes: fixed(Intake{Topic: "in"})}
	s.mount(mux, "test")
	s.bodies = share.NewTurns(0, 0, 0)
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodDelete, "/api/v1/timers/orders/a?wait=x", nil), // no Content-Length
		httptest.NewRequest(http.MethodPost, "/api/v1/timers/orders/a/enable?wait=x", strings.NewReader("some")),
	} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r.WithContext(access.With(r.Context(), access.Caller{Role: access.Operate, Topics: access.Everything})))
		require.Equal(t, 422, answer.Code, answer.Body)
	}
}

// slowReader is a connection that takes nothing until it is released.
type slowReader struct {
	*httptest.ResponseRecorder
	writing chan<- struct{}
	release <-chan struct{}
}

func (r slowReader) Write(b []byte) (int, error) {
	r.writing <- struct{}{}
	<-r.release
	return r.ResponseRecorder.Write(b)
}

func TestAnswersThatNobodyReadsAreBoundedTogether(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		s := &server{fleet: Alone(w.local), intakes: fixed()}
		s.mount(mux, "test")
		s.unsent = share.NewTurns(answerBudget, 0, answerBudget)
		request := func(path string) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/api/v1"+path, nil)
			return r.WithContext(access.With(r.Context(), access.Caller{Role: access.Operate, Topics: access.Everything}))
		}
		status := func(path string) int {
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, request(path))
			return answer.Code
		}
		for path, c := range map[string]struct{ most, then, beside int }{
			"/tasks?content=true": {answerBudget / contentPageBytes, 200, 200},                // pages without content are small
			"/tasks/orders/none":  {answerBudget / (schemas.MaxValueBytes + 1<<20), 404, 503}, // it may have been stored under a larger limit than today's
		} {
			writing, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			for range c.most {
				go func() {
					mux.ServeHTTP(slowReader{httptest.NewRecorder(), writing, release}, request(path))
					done <- struct{}{}
				}()
				<-writing
			}
			require.Equal(t, 503, status(path))
			require.Equal(t, 503, status("/deadletters?content=true"))
			require.Equal(t, c.beside, status("/tasks"))
			close(release)
			for range c.most {
				<-done
			}
			require.Equal(t, c.then, status(path), "what was sent counts no more")
		}
		require.Equal(t, contentPageBytes, 16<<20+schemas.MaxValueBytes, "a page has 16 MiB, and one value more")
	})
}

func unknownFields(n int) string {
	var b strings.Builder
	b.WriteString(`{"count":1`)
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	return b.String() + "}"
}

// A problem document names each mistake, and a body of a megabyte has room for a hundred thousand.
func TestAnswersToManyMistakesAreBounded(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct{ path, body string }{
		"unknown fields":      {"/api/v1/timers/preview", unknownFields(5000)},
		"more unknown fields": {"/api/v1/timers/preview", unknownFields(60_000)},
		"empty headers":       {"/api/v1/tasks", `{"headers":[{}` + strings.Repeat(",{}", 500_000) + `]}`},
		"a list in lists":     {"/api/v1/tasks", strings.Repeat("[", 5000) + strings.Repeat("]", 5000)},
	} {
		code, answer := w.do("POST", c.path, c.body)
		require.GreaterOrEqual(t, code, 400, name)
		require.Less(t, code, 500, name)
		require.Less(t, len(answer), 16<<10, name)
		var p huma.ErrorModel
		require.NoError(t, json.Unmarshal([]byte(answer), &p), name)
		require.NotEmpty(t, p.Errors, name)
	}
	code, answer := w.do("POST", "/api/v1/timers/preview", unknownFields(30))
	require.Equal(t, 422, code)
	require.Contains(t, answer, `"location":"body.x`)
	require.Contains(t, answer, "and 10 more mistakes")
}
