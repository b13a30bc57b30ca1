// Package ops is the HTTP server of every service. Checks, metrics and handlers go in; answers to
// HTTP requests come out: whether the process is alive, whether it is ready and what is not, its
// metrics and, behind a guard, the mounted handlers.
//
//	/healthz      200 while the process serves, even without a database
//	/readyz       200 if every check passes, otherwise 503; JSON names each check
//	/metrics      Prometheus
//	/debug/pprof  Go's profiles, only when configured, for administrators of all topics
//
// The first three answer anybody, at the same address as the rest or at one of their own; if so
// configured, metrics there need a token.
package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/defaults"
)

// Config of a Server. The zero value works.
type Config struct {
	// Addr is host:port to listen on; port 0 takes any free one. Default 127.0.0.1:8080.
	Addr string
	// OpsAddr is host:port for health and metrics alone, without TLS. Default none: at Addr.
	OpsAddr string
	// Guard admits requests to the mounted handlers. Default: loopback only.
	Guard *access.Guard
	// Front wraps the guard, serves pages without a caller, such as a sign-in, and passes the rest
	// on. Default none.
	Front func(http.Handler) http.Handler
	// Certificate and Key are PEM files; with them, Addr serves HTTPS. Changed files are read
	// again. Default plain.
	Certificate, Key string
	// MaxConns limits the connections of each address with requests at work; further requests get
	// 503, but health and metrics are served. With tokens, one has half of them. Some more
	// connections may be open. Default 1000.
	MaxConns int
	// AccessLog gets a line for each request but those to health and metrics. Default none.
	AccessLog *zap.Logger
	// GuardMetrics serves the metrics at Addr to admitted callers only. Default false: to anybody.
	GuardMetrics bool
	// Pprof serves profiles, which reveal memory and code. Default false.
	Pprof bool
	// CheckTimeout limits each check of /readyz. Default 2s.
	CheckTimeout time.Duration
}

// A slow client must not hold a connection forever. A handler that streams longer than writeTimeout
// lifts the limit with http.ResponseController.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 30 * time.Second
	maxHeaderBytes    = 64 << 10
)

// Server is made by New, listens from Listen on and serves while Run runs.
type Server struct {
	cfg      Config
	log      *zap.Logger
	mux      *http.ServeMux // behind the guard
	faces    []*face        // the main one first; the last serves health and metrics
	checks   []check
	parts    []*Part
	asking   singleflight.Group // for the result of the checks
	stopping atomic.Bool

	profiling *semaphore.Weighted // one profile at a time
}

// face is one address with its server.
type face struct {
	server   *http.Server
	conns    *conns
	listener net.Listener // nil: Listen was not called
}

// NewRegistry returns a registry with the metrics of Go and the process.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// New prepares the server and opens nothing.
func New(cfg Config, reg *prometheus.Registry, log *zap.Logger) *Server {
	cfg.Addr = cmp.Or(cfg.Addr, defaults.HTTP)
	cfg.CheckTimeout = cmp.Or(cfg.CheckTimeout, 2*time.Second)
	cfg.MaxConns = cmp.Or(cfg.MaxConns, defaults.HTTPConns)
	if cfg.Guard == nil {
		cfg.Guard = &access.Guard{}
	}
	s := &Server{cfg: cfg, log: log, mux: http.NewServeMux()}
	var metrics http.Handler = &exposition{from: promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg, ErrorLog: errorLog{log}}), answers: map[string]*answer{}}
	if cfg.GuardMetrics && cfg.OpsAddr == "" {
		metrics = cfg.Guard.Handler(metrics)
	}
	if cfg.Pprof {
		s.profiles()
	}
	open, shed := connMetrics(reg)
	c := newConns(cfg.MaxConns, open.WithLabelValues("http"), shed)
	guarded := cfg.Guard.Handler(admitted(c.bounded(newRequests(reg).around(s.mux))))
	if cfg.Front != nil {
		guarded = cfg.Front(guarded)
	}
	guarded = access.CrossOrigin(guarded)
	if cfg.AccessLog != nil {
		guarded = newAccessLog(cfg.AccessLog).around(guarded)
	}
	mux := http.NewServeMux()
	mux.Handle("/", guarded)
	s.faces = []*face{{server: s.server(mux), conns: c}}
	if cfg.OpsAddr != "" {
		mux, c = http.NewServeMux(), newConns(cfg.MaxConns, open.WithLabelValues("ops"), shed)
		s.faces = append(s.faces, &face{server: s.server(mux), conns: c})
	}
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", metrics)
	return s
}

func connMetrics(reg prometheus.Registerer) (open *prometheus.GaugeVec, shed prometheus.Counter) {
	open = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "notyet_http_connections", Help: "Open connections, by address: http.addr or ops.addr."}, []string{"address"})
	shed = prometheus.NewCounter(prometheus.CounterOpts{Name: "notyet_http_connections_shed_total", Help: "Connections without a request that gave way to new ones, because http.max-conns and some more were open."})
	reg.MustRegister(open, shed)
	return open, shed
}

func (s *Server) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ConnContext:       withConn,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       serverLog(s.log),
	}
}

// Mux takes further handlers; add them before Run. Their requests have passed the guard, and
// access.From returns the caller.
func (s *Server) Mux() *http.ServeMux { return s.mux }

// Listen opens the addresses, so that a wrong one is reported before anything else starts.
func (s *Server) Listen() error {
	main := s.faces[0]
	l, err := main.listen("http.addr (NOTYET_HTTP_ADDR)", s.cfg.Addr)
	if err != nil {
		return err
	}
	if s.cfg.Certificate != "" {
		if l, err = s.secure(l); err != nil {
			return err
		}
	}
	if main.listener = l; len(s.faces) == 1 {
		return nil
	}
	ops := s.faces[1]
	if ops.listener, err = ops.listen("ops.addr (NOTYET_OPS_ADDR)", s.cfg.OpsAddr); err != nil {
		_ = s.Close()
	}
	return err
}

// ErrInUse means that something else listens on the address.
var ErrInUse = errors.New("is in use")

func (f *face) listen(setting, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listening for HTTP: %s %w: stop what listens there, or set %s to another address", addr, ErrInUse, setting)
	case err != nil:
		return nil, fmt.Errorf("listening for HTTP on %s, which %s says: %w", addr, setting, err)
	}
	return listener{l, f.conns}, nil
}

// Addr returns the host:port opened by Listen.
func (s *Server) Addr() string { return s.faces[0].listener.Addr().String() }

// OpsAddr returns the host:port of health and metrics.
func (s *Server) OpsAddr() string { return s.faces[len(s.faces)-1].listener.Addr().String() }

// Stopping makes /readyz fail from now on, so that no new work arrives.
func (s *Server) Stopping() { s.stopping.Store(true) }

// Run serves until ctx ends. Then it gives running requests up to five seconds to finish.
func (s *Server) Run(ctx context.Context) error {
	var all errgroup.Group
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, f := range s.faces {
		all.Go(func() error {
			defer cancel() // if one fails, the other ends
			return s.serve(ctx, f)
		})
	}
	return all.Wait()
}

func (s *Server) serve(ctx context.Context, f *face) error {
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(f.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving HTTP: %w", err)
	case <-ctx.Done():
	}
	s.Stopping()
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := f.server.Shutdown(patience); err != nil {
		s.log.Warn("HTTP requests were cut off", zap.Error(err))
		_ = f.server.Close()
	}
	<-served
	return nil
}

// Close closes the addresses of a server that never ran.
func (s *Server) Close() error {
	var err error
	for _, f := range s.faces {
		if f.listener != nil {
			err = errors.Join(err, f.listener.Close())
		}
	}
	return err
}

type errorLog struct{ log *zap.Logger }

func (l errorLog) Println(v ...any) { l.log.Warn("metrics", zap.String("message", fmt.Sprintln(v...))) }
