package election

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/test/testcert"
	"github.com/notyet/notyet/test/zkfake"
)

// onReal runs a test against a real server: the fake does not enforce rights.
func onReal(t *testing.T) *ensemble {
	servers := os.Getenv("NOTYET_ZOOKEEPER_SERVERS")
	if servers == "" {
		t.Skip("NOTYET_ZOOKEEPER_SERVERS is not set")
	}
	t.Parallel()
	e := &ensemble{t: t, server: strings.Split(servers, ",")[0]}
	e.open()
	// The test's own session looks at everything, and wipes it in the end.
	require.NoError(t, e.admin.AddAuth("digest", []byte("notyet:right")))
	return e
}

func as(auth string) func(*Config) { return func(c *Config) { c.Auth = auth } }

// outsider is a session that is nobody.
func (e *ensemble) outsider() *zk.Conn {
	conn, done, err := zk.Connect([]string{e.server}, time.Minute, zk.WithLogger(clientLog{zap.NewNop()}))
	require.NoError(e.t, err)
	e.t.Cleanup(func() {
		conn.Close()
		for range done {
		}
	})
	return conn
}

func TestZnodesAreClosedToOthers(t *testing.T) {
	e := onReal(t)
	a := e.start("a", as("notyet:right"))
	e.settle(a)
	b := e.start("b", as("notyet:right"))
	e.settle(a, b)

	outsider := e.outsider()
	for _, path := range []string{e.root, e.paths.members, e.paths.assignment, e.paths.members + "/" + e.candidates()[0].name} {
		_, _, err := outsider.Get(path)
		require.ErrorIs(t, err, zk.ErrNoAuth, path)
		_, err = outsider.Set(path, []byte("{}"), -1)
		require.ErrorIs(t, err, zk.ErrNoAuth, path)
	}
	require.ErrorIs(t, outsider.Delete(e.paths.members+"/"+e.candidates()[0].name, -1), zk.ErrNoAuth)
	_, err := outsider.Create(e.paths.members+"/_c_0-m-0000000000", nil, zk.FlagEphemeral, openACL)
	require.ErrorIs(t, err, zk.ErrNoAuth)

	for _, auth := range []string{"", "notyet:wrong", "other:right"} {
		require.ErrorContains(t, e.openByHand("c", as(auth)).join(), "zookeeper.auth", "auth %q", auth)
		_, err := Members(t.Context(), Config{Servers: []string{e.server}, Root: e.root, Auth: auth}, zap.NewNop())
		require.ErrorContains(t, err, "zookeeper.auth", "auth %q", auth)
	}
	ids, err := Members(t.Context(), Config{Servers: []string{e.server}, Root: e.root, Auth: "notyet:right"}, zap.NewNop())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, ids)
}

// An installation that ran without a user is closed by the first member that has one. Paths above
// root may be others'.
func TestOpenZnodesAreClosed(t *testing.T) {
	e := onReal(t)
	before := e.start("a")
	e.settle(before)
	before.leave()
	e.settle(e.start("a", as("notyet:right")))
	for path, want := range map[string]string{e.root: "digest", e.paths.members: "digest", e.paths.assignment: "digest", e.root[:strings.LastIndex(e.root, "/")]: "world"} {
		acl, _, err := e.admin.GetACL(path)
		require.NoError(t, err)
		require.Len(t, acl, 1, path)
		require.Equal(t, want, acl[0].Scheme, path)
	}
}

// startTLS is a listener that speaks TLS and passes on to a server that does not.
func startTLS(t *testing.T, target string, cfg *tls.Config) string {
	listener, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	require.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() { listener.Close(); running.Wait() })
	pass := func(from, to net.Conn) {
		defer from.Close()
		defer to.Close()
		_, _ = io.Copy(to, from)
	}
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			running.Go(func() { pass(client, server) })
			running.Go(func() { pass(server, client) })
		}
	})
	return listener.Addr().String()
}

func TestMembersMeetOverTLS(t *testing.T) {
	e := onFake(t, zkfake.Config{})
	certs := testcert.New(t)
	_, port, err := net.SplitHostPort(startTLS(t, e.server, certs.Server(t)))
	require.NoError(t, err)
	secured := func(c *Config) { c.Servers, c.TLS = []string{"localhost:" + port}, certs.Client(t) }
	a, b := e.start("a", secured), e.start("b", secured)
	e.settle(a, b)
	ids, err := Members(t.Context(), Config{Servers: []string{"localhost:" + port}, Root: e.root, TLS: certs.Client(t)}, zap.NewNop())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, ids)
}

func TestTLSMistakesNameTheSetting(t *testing.T) {
	e := onFake(t, zkfake.Config{})
	certs, others := testcert.New(t), testcert.New(t)
	secured := startTLS(t, e.server, certs.Server(t))
	_, port, _ := net.SplitHostPort(secured)
	wrongName := func() *tls.Config {
		c := certs.Client(t)()
		c.ServerName = "zookeeper.example.com"
		return c
	}
	for name, tt := range map[string]struct {
		server string
		tls    func() *tls.Config
		want   string
	}{
		"another authority":       {"localhost:" + port, others.Client(t), "unknown authority"},
		"another name":            {"localhost:" + port, wrongName, "zookeeper.example.com"},
		"TLS to a plain server":   {e.server, certs.Client(t), "zookeeper.tls"},
		"plain to a server's TLS": {secured, nil, "zookeeper.tls"},
	} {
		t.Run(name, func(t *testing.T) {
			z := e.member("a", func(c *Config) { c.Servers, c.TLS = []string{tt.server}, tt.tls })
			var ending sync.WaitGroup
			joined, err := z.serveTerm(t.Context(), 0, &ending)
			ending.Wait()
			require.False(t, joined)
			require.ErrorContains(t, err, "zookeeper.tls")
			require.ErrorContains(t, err, tt.want)
		})
	}
}
