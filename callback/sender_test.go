package callback

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/schemas"
)

func TestAnAnswerIsReadWithinBounds(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   func(w http.ResponseWriter, r *http.Request)
		want   Verdict
		reason string
	}{
		"short":           {404, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "no such hook") }, Dead, "http://shop.example answered 404: no such hook"},
		"none":            {500, func(http.ResponseWriter, *http.Request) {}, Retry, "http://shop.example answered 500"},
		"endless":         {400, endless, Dead, "http://shop.example answered 400: " + strings.Repeat("x", 1024)},
		"endless success": {200, endless, Delivered, ""},
		"trickle": {400, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("y"))
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(900 * time.Millisecond):
				}
			}
		}, Dead, "http://shop.example answered 400: yyy"},
		"silent success": {200, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, Delivered, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, stop := serveMemory(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.WriteHeader(c.status)
					c.body(w, r)
				})
				defer stop()
				started := time.Now()
				o := s.Send(t.Context(), requestTo("http://shop.example/"))
				require.LessOrEqual(t, time.Since(started), answerTimeout)
				require.Equal(t, c.want, o.Verdict)
				require.Equal(t, c.status, o.Status)
				require.Equal(t, c.reason, o.Reason)
			})
		})
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
			return
		}
	}
}

func TestARequestThatIsNotAnswered(t *testing.T) {
	for _, c := range []struct{ asked, want time.Duration }{
		{0, 30 * time.Second},
		{time.Millisecond, time.Millisecond},
		{time.Minute, time.Minute},
		{1000 * time.Hour, 5 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, stop := serveMemory(t, Config{}, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			})
			defer stop()
			started, r := time.Now(), requestTo("http://shop.example/")
			r.Timeout = c.asked
			o := s.Send(t.Context(), r)
			require.Equal(t, c.want, time.Since(started))
			require.Equal(t, Outcome{Verdict: Retry, Sent: true, Failure: "timeout", Hasty: c.asked == time.Millisecond, Reason: "http://shop.example did not answer within " + c.want.String()}, o)
		})
	}
}

func TestAStopLeavesTheTaskInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := serveMemory(t, Config{}, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		o := s.Send(ctx, requestTo("http://shop.example/"))
		require.Equal(t, Interrupted, o.Verdict)
		require.True(t, o.Sent)
	})
}

// What fails below HTTP is tried again, whatever it is.
func TestWhatFailsBelowHTTP(t *testing.T) {
	raw := func(answer string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil || !strings.HasPrefix(answer, "HTTP") {
						_, _ = io.WriteString(conn, answer)
					}
				}()
			}
		}()
		return l.Addr().String()
	}
	closedPort := raw("")
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := refused.Addr().String()
	refused.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()

	s := newTestSender(t, Config{URLRules: everyone})
	for name, c := range map[string]struct {
		url, reason string
		sent        bool
	}{
		"connection refused": {"http://" + nobody, "failed: connect: connection refused", false},
		"closed":             {"http://" + closedPort, "", true},
		"no HTTP":            {"http://" + raw("hello\r\n\r\n"), "failed: ", true},
		"cut":                {"http://" + raw("HTTP/1.1 200 OK\r\nContent-Le"), "", true},
		"large headers":      {"http://" + raw("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n"), "failed: ", true},
		"no TLS":             {"https://" + raw("HTTP/1.1 400 Bad Request\r\n\r\n"), "", false},
		"unknown authority":  {secure.URL, "has a certificate that is not valid: x509: ", false},
	} {
		o := s.Send(t.Context(), requestTo(c.url))
		require.Equal(t, Retry, o.Verdict, "%s: %+v", name, o)
		require.Zero(t, o.Status, name)
		require.Contains(t, o.Reason, c.reason, name)
		require.Equal(t, c.sent, o.Sent, name)
		require.LessOrEqual(t, len(o.Reason), 4096)
	}
	s.guard.resolver = resolverOf(func(string) []netip.Addr { return nil })
	o := s.Send(t.Context(), requestTo("http://nowhere.test/"))
	require.Equal(t, Outcome{Verdict: Retry, Failure: "dns", Reason: "http://nowhere.test has a name that does not exist"}, o)
}

func TestConnectionsAreReused(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			var opened atomic.Int32
			var other atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != version {
					other.Add(1)
				}
				_, _ = io.Copy(w, r.Body)
			}))
			server.EnableHTTP2 = version == "HTTP/2.0"
			server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					opened.Add(1)
				}
			}
			server.StartTLS()
			defer server.Close()
			pool := x509.NewCertPool()
			pool.AddCert(server.Certificate())
			s := newTestSender(t, Config{URLRules: everyone, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
			for range 100 {
				require.Equal(t, Delivered, s.Send(t.Context(), requestTo(server.URL)).Verdict)
			}
			require.EqualValues(t, 1, opened.Load())
			require.Zero(t, other.Load())
		})
	}
}

// A receiver that closes a reused connection instead of an answer gets the request once more, with
// the same idempotency key, and no attempt is lost.
func TestARequestOnAConnectionThatWasJustClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var mu sync.Mutex
	var keys []string
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for i := 0; ; i++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					mu.Lock()
					keys = append(keys, r.Header.Get("Idempotency-Key"))
					mu.Unlock()
					if n == 0 && i == 1 {
						return // the second request of the first connection
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			}()
		}
	}()
	s := newTestSender(t, Config{URLRules: everyone})
	for _, key := range []string{"one", "two"} {
		r := requestTo("http://" + l.Addr().String())
		r.Delivery.Key = key
		require.Equal(t, Outcome{Verdict: Delivered, Status: 204, Sent: true}, s.Send(t.Context(), r))
	}
	require.Equal(t, []string{"one", "two", "two"}, keys)
}

// Other limits count for the requests that begin then. One that is under way ends as it began, and its connection with it.
func TestOtherNumbersOfASender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, stop := serveMemory(t, Config{MaxInFlight: 1, MaxInFlightTotal: 100, MaxTimeout: time.Hour}, func(http.ResponseWriter, *http.Request) { <-release })
		defer stop()
		outcomes := make(chan Outcome, 10)
		long := requestTo("http://slow.example/")
		long.Timeout = time.Hour
		send := func() { go func() { outcomes <- s.Send(t.Context(), long) }(); synctest.Wait() }
		limits := func() [2]int { each, all := s.Limits(); return [2]int{each, all} }
		require.Equal(t, [2]int{1, 100}, limits())
		send()
		before := s.now.Load()
		s.Limit(1, 100, time.Hour)
		require.Same(t, before, s.now.Load(), "nothing is other, and the connections stay")
		s.Limit(3, 200, time.Minute)
		require.Equal(t, [2]int{3, 200}, limits())
		send()
		send()
		time.Sleep(time.Minute)
		for range 2 {
			require.Equal(t, failedTimeout, (<-outcomes).Failure)
		}
		time.Sleep(time.Minute)
		require.Empty(t, outcomes, "it has an hour")
		close(release)
		require.Equal(t, Delivered, (<-outcomes).Verdict)
	})
}

// Whoever asks for a millisecond learns nothing about the origin.
func TestAHastyRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := serveMemory(t, Config{MaxTimeout: 20 * time.Second}, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.Host == "never.example" {
				<-r.Context().Done()
			}
			time.Sleep(10 * time.Millisecond)
		})
		defer stop()
		for timeout, hasty := range map[time.Duration]bool{time.Millisecond: true, fairTimeout - 1: true, fairTimeout: false, time.Hour: false, 0: false} {
			r := requestTo("http://never.example/")
			r.Timeout = timeout
			o := s.Send(t.Context(), r)
			require.Equal(t, Retry, o.Verdict)
			require.Equal(t, failedTimeout, o.Failure)
			require.Equal(t, hasty, o.Hasty, timeout)
			require.Zero(t, o.After, "its next attempt is due as any other")
		}
		r := requestTo("http://shop.example/")
		r.Timeout = 20 * time.Millisecond
		require.Equal(t, Outcome{Verdict: Delivered, Status: 200, Sent: true}, s.Send(t.Context(), r))
	})
}

// However many origins and answers there are, the number of series stays.
func TestMetricsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var status atomic.Int32
		m := &memory{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(int(status.Load()))
		})}
		var running sync.WaitGroup
		running.Go(func() { _ = server.Serve(m) })
		reg := prometheus.NewRegistry()
		s, err := New(Config{URLRules: everyone, Dial: m.dial}, zap.NewNop(), reg)
		require.NoError(t, err)
		series := func() (n int) {
			families, err := reg.Gather()
			require.NoError(t, err)
			for _, f := range families {
				n += len(f.Metric)
			}
			return n
		}
		status.Store(200)
		s.Send(t.Context(), requestTo("http://a/"))
		before := series()
		for code := int32(200); code < 600; code++ {
			status.Store(code)
			s.Send(t.Context(), requestTo(fmt.Sprintf("http://%d.example/", code)))
		}
		s.Send(t.Context(), requestTo("ftp://a/"))
		asking := requestTo("http://a/")
		asking.Asks = true
		s.Send(t.Context(), asking)
		require.LessOrEqual(t, series(), before+1) // the histogram of open circuits
		s.Close()
		_ = server.Close()
		running.Wait()
	})
}

// A connection that is being made ends with its request, so their number is bounded as well. By
// itself the transport goes on with it.
func TestConnectionsThatAreBeingMadeEndWithTheirRequest(t *testing.T) {
	for name, c := range map[string]struct {
		scheme  string
		connect bool // the connection is made, and the handshake is not answered
	}{"a dial": {"http", false}, "a dial for TLS": {"https", false}, "a handshake": {"https", true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dialing, open atomic.Int32
				dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
					if c.connect {
						client, _ := net.Pipe()
						open.Add(1)
						return &closeCounted{Conn: client, open: &open}, nil
					}
					dialing.Add(1)
					defer dialing.Add(-1)
					<-ctx.Done()
					return nil, ctx.Err()
				}
				s, err := New(Config{URLRules: everyone, Dial: dial}, zap.NewNop(), prometheus.NewRegistry())
				require.NoError(t, err)
				for i := range 20 {
					r := requestTo(fmt.Sprintf("%s://%d.example/", c.scheme, i))
					r.Timeout = time.Millisecond
					started := time.Now()
					o := s.Send(t.Context(), r)
					require.Equal(t, Retry, o.Verdict)
					require.False(t, o.Sent)
					require.Equal(t, time.Millisecond, time.Since(started))
					synctest.Wait()
					require.Zero(t, dialing.Load())
					require.Zero(t, open.Load())
				}
				s.Close()
			})
		})
	}
}

type closeCounted struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (c *closeCounted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// A handshake that is not answered ends before its request.
func TestAHandshakeThatIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return client, nil
		}
		s, err := New(Config{URLRules: everyone, Dial: dial}, zap.NewNop(), prometheus.NewRegistry())
		require.NoError(t, err)
		started := time.Now()
		o := s.Send(t.Context(), requestTo("https://shop.example/"))
		require.Equal(t, Outcome{Verdict: Retry, Failure: "timeout", Reason: "https://shop.example did not accept a connection in time"}, o)
		require.Equal(t, handshakeTimeout, time.Since(started))
		s.Close()
	})
}

// The whole way: the secrets file, the signature on the wire, and the receiver's verification.
func TestTheReceiverVerifiesTheSignature(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets.yaml")
	bodies := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("webhook-id") != r.Header.Get("Idempotency-Key") {
			bodies <- io.ErrUnexpectedEOF
			return
		}
		bodies <- verify(t, newSecret, r, body)
	}))
	defer server.Close()
	require.NoError(t, os.WriteFile(file, []byte("- origin: "+server.URL+"\n  secrets: ["+newSecret+", "+oldSecret+"]\n"), 0o600))
	s := newTestSender(t, Config{URLRules: everyone, Secrets: file})
	for _, body := range [][]byte{nil, []byte(`{"a":1}`), {0, 255, 10, 13}} {
		r := requestTo(server.URL)
		r.Body = body
		require.Equal(t, Delivered, s.Send(t.Context(), r).Verdict)
		require.NoError(t, <-bodies)
	}
}

// A 429 with Retry-After puts the task off for as long as it says, where that is longer.
func TestRetryAfterOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := serveMemory(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Retry-After", time.Now().Add(90*time.Second).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusTooManyRequests)
		})
		defer stop()
		o := s.Send(t.Context(), requestTo("http://shop.example/"))
		require.Equal(t, Retry, o.Verdict)
		require.Equal(t, 90*time.Second, o.Pause(schemas.Backoff{First: 5 * time.Second}.Pause(1)))
		require.Equal(t, 10*time.Minute, o.Pause(10*time.Minute))
	})
}

// TestTimeOfSignaturesIsTheConfigured: receivers compare it with their own clocks, and this machine's may be wrong.
func TestTimeOfSignaturesIsTheConfigured(t *testing.T) {
	stamps := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stamps <- r.Header.Get(headerTimestamp)
		w.Header().Set("Retry-After", time.Now().Add(2*time.Hour+time.Minute).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer receiver.Close()
	secrets := filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(secrets, []byte("- origin: "+receiver.URL+"\n  secrets: ["+newSecret+"]\n"), 0o600))
	clock := time.Now().Add(2 * time.Hour)
	s := newTestSender(t, Config{URLRules: everyone, Secrets: secrets, Now: func() time.Time { return clock }})
	r := requestTo(receiver.URL)
	o := s.Send(t.Context(), r)
	require.Equal(t, strconv.FormatInt(clock.Unix(), 10), <-stamps)
	require.Equal(t, Retry, o.Verdict)
	require.InDelta(t, time.Minute, o.After, float64(2*time.Second), "dates in answers count from it too")
}
