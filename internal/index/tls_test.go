package index_test

import (
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/test/freeport"
	"github.com/notyet/notyet/test/testcert"
)

// startSecured runs a redis-server of the test's own that speaks TLS only, wants a client's
// certificate, and knows one user and an administrator.
func startSecured(t *testing.T, certs testcert.Files) (port string) {
	return startRedis(t, []string{
		"port 0", "tls-port PORT", `save ""`, "tls-auth-clients yes",
		"tls-cert-file " + certs.ServerCert, "tls-key-file " + certs.ServerKey, "tls-ca-cert-file " + certs.CA,
		"user default off", "user notyet on >geheim ~notyet:* ~{notyet:* &notyet:* +@all -@dangerous +info", "user admin on >admin ~* &* +@all",
	})
}

// startRedis runs a redis-server with these settings, in which PORT is its port.
func startRedis(t *testing.T, settings []string, args ...string) (port string) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	addr, err := freeport.Addr()
	require.NoError(t, err)
	_, port, _ = net.SplitHostPort(addr)
	home := t.TempDir()
	settings = append([]string{"bind 127.0.0.1", "dir " + home}, settings...)
	for i := range settings {
		settings[i] = strings.ReplaceAll(settings[i], "PORT", port) + "\n"
	}
	require.NoError(t, os.WriteFile(home+"/redis.conf", []byte(strings.Join(settings, "")), 0o600))
	cmd := exec.Command(bin, append([]string{home + "/redis.conf"}, args...)...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return port
}

// as returns credentials that never change.
func as(user, password string) func() (string, string) {
	return func() (string, string) { return user, password }
}

func TestRedisOverTLS(t *testing.T) {
	certs := testcert.New(t)
	good := index.Config{Addrs: []string{"localhost:" + startSecured(t, certs)}, Credentials: as("notyet", "geheim"), TLS: certs.Client(t)}
	open := func(cfg index.Config) *index.Index {
		x, err := index.New(cfg, zap.NewNop())
		require.NoError(t, err)
		t.Cleanup(x.Close)
		return x
	}
	x := open(good)
	require.Eventually(t, func() bool { return x.Ping(t.Context()) == nil }, time.Minute, 20*time.Millisecond, "it starts")

	seen, err := x.Examine(t.Context())
	require.NoError(t, err)
	require.Equal(t, "noeviction", seen.Policy, "the documented rights suffice for doctor, too")

	stranger, wrongUser, plain := good, good, good
	stranger.TLS = testcert.New(t).Client(t)
	wrongUser.Credentials = as("notyet", "falsch")
	plain.TLS = nil
	require.ErrorContains(t, open(stranger).Ping(t.Context()), "redis.tls")
	require.ErrorContains(t, open(wrongUser).Ping(t.Context()), "redis.password")
	require.ErrorContains(t, open(plain).Ping(t.Context()), "redis.tls")
}

// A password changes while the index works: its connections go on, and new ones are made with what is the password by then.
// Certificates likewise.
func TestThePasswordOfRedisChanges(t *testing.T) {
	certs := testcert.New(t)
	port := startSecured(t, certs)
	admin := redis.NewClient(&redis.Options{Addr: "localhost:" + port, Username: "admin", Password: "admin", TLSConfig: certs.Client(t)()})
	t.Cleanup(func() { _ = admin.Close() })
	require.Eventually(t, func() bool { return admin.Ping(t.Context()).Err() == nil }, time.Minute, 20*time.Millisecond, "it starts")
	do := func(words ...any) { t.Helper(); require.NoError(t, admin.Do(t.Context(), words...).Err()) }

	var password atomic.Value
	password.Store("geheim")
	var secure atomic.Value
	secure.Store(certs.Client(t)())
	cfg := index.Config{
		Addrs: []string{"localhost:" + port}, Credentials: func() (string, string) { return "notyet", password.Load().(string) },
		TLS: func() *tls.Config { return secure.Load().(*tls.Config) },
	}
	fresh := func() error {
		x, err := index.New(cfg, zap.NewNop())
		require.NoError(t, err)
		defer x.Close()
		return x.Ping(t.Context())
	}
	x, err := index.New(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(x.Close)
	require.NoError(t, x.Ping(t.Context()))

	do("ACL", "SETUSER", "notyet", "resetpass", ">zweites")
	require.NoError(t, x.Ping(t.Context()), "open connections go on")
	require.ErrorContains(t, fresh(), "redis.password")
	password.Store("zweites")
	require.NoError(t, fresh())
	do("CLIENT", "KILL", "USER", "notyet")
	require.Eventually(t, func() bool { return x.Ping(t.Context()) == nil }, time.Minute, 20*time.Millisecond)

	secure.Store(testcert.New(t).Client(t)())
	require.NoError(t, x.Ping(t.Context()))
	require.ErrorContains(t, fresh(), "redis.tls")
	secure.Store(certs.Client(t)())
	require.NoError(t, fresh())

	do("ACL", "SETUSER", "notyet", "off")
	require.ErrorContains(t, fresh(), "redis.password", "a user who may no longer sign in")
}

// Sentinels have a password of their own, which changes too.
func TestThePasswordOfSentinelsChanges(t *testing.T) {
	master := startRedis(t, []string{"port PORT", `save ""`, "requirepass master"})
	port := startRedis(t, []string{"port PORT", "sentinel monitor m 127.0.0.1 " + master + " 1", "sentinel auth-pass m master",
		"user default off", "user watcher on >geheim ~* &* +@all", "user admin on >admin ~* &* +@all"}, "--sentinel")
	var password atomic.Value
	password.Store("geheim")
	cfg := index.Config{
		Addrs: []string{"127.0.0.1:" + port}, MasterName: "m", Credentials: as("", "master"),
		SentinelCredentials: func() (string, string) { return "watcher", password.Load().(string) },
	}
	fresh := func(cfg index.Config) error {
		x, err := index.New(cfg, zap.NewNop())
		require.NoError(t, err)
		defer x.Close()
		return x.Ping(t.Context())
	}
	require.Eventually(t, func() bool { return fresh(cfg) == nil }, time.Minute, 50*time.Millisecond, "they start")
	x, err := index.New(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(x.Close)
	require.NoError(t, x.Ping(t.Context()))

	wrong := cfg
	wrong.Credentials = as("", "falsch")
	require.ErrorContains(t, fresh(wrong), "redis.password")
	wrong = cfg
	wrong.SentinelCredentials = nil
	require.ErrorContains(t, fresh(wrong), "redis.sentinel-password")

	require.NoError(t, redisDo(t, "127.0.0.1:"+port, "ACL", "SETUSER", "watcher", "resetpass", ">zweites"))
	require.NoError(t, x.Ping(t.Context()), "open connections go on")
	require.ErrorContains(t, fresh(cfg), "redis.sentinel-password")
	password.Store("zweites")
	require.NoError(t, fresh(cfg))
}

// redisDo sends a sentinel a command as its administrator.
func redisDo(t *testing.T, addr string, words ...any) error {
	admin := redis.NewClient(&redis.Options{Addr: addr, Username: "admin", Password: "admin"})
	defer admin.Close()
	return admin.Do(t.Context(), words...).Err()
}
