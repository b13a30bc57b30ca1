package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

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
		s := &server{huma: describe(mux, Config{}), local: w.local, intakes: fixed(), bodies: newTurns(bodyBudget, bodyBudget), unsent: newTurns(answerBudget, answerBudget)}
		s.tasks()
		s.letters()
		request := func(path string) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/api/v1"+path, nil)
			return r.WithContext(access.With(r.Context(), access.Caller{Role: access.Operate}))
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
