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
		Help: "Requests and sign-ins that were not admitted: without a token, with a wrong or expired one, with any while the tokens file cannot be used, with a JWT that is refused, or, without tokens, from another machine, through a proxy or to another host.",
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

// refusalOf returns why a token is refused.
func refusalOf(err error) *refusal {
	var no *refusal
	if !errors.As(err, &no) {
		no = &refusal{"wrong_token", http.StatusUnauthorized, err.Error()}
	}
	return no
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
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "notyet_http_issuer_unread_seconds",
		Help: "For how long the keys of the issuer in http.jwt could not be read. Those that were read before stay in force.",
	}, func() float64 {
		if g.tokens == nil || g.tokens.issuer == nil {
			return 0
		}
		return g.tokens.issuer.keys.unread().Seconds()
	})}
}
