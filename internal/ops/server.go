// Package ops is the HTTP server that every service runs: whether it is alive, whether it is ready and what not, its
// metrics and, on the same port, whatever else is mounted.
//
//	/healthz      200 while the process serves; a database that is away does not change that
//	/readyz       200 when every check passes, else 503; JSON names each check
//	/metrics      Prometheus
//	/debug/pprof  Go's profiles, only when configured
package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// Config of a Server. The zero value works.
type Config struct {
	// Addr is host:port to listen on; port 0 takes any free one. Default 127.0.0.1:8080.
	Addr string
	// Pprof serves profiles, which show memory and code to whoever can connect. Default false.
	Pprof bool
	// CheckTimeout bounds each check of /readyz. Default 2s.
	CheckTimeout time.Duration
}

// A client that sends or reads slowly must not hold a connection for ever. Whoever streams longer than writeTimeout
// lifts it with http.ResponseController.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Server is made by New, listens from Listen on and serves while Run runs.
type Server struct {
	cfg      Config
	log      *zap.Logger
	mux      *http.ServeMux
	http     *http.Server
	listener net.Listener
	checks   []check
	stopping atomic.Bool
}

// NewRegistry returns a registry with what Go and the operating system say about the process.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// New prepares the server; it opens nothing.
func New(cfg Config, reg *prometheus.Registry, log *zap.Logger) *Server {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:8080"
	}
	if cfg.CheckTimeout == 0 {
		cfg.CheckTimeout = 2 * time.Second
	}
	s := &Server{cfg: cfg, log: log, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /healthz", alive)
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, ErrorLog: errorLog{log}}))
	if cfg.Pprof {
		s.mux.HandleFunc("/debug/pprof/", pprof.Index)
		s.mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		s.mux.HandleFunc("/debug/pprof/profile", unhurried(pprof.Profile))
		s.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		s.mux.HandleFunc("/debug/pprof/trace", unhurried(pprof.Trace))
	}
	s.http = &http.Server{
		// A page of another site, opened in an operator's browser, must not be able to change anything here.
		Handler:           http.NewCrossOriginProtection().Handler(s.mux),
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       zap.NewStdLog(log),
	}
	return s
}

// Mux takes further handlers, before Run.
func (s *Server) Mux() *http.ServeMux { return s.mux }

// Listen opens the port, so that a mistake about it is known before anything else starts.
func (s *Server) Listen() error {
	l, err := net.Listen("tcp", s.cfg.Addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listening for HTTP: %s is in use: stop what listens there, or set http.addr (NOTYET_HTTP_ADDR) to another address", s.cfg.Addr)
	case err != nil:
		return fmt.Errorf("listening for HTTP on %s, which http.addr (NOTYET_HTTP_ADDR) says: %w", s.cfg.Addr, err)
	}
	s.listener = l
	return nil
}

// Addr is the host:port that Listen has opened.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Stopping makes /readyz fail from now on: no new work, please.
func (s *Server) Stopping() { s.stopping.Store(true) }

// Run serves until ctx ends, then lets requests under way finish for up to five seconds.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving HTTP: %w", err)
	case <-ctx.Done():
	}
	s.Stopping()
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.http.Shutdown(patience); err != nil {
		s.log.Warn("HTTP requests were cut off", zap.Error(err))
		_ = s.http.Close()
	}
	<-served
	return nil
}

// Close gives up the port of a server that never ran.
func (s *Server) Close() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// unhurried lifts the bound on answering: a profile takes as long as it was asked to.
func unhurried(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		h(w, r)
	}
}

type errorLog struct{ log *zap.Logger }

func (l errorLog) Println(v ...any) { l.log.Warn("metrics", zap.String("message", fmt.Sprintln(v...))) }
