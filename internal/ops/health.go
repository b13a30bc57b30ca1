package ops

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
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
	s.add(check{name: name, run: run}, where)
}

// Hint adds a dispensable dependency. /readyz reports its failure and stays 200.
func (s *Server) Hint(name string, run func(ctx context.Context) error, where ...string) {
	s.add(check{name: name, run: run, hint: true}, where)
}

func (s *Server) add(c check, where []string) {
	if at := strings.Join(where, ","); at != "" {
		c.where = at + ": "
	}
	s.checks = append(s.checks, c)
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
	errs := make([]error, len(s.checks))
	var running sync.WaitGroup
	for i, c := range s.checks {
		running.Go(func() { errs[i] = bounded(ctx, c.run) })
	}
	running.Wait()
	result := Readiness{Ready: true, Checks: map[string]string{}}
	for i, c := range s.checks {
		result.Checks[c.name] = "ok"
		if err := errs[i]; err != nil {
			said := err.Error()
			if errors.Is(err, context.DeadlineExceeded) {
				said = "no answer within " + s.cfg.CheckTimeout.String()
			}
			result.Ready, result.Checks[c.name] = result.Ready && c.hint, c.where+said
		}
	}
	if s.stopping.Load() {
		result.Ready, result.Checks["process"] = false, "stopping"
	}
	return result
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
