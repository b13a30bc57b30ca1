package ops

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests counts and times the admitted requests, by route.
type requests struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newRequests(reg prometheus.Registerer) *requests {
	m := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notyet_http_requests_total", Help: "HTTP requests that were admitted, by method and path as /openapi.json has them, and by status.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "notyet_http_request_seconds", Help: "How long they took, with what the caller had to wait for: its turn, and the answer that ?wait= asks for.",
			Buckets: []float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
	}
	reg.MustRegister(m.total, m.seconds)
	return m
}

func (m *requests) around(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, seen := time.Now(), &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			route := cmp.Or(r.Pattern, "none") // mux has set it
			m.total.WithLabelValues(route, strconv.Itoa(seen.status)).Inc()
			m.seconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
		}()
		mux.ServeHTTP(seen, r)
	})
}

// statusWriter remembers the status, and counts the bytes of the body.
type statusWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
