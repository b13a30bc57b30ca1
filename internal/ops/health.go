package ops

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
)

type check struct {
	name  string
	where string // begins what is said
	run   func(ctx context.Context) error
	hint  bool // reported, but not a reason to be unready
}

// Check adds a dependency to /readyz, and where it is, if that is known. Call it before Run. Each
// request calls the function, concurrently with the others. The function must obey the context.
func (s *Server) Check(name string, run func(ctx context.Context) error, where ...string) {
	s.checks = append(s.checks, newCheck(name, run, false, where))
}

// Hint adds a dispensable dependency. /readyz reports its failure and stays 200.
func (s *Server) Hint(name string, run func(ctx context.Context) error, where ...string) {
	s.checks = append(s.checks, newCheck(name, run, true, where))
}

func newCheck(name string, run func(ctx context.Context) error, hint bool, where []string) check {
	c := check{name: name, run: run, hint: hint}
	if at := strings.Join(where, ","); at != "" {
		c.where = at + ": "
	}
	return c
}

func alive(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready  bool              `json:"ready"`
	Checks map[string]string `json:"checks"` // by name: "ok", or what is wrong
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	result := s.readiness()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !result.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(result)
}

// Ready reports whether /readyz would return 200 now.
func (s *Server) Ready() bool { return s.readiness().Ready }

// readiness returns the result of the checks, one for all who ask meanwhile: anybody may ask, and
// the checks use the connections of the deliveries.
func (s *Server) readiness() Readiness {
	result, _, _ := s.asking.Do("", func() (any, error) { return s.runChecks(), nil })
	return result.(Readiness)
}

func (s *Server) runChecks() Readiness {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CheckTimeout)
	defer cancel()
	result := Readiness{Checks: map[string]string{}}
	groups := [][]check{s.checks}
	for _, p := range s.parts {
		groups = append(groups, p.now())
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	failed := make([]bool, len(groups))
	for i, group := range groups {
		for _, c := range group {
			running.Go(func() {
				said, ok := s.run(ctx, c)
				mu.Lock()
				defer mu.Unlock()
				result.Checks[c.name] = said
				failed[i] = failed[i] || !ok && !c.hint
			})
		}
	}
	running.Wait()
	result.Ready = !failed[0] && (len(s.parts) == 0 || slices.Contains(failed[1:], false))
	if s.stopping.Load() {
		result.Ready, result.Checks["process"] = false, "stopping"
	}
	return result
}

// run returns what /readyz says of a check.
func (s *Server) run(ctx context.Context, c check) (said string, ok bool) {
	err := bounded(ctx, c.run)
	switch {
	case err == nil:
		return "ok", true
	case errors.Is(err, context.DeadlineExceeded):
		return c.where + "no answer within " + s.cfg.CheckTimeout.String(), false
	}
	return c.where + err.Error(), false
}

// bounded returns when ctx ends, even if the check does not.
func bounded(ctx context.Context, run func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
