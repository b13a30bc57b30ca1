package ops

import (
	"context"
	"io"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/notyet/notyet/internal/access"
)

const (
	// maxProfile is how long a profile may take. The whole service is slower meanwhile.
	maxProfile = time.Minute
	// profileWait is how long a profile waits for the end of another.
	profileWait = 2 * time.Second
)

func (s *Server) profiles() {
	s.profiling = semaphore.NewWeighted(1)
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": cmdline, "/debug/pprof/symbol": pprof.Symbol,
		"/debug/pprof/profile": pprof.Profile, "/debug/pprof/trace": pprof.Trace,
	} {
		s.mux.HandleFunc(path, access.Require(access.Admin, s.profile(h)))
	}
}

// profile serves administrators of all topics, whose memory a profile shows, one at a time.
func (s *Server) profile(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seconds, _ := strconv.ParseFloat(r.FormValue("seconds"), 64)
		switch {
		case !access.From(r.Context()).AllTopics():
			access.Refuse(w, http.StatusForbidden, "profiles show what belongs to all topics, and the token is for some only")
			return
		case seconds > maxProfile.Seconds():
			access.Refuse(w, http.StatusUnprocessableEntity, "seconds: a profile takes at most 60: write a smaller number")
			return
		}
		wait, cancel := context.WithTimeout(r.Context(), profileWait)
		defer cancel()
		if s.profiling.Acquire(wait, 1) != nil {
			w.Header().Set("Retry-After", "1")
			access.Refuse(w, http.StatusServiceUnavailable, "another profile is being made: try again when that has ended")
			return
		}
		defer s.profiling.Release(1)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxProfile + writeTimeout))
		h(w, r)
	}
}

// cmdline answers with the program's name alone: flags may have secrets.
func cmdline(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, os.Args[0])
}
