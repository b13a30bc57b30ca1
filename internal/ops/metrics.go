package ops

import (
	"bytes"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// exposeEvery is how long an answer with metrics is given again. Anybody may ask, and to gather,
// encode and compress the metrics of many targets takes milliseconds.
const exposeEvery = time.Second

// exposition gives the same answer within exposeEvery: a slow reader keeps nothing of his own.
type exposition struct {
	from http.Handler

	mu      sync.Mutex
	answers map[string]*answer // by the encoding of their content
}

type answer struct {
	at     time.Time
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// ServeHTTP answers with text, compressed by gzip if the client accepts.
func (e *exposition) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	encoding := "identity"
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		encoding = "gzip"
	}
	a := e.answer(encoding)
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}

// answer returns a finished one.
func (e *exposition) answer(encoding string) *answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.answers[encoding]
	if a == nil || time.Since(a.at) >= exposeEvery {
		a = &answer{at: time.Now(), header: http.Header{}, status: http.StatusOK}
		e.from.ServeHTTP(a, &http.Request{Method: http.MethodGet, Header: http.Header{"Accept-Encoding": {encoding}}})
		e.answers[encoding] = a
	}
	return a
}
