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
		const page = "/tasks?content=true"
		writing, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		const most = answerBudget / contentPageBytes
		for range most {
			go func() {
				mux.ServeHTTP(slowReader{httptest.NewRecorder(), writing, release}, request(page))
				done <- struct{}{}
			}()
			<-writing
		}
		require.Equal(t, 503, status(page))
		require.Equal(t, 503, status("/deadletters?content=true"))
		require.Equal(t, 200, status("/tasks"), "pages without content are small")
		close(release)
		for range most {
			<-done
		}
		require.Equal(t, 200, status(page), "what was sent counts no more")

		s = &server{intakes: fixed(Intake{Limits: schemas.Limits{MaxValueBytes: schemas.MaxValueBytes}})}
		require.Less(t, s.largestValue(), contentPageBytes-16<<20+1, "a page has 16 MiB, and one value more")
	})
}
