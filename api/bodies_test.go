package api

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

func TestBodiesAreBounded(t *testing.T) {
	w := newWorld(t)
	code, answer := w.do("POST", "/api/v1/tasks/cancel", `{"topic":"orders","id":"`+strings.Repeat("x", 2<<20)+`"}`)
	require.Equal(t, 413, code)
	require.Less(t, len(answer), 2000)

	s := &server{intakes: fixed(Intake{Limits: schemas.Limits{MaxValueBytes: 8 << 20}})}
	require.Less(t, s.largestBody(), int64(bodyBudget), "one request of the largest size fits beside another")
}

func TestBodiesOfAllRequestsAreBoundedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		s := &server{huma: describe(mux, Config{}), intakes: fixed(Intake{Topic: "in"}), bodies: newTurns(100, 100), unsent: newTurns(answerBudget, answerBudget)}
		s.tasks()
		post := func(size int) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/api/v1/tasks", strings.NewReader(strings.Repeat(" ", size)))
			r.Header.Set("Content-Length", strconv.Itoa(size)) // as the server leaves it there
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, r.WithContext(access.With(r.Context(), access.Caller{Role: access.Operate})))
			return answer
		}
		require.Equal(t, 400, post(100).Code, "it is read, and is no JSON")
		answer := post(101)
		require.Equal(t, 503, answer.Code)
		require.Equal(t, "1", answer.Header().Get("Retry-After"))
		require.Equal(t, 400, post(100).Code, "what was taken is given back")
	})
}

// Nothing is read of a body that the operation does not have, so waiting without one takes no memory of bodies.
func TestRequestsWithoutABodyCountNone(t *testing.T) {
	mux := http.NewServeMux()
	s := &server{huma: describe(mux, Config{}), intakes: fixed(Intake{Topic: "in"}), bodies: newTurns(0, 0), unsent: newTurns(answerBudget, answerBudget)}
	s.timers()
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodDelete, "/api/v1/timers/orders/a?wait=x", nil), // no Content-Length
		httptest.NewRequest(http.MethodPost, "/api/v1/timers/orders/a/enable?wait=x", strings.NewReader("some")),
	} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r.WithContext(access.With(r.Context(), access.Caller{Role: access.Operate})))
		require.Equal(t, 422, answer.Code, answer.Body)
	}
}
