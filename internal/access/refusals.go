package access

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// refusals counts the requests that were not admitted, and logs them: at most one line a second,
// which says how many there were since the line before.
type refusals struct {
	log   *zap.Logger
	count *prometheus.CounterVec // nil: of the zero Guard, which notes nothing
	lines *rate.Sometimes
	since *atomic.Int64
}

func newRefusals(log *zap.Logger) refusals {
	count := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "notyet_http_refused_total",
		Help: "Requests and sign-ins that were not admitted: without a token, with a wrong or expired one, with any while the tokens file cannot be used, or, without tokens, from another machine, through a proxy or to another host.",
	}, []string{"why"})
	return refusals{log: log, count: count, lines: &rate.Sometimes{Interval: time.Second}, since: new(atomic.Int64)}
}

func (f *refusals) note(r *http.Request, why string) {
	if f.count == nil {
		return
	}
	f.count.WithLabelValues(why).Inc()
	f.since.Add(1)
	f.lines.Do(func() {
		f.log.Warn("HTTP requests were refused", zap.Int64("refused", f.since.Swap(0)), zap.String("why", why),
			zap.String("peer", r.RemoteAddr), zap.String("method", r.Method), zap.String("path", shortened(r.URL.Path)))
	})
}

// why is the label of a refused token.
func why(err error) string {
	switch {
	case errors.Is(err, errExpired):
		return "expired"
	case errors.Is(err, errUnusable):
		return "unusable"
	}
	return "wrong_token"
}

// shortened keeps a path from filling the log.
func shortened(path string) string { return path[:min(len(path), 100)] }

// Collectors returns the metrics of the guard.
func (g *Guard) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.refused.count, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "notyet_http_tokens_unusable_seconds",
		Help: "For how long the file in http.tokens has not been usable. After 60 seconds no token is accepted.",
	}, func() float64 {
		if g.tokens == nil {
			return 0
		}
		return g.tokens.Unusable().Seconds()
	})}
}
