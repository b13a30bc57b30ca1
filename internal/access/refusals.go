package access

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// refusals counts refused requests and logs them, in at most one line a second with the number
// since the previous line. For the audit log, refusals of one kind are merged.
type refusals struct {
	log   *zap.Logger
	count *prometheus.CounterVec // nil: of the zero Guard, which notes nothing
	tried prometheus.Counter     // failed sign-ins
	lines *rate.Sometimes
	since *atomic.Int64
	away  *rate.Sometimes // of lines about an issuer that does not answer

	mu     *sync.Mutex
	merged map[string]Refused // by where and why, which are few
}

// Refused are refusals of one kind, one after the other.
type Refused struct {
	At    string // atAPI or atConsole
	Why   string // as in the metric
	Peer  string // of the last one
	Count int64
}

// Where a caller was refused.
const (
	atAPI     = "api"
	atConsole = "console"
)

// harmless are refusals that are no failed sign-ins: of requests without a sign of the caller, and
// of known callers' requests.
var harmless = map[string]bool{"no_token": true, "address": true, "forwarded": true, "host": true, "too_many": true}

func newRefusals(log *zap.Logger) refusals {
	count := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "notyet_http_refused_total",
		Help: "Requests and sign-ins that were not admitted: without a token, with a wrong or expired one, with any while the tokens file cannot be used, with a JWT that is refused, at the issuer's sign-in, beyond requests-per-second of an entry, or, without tokens, from another machine, through a proxy or to another host.",
	}, []string{"why"})
	tried := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "notyet_http_sign_ins_failed_total",
		Help: "Of notyet_http_refused_total, sign-ins that failed and requests with a token that is refused. Guesses are among them.",
	})
	return refusals{log: log, count: count, tried: tried, lines: &rate.Sometimes{Interval: time.Second}, since: new(atomic.Int64), away: &rate.Sometimes{Interval: time.Second}, mu: new(sync.Mutex), merged: map[string]Refused{}}
}

func (f *refusals) note(r *http.Request, why, at string) {
	if f.count == nil {
		return
	}
	f.count.WithLabelValues(why).Inc()
	if !harmless[why] {
		f.tried.Inc()
		peer, _, _ := net.SplitHostPort(r.RemoteAddr)
		f.merge(Refused{At: at, Why: why, Peer: peer, Count: 1})
	}
	f.since.Add(1)
	f.lines.Do(func() {
		f.log.Warn("HTTP requests were refused", zap.Int64("refused", f.since.Swap(0)), zap.String("why", why),
			zap.String("peer", r.RemoteAddr), zap.String("method", shortened(r.Method)), zap.String("path", shortened(r.URL.Path)))
	})
}

func (f *refusals) merge(x Refused) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := x.At + " " + x.Why
	x.Count += f.merged[kind].Count
	f.merged[kind] = x
}

// unanswered logs why the issuer has given no token. The rest of the error could repeat the answer.
func (f *refusals) unanswered(at string, err error) {
	var unreachable *url.Error
	if !errors.As(err, &unreachable) {
		unreachable = &url.Error{Err: errors.New("the answer has no token")}
	}
	f.away.Do(func() {
		f.log.Error("the issuer in http.jwt.issuer gives no token for a sign-in", zap.String("endpoint", at), zap.Error(unreachable.Err))
	})
}

// EachRefused calls keep with the failed sign-ins and tokens since the last call, each kind merged.
// If keep fails, the next call repeats them.
func (g *Guard) EachRefused(keep func([]Refused) error) error {
	f := g.refused
	f.mu.Lock()
	all := slices.SortedFunc(maps.Values(f.merged), func(a, b Refused) int { return strings.Compare(a.At+a.Why, b.At+b.Why) })
	clear(f.merged)
	f.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	err := keep(all)
	if err != nil {
		for _, x := range all {
			f.merge(x)
		}
	}
	return err
}

func refusalOf(err error) *refusal {
	if no, ok := errors.AsType[*refusal](err); ok {
		return no
	}
	return &refusal{"wrong_token", http.StatusUnauthorized, err.Error()}
}

// shortened limits a caller's text in the log.
func shortened(text string) string { return text[:min(len(text), 100)] }

// Collectors returns the metrics of the guard.
func (g *Guard) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.refused.count, g.refused.tried, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "notyet_http_tokens_unusable_seconds",
		Help: "For how long the file in http.tokens has not been usable. After 60 seconds no token is accepted.",
	}, func() float64 {
		if g.tokens == nil {
			return 0
		}
		_, unusable := g.tokens.entries.Age()
		return unusable.Seconds()
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "notyet_http_issuer_unread_seconds",
		Help: "For how long the keys of the issuer in http.jwt could not be read. Those that were read before stay in force for http.jwt.keys-max-age.",
	}, func() float64 {
		if g.tokens == nil || g.tokens.issuer == nil {
			return 0
		}
		return g.tokens.issuer.keys.unread().Seconds()
	})}
}
