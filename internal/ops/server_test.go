package ops

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
)

// serve runs a server on a free port until the test ends, and answers its address.
func serve(t *testing.T, cfg Config, prepare func(*Server)) string {
	t.Helper()
	s := New(cfg, NewRegistry(), zaptest.NewLogger(t))
	if prepare != nil {
		prepare(s)
	}
	return run(t, s)
}

func run(t *testing.T, s *Server) string {
	t.Helper()
	s.cfg.Addr = "127.0.0.1:0"
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return "http://" + s.Addr()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // a test's
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestHealthDoesNotDependOnDependencies(t *testing.T) {
	url := serve(t, Config{CheckTimeout: 2 * time.Second}, func(s *Server) {
		s.Check("database", func(context.Context) error { return errors.New("gone") })
		s.Check("redis", func(context.Context) error { return nil })
		s.Check("kafka", func(context.Context) error { select {} }, "k1:9092", "k2:9092") // heeds nothing
	})
	code, _ := get(t, url+"/healthz")
	require.Equal(t, 200, code)

	code, body := get(t, url+"/readyz")
	require.Equal(t, 503, code)
	var r Readiness
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	require.Equal(t, Readiness{Checks: map[string]string{"database": "gone", "redis": "ok", "kafka": "k1:9092,k2:9092: no answer within 2s"}}, r)
}

// Anybody may ask, as often as there are connections.
func TestChecksRunOnceForAllWhoAskMeanwhile(t *testing.T) {
	const askers = 50
	var runs atomic.Int64
	release := make(chan struct{})
	url := serve(t, Config{CheckTimeout: time.Minute}, func(s *Server) {
		s.Check("database", func(context.Context) error {
			runs.Add(1)
			<-release
			return nil
		})
	})
	codes := make(chan int, askers)
	for range askers {
		go func() {
			code, _ := get(t, url+"/readyz")
			codes <- code
		}()
	}
	require.Never(t, func() bool { return runs.Load() > 1 }, 300*time.Millisecond, 10*time.Millisecond)
	close(release)
	for range askers {
		require.Equal(t, 200, <-codes)
	}
}

func TestReadyUntilStopping(t *testing.T) {
	var server *Server
	url := serve(t, Config{}, func(s *Server) { server = s; s.Check("a", func(context.Context) error { return nil }) })
	code, _ := get(t, url+"/readyz")
	require.Equal(t, 200, code)
	server.Stopping()
	code, body := get(t, url+"/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "stopping")
}

func TestMetricsAndProfiles(t *testing.T) {
	url := serve(t, Config{}, nil)
	_, body := get(t, url+"/metrics")
	require.Contains(t, body, "go_goroutines")
	require.Contains(t, body, "process_start_time_seconds")
	code, _ := get(t, url+"/debug/pprof/")
	require.Equal(t, 404, code)

	code, _ = get(t, serve(t, Config{Pprof: true}, nil)+"/debug/pprof/")
	require.Equal(t, 200, code)
}

func TestAPortInUseNamesTheSetting(t *testing.T) {
	url := serve(t, Config{}, nil)
	addr := strings.TrimPrefix(url, "http://")
	err := New(Config{Addr: addr}, NewRegistry(), zaptest.NewLogger(t)).Listen()
	require.ErrorContains(t, err, addr+" is in use")
	require.ErrorContains(t, err, "http.addr (NOTYET_HTTP_ADDR)")
}

func TestOtherSitesCannotChangeAnything(t *testing.T) {
	changed := 0
	url := serve(t, Config{}, func(s *Server) {
		s.Mux().HandleFunc("POST /change", func(http.ResponseWriter, *http.Request) { changed++ })
	})
	post := func(origin string) int {
		req, err := http.NewRequest(http.MethodPost, url+"/change", nil) //nolint:noctx // a test's
		require.NoError(t, err)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, 403, post("https://evil.example"))
	require.Equal(t, 0, changed)
	require.Equal(t, 200, post("")) // curl, and our own commands
	require.Equal(t, 200, post(url))
	require.Equal(t, 2, changed)
}

func TestStopWaitsForRequestsUnderWay(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	s := New(Config{Addr: "127.0.0.1:0"}, NewRegistry(), zaptest.NewLogger(t))
	s.Mux().HandleFunc("GET /slow", func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-finish
		_, _ = w.Write([]byte("whole"))
	})
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	got := make(chan string, 1)
	go func() {
		_, body := get(t, "http://"+s.Addr()+"/slow")
		got <- body
	}()
	<-began
	cancel()
	require.Eventually(t, func() bool { return s.stopping.Load() }, time.Minute, time.Millisecond)
	close(finish)
	require.Equal(t, "whole", <-got)
	require.NoError(t, <-ended)
}

func TestReadyWithoutAHint(t *testing.T) {
	s := New(Config{Addr: "127.0.0.1:0"}, NewRegistry(), zaptest.NewLogger(t))
	s.Check("needed", func(context.Context) error { return nil })
	s.Hint("helpful", func(context.Context) error { return errors.New("away") })
	got := s.readiness()
	require.True(t, got.Ready)
	require.Equal(t, map[string]string{"needed": "ok", "helpful": "away"}, got.Checks)
	s.Check("missing", func(context.Context) error { return errors.New("gone") })
	require.False(t, s.readiness().Ready)
}

func TestHealthAnswersAnyHostAndTheRestDoesNot(t *testing.T) {
	url := serve(t, Config{}, func(s *Server) { s.Mux().HandleFunc("GET /api", func(http.ResponseWriter, *http.Request) {}) })
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/api": 403} {
		req, err := http.NewRequest(http.MethodGet, url+path, nil) //nolint:noctx // a test's
		require.NoError(t, err)
		req.Host = "rebound.example"
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode, path)
	}
	code, _ := get(t, url+"/api")
	require.Equal(t, 200, code)
}

func TestHealthAtAnAddressOfItsOwn(t *testing.T) {
	var server *Server
	url := serve(t, Config{OpsAddr: "127.0.0.1:0"}, func(s *Server) {
		server = s
		s.Mux().HandleFunc("GET /api", func(http.ResponseWriter, *http.Request) {})
	})
	own := "http://" + server.OpsAddr()
	require.NotEqual(t, url, own)
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/api": 404} {
		code, _ := get(t, own+path)
		require.Equal(t, want, code, path)
	}
	for path, want := range map[string]int{"/healthz": 404, "/metrics": 404, "/api": 200} {
		code, _ := get(t, url+path)
		require.Equal(t, want, code, path)
	}
}

func fileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestSlowClientsAreCutOff(t *testing.T) {
	s := New(Config{}, NewRegistry(), zaptest.NewLogger(t))
	for _, h := range []*http.Server{s.faces[0].server, New(Config{OpsAddr: "127.0.0.1:0"}, NewRegistry(), zaptest.NewLogger(t)).faces[1].server} {
		require.Positive(t, h.ReadHeaderTimeout)
		require.Positive(t, h.ReadTimeout)
		require.Positive(t, h.WriteTimeout)
		require.Positive(t, h.IdleTimeout)
		require.Positive(t, h.MaxHeaderBytes)
		h.ReadHeaderTimeout = 50 * time.Millisecond
	}
	s.cfg.Addr = "127.0.0.1:0"
	require.NoError(t, s.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	_, _ = c.Write([]byte("GET / HTTP/1.1\r\nX: ")) // the server may have closed it by now
	_, _ = io.ReadAll(c)                            // ends when the server closes it
	cancel()
	require.NoError(t, <-ended)
}
