package index_test

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/test/testcert"
)

// startSecured runs a redis-server of the test's own that speaks TLS only, wants a client's
// certificate, and knows one user.
func startSecured(t *testing.T, certs testcert.Files) (port string) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	require.NoError(t, listener.Close())
	home := t.TempDir()
	settings := strings.Join([]string{
		"bind 127.0.0.1", "port 0", "tls-port " + port, `save ""`, "dir " + home, "tls-auth-clients yes",
		"tls-cert-file " + certs.ServerCert, "tls-key-file " + certs.ServerKey, "tls-ca-cert-file " + certs.CA,
		"user default off", "user notyet on >geheim ~notyet:* ~{notyet:* &notyet:* +@all -@dangerous", "",
	}, "\n")
	require.NoError(t, os.WriteFile(home+"/redis.conf", []byte(settings), 0o600))
	cmd := exec.Command(bin, home+"/redis.conf")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return port
}

func TestRedisOverTLS(t *testing.T) {
	certs := testcert.New(t)
	good := index.Config{Addrs: []string{"localhost:" + startSecured(t, certs)}, Username: "notyet", Password: "geheim", TLS: certs.Client(t)}
	open := func(cfg index.Config) *index.Index {
		x, err := index.New(cfg, zap.NewNop())
		require.NoError(t, err)
		t.Cleanup(x.Close)
		return x
	}
	x := open(good)
	require.Eventually(t, func() bool { return x.Ping(t.Context()) == nil }, time.Minute, 20*time.Millisecond, "it starts")

	stranger, wrongUser, plain := good, good, good
	stranger.TLS = testcert.New(t).Client(t)
	wrongUser.Password = "falsch"
	plain.TLS = nil
	require.ErrorContains(t, open(stranger).Ping(t.Context()), "redis.tls")
	require.ErrorContains(t, open(wrongUser).Ping(t.Context()), "redis.password")
	require.ErrorContains(t, open(plain).Ping(t.Context()), "redis.tls")
}
