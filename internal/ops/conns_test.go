package ops

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/access"
)

// dialed is a client's connection.
type dialed struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, url string) dialed {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return dialed{c, t, bufio.NewReader(c)}
}

func (d dialed) send(path string) {
	d.t.Helper()
	_, err := fmt.Fprintf(d, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	require.NoError(d.t, err)
}

func (d dialed) status() int {
	d.t.Helper()
	resp, err := http.ReadResponse(d.r, nil)
	require.NoError(d.t, err)
	require.NoError(d.t, resp.Body.Close())
	return resp.StatusCode
}

// A peer that opens connections and sends nothing, or an unfinished header, shuts nobody out.
func TestIdleConnectionsGiveWay(t *testing.T) {
	url := serve(t, Config{MaxConns: 10}, nil)
	fastest := time.Hour
	for tries := 0; tries < 5 && fastest >= readHeaderTimeout; tries++ { // a machine may stand still
		var idle []dialed
		for i := range 10 * (10 + reserveConns) {
			d := dial(t, url)
			if i%2 == 0 {
				_, _ = d.Write([]byte("GET / HTTP/1.1\r\n")) // it may have given way
			}
			idle = append(idle, d)
		}
		began := time.Now()
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			d := dial(t, url)
			d.send(path)
			require.Equal(t, http.StatusOK, d.status(), path)
		}
		fastest = min(fastest, time.Since(began))
		_, err := idle[0].Read(make([]byte, 1))
		require.Error(t, err, "the first has given way")
	}
	require.Less(t, fastest, readHeaderTimeout, "it did not wait until their time for a header ended")
}

// However many requests are at work, health and metrics are answered. Those connections are not cut off, and further
// requests are told to come again.
func TestHealthIsServedBesideConnectionsAtWork(t *testing.T) {
	release := make(chan struct{})
	s := New(Config{MaxConns: 3}, NewRegistry(), zaptest.NewLogger(t))
	s.Mux().HandleFunc("/slow", func(http.ResponseWriter, *http.Request) { <-release })
	url := run(t, s)
	var working []dialed
	for range 3 {
		d := dial(t, url)
		d.send("/slow")
		working = append(working, d)
	}
	atWork(t, s, 3)
	for range 2 * reserveConns {
		dial(t, url)
	}
	for _, c := range []struct {
		path string
		want int
	}{{"/healthz", 200}, {"/readyz", 200}, {"/metrics", 200}, {"/slow", 503}} {
		d := dial(t, url)
		d.send(c.path)
		require.Equal(t, c.want, d.status(), c.path)
	}
	close(release)
	for _, d := range working {
		require.Equal(t, http.StatusOK, d.status())
	}
	d := dial(t, url)
	d.send("/metrics")
	require.Equal(t, http.StatusOK, d.status())
}

// A peer that is not admitted takes no connection from admitted ones: not with a form that never ends,
// nor with metrics that it does not read.
func TestWhoIsNotAdmittedTakesNoPlace(t *testing.T) {
	begun := make(chan struct{}, 100)
	front := func(next http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /sign-in", func(_ http.ResponseWriter, r *http.Request) {
			begun <- struct{}{}
			_, _ = io.ReadAll(r.Body)
		})
		mux.Handle("/", next)
		return mux
	}
	s := New(Config{MaxConns: 3, Front: front}, NewRegistry(), zaptest.NewLogger(t))
	s.Mux().HandleFunc("/work", func(http.ResponseWriter, *http.Request) {})
	url := run(t, s)
	for range 10 {
		d := dial(t, url)
		_, err := fmt.Fprint(d, "POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
		require.NoError(t, err)
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Fatal("a sign-in is not served beside others")
		}
	}
	for _, path := range []string{"/work", "/metrics"} {
		d := dial(t, url)
		d.send(path)
		require.Equal(t, http.StatusOK, d.status(), path)
	}
}

// atWork waits until requests are at work on so many connections.
func atWork(t *testing.T, s *Server, want int) {
	t.Helper()
	c := s.faces[0].conns
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for one := range c.all {
			if one.busy {
				n++
			}
		}
		return n == want
	}, time.Minute, time.Millisecond)
}

// A tenant sends 1,400 requests whose bodies never come, with two tokens or with a token each. Administrators and
// another tenant are served within a second.
func TestSlowBodiesLeaveConnections(t *testing.T) {
	for _, tokens := range []int{2, 1400} {
		t.Run(fmt.Sprint(tokens), func(t *testing.T) { slowBodies(t, tokens) })
	}
}

func slowBodies(t *testing.T, tokens int) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	list := ""
	rights := map[string]string{"billing": "read, topics: [bills]", "root": "admin, topics: ['*']"}
	for i := range tokens {
		rights[fmt.Sprint(i)] = "read, topics: [shop.*]"
	}
	for name, rights := range rights {
		list += fmt.Sprintf("- {name: %s, sha256: %x, role: %s}\n", name, sha256.Sum256([]byte(name)), rights)
	}
	require.NoError(t, os.WriteFile(file, []byte(list), 0o600))
	guard, err := access.New(access.Config{Tokens: file}, zaptest.NewLogger(t))
	require.NoError(t, err)
	s := New(Config{MaxConns: 1000, Guard: guard}, NewRegistry(), zaptest.NewLogger(t))
	s.Mux().HandleFunc("/read", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })
	url := run(t, s)
	ask := func(name, length string) dialed {
		d := dial(t, url)
		_, err := fmt.Fprintf(d, "POST /read HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %s\r\n\r\n", name, length)
		require.NoError(t, err)
		return d
	}
	var slow []dialed
	for i := range 1400 {
		slow = append(slow, ask(fmt.Sprint(i%tokens), "100"))
	}
	for _, name := range []string{"root", "billing"} {
		fastest := time.Minute
		for range 5 {
			began := time.Now()
			require.Equal(t, http.StatusOK, ask(name, "0").status(), name)
			fastest = min(fastest, time.Since(began))
		}
		require.Less(t, fastest, time.Second, name)
	}
	for _, d := range slow {
		_ = d.Close()
	}
	atWork(t, s, 0)
	require.Equal(t, http.StatusOK, ask("0", "0").status(), "all places are given back")
}

// Of two peers, the one that has more connections loses the one that has waited longest.
func TestThePeerWithMostConnectionsGivesWay(t *testing.T) {
	s := New(Config{MaxConns: 10}, NewRegistry(), zaptest.NewLogger(t))
	c := s.faces[0].conns
	kubelet := &conn{of: c, peer: "10.0.0.1", since: time.Unix(0, 0)}
	require.Nil(t, c.add(kubelet))
	for i := range 10 + reserveConns - 1 {
		require.Nil(t, c.add(&conn{of: c, peer: "10.0.0.2", since: time.Unix(int64(100-i), 0)}))
	}
	surplus := c.add(&conn{of: c, peer: "10.0.0.1", since: time.Unix(200, 0)})
	require.Equal(t, "10.0.0.2", surplus.peer)
	require.Equal(t, time.Unix(100-(10+reserveConns-2), 0), surplus.since)
}

func TestRequestsAreMeasured(t *testing.T) {
	s := New(Config{}, NewRegistry(), zaptest.NewLogger(t))
	s.Mux().HandleFunc("GET /api/v1/tasks/{topic}/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	url := run(t, s)
	for _, path := range []string{"/api/v1/tasks/a/b", "/api/v1/tasks/a/c", "/nowhere/1", "/nowhere/2"} {
		d := dial(t, url)
		d.send(path)
		d.status()
	}
	_, text := get(t, url+"/metrics")
	require.Contains(t, text, `notyet_http_requests_total{code="418",route="GET /api/v1/tasks/{topic}/{id}"} 2`)
	require.Contains(t, text, `notyet_http_requests_total{code="404",route="none"} 2`)
	require.Contains(t, text, `notyet_http_request_seconds_count{route="none"} 2`)
}
