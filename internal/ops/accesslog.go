package ops

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/access"
)

// An unknown peer must not fill a disk: so many lines a second are about requests without
// admission, and so many at once.
const (
	strangersPerSecond = 10
	strangersAtOnce    = 100
)

// accessLog writes a line for each request, without anything of path, query, body or credential.
type accessLog struct {
	log       *zap.Logger
	strangers *rate.Limiter // of lines about requests that were not admitted
	leftOut   atomic.Int64  // lines since the last one
}

func newAccessLog(log *zap.Logger) *accessLog {
	return &accessLog{log: log, strangers: rate.NewLimiter(strangersPerSecond, strangersAtOnce)}
}

// admission is the knowledge about a request behind the guard.
type admission struct {
	caller access.Caller
	route  string
}

type admissionKey struct{}

// admitted, between guard and mux, notes the caller and the route for the access log.
func admitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := r.Context().Value(admissionKey{}).(*admission); ok {
			a.caller = access.From(r.Context())
			defer func() { a.route = r.Pattern }() // the mux sets it
		}
		next.ServeHTTP(w, r)
	})
}

// around logs what next serves, refusals included.
func (l *accessLog) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, seen, a := time.Now(), &statusWriter{ResponseWriter: w, status: http.StatusOK}, &admission{}
		r = r.WithContext(context.WithValue(r.Context(), admissionKey{}, a))
		served := false
		defer func() {
			if !served { // the handler has panicked, and the connection is cut
				seen.status = http.StatusInternalServerError
			}
			a.route = cmp.Or(a.route, r.Pattern) // the latter of what needs no caller, such as the sign-in page
			if a.route == "/" {                  // it came to no route
				a.route = ""
			}
			l.write(r, a, seen, time.Since(began))
		}()
		next.ServeHTTP(seen, r)
		served = true
	})
}

func (l *accessLog) write(r *http.Request, a *admission, seen *statusWriter, took time.Duration) {
	if a.caller.Role == access.None && !l.strangers.Allow() {
		l.leftOut.Add(1)
		return
	}
	fields := []zap.Field{
		zap.String("who", brief(a.caller.Name, 300)), zap.Stringer("role", a.caller.Role), zap.String("method", brief(r.Method, 20)),
		zap.String("route", a.route), zap.Int("status", seen.status), zap.Float64("seconds", took.Seconds()), zap.Int64("bytes", seen.bytes),
		zap.String("peer", r.RemoteAddr),
	}
	if id := r.Header.Get("X-Request-Id"); id != "" {
		fields = append(fields, zap.String("request_id", brief(id, 100)))
	}
	if n := l.leftOut.Swap(0); n > 0 {
		fields = append(fields, zap.Int64("left_out", n))
	}
	l.log.Info("request", fields...)
}

// brief returns the beginning of a caller's text, without unprintable characters.
func brief(s string, most int) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s[:min(len(s), most)])
}
