package command

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/test/testcert"
)

// volume is a mounted Secret of Kubernetes: each file is a link into a folder, which another link names.
type volume struct {
	t        *testing.T
	dir      string
	versions int
}

// put replaces all files at once. Their sizes and times are always the same.
func (v *volume) put(files map[string]string) {
	v.versions++
	folder := fmt.Sprint("..", v.versions)
	require.NoError(v.t, os.Mkdir(filepath.Join(v.dir, folder), 0o700))
	for name, text := range files {
		path := filepath.Join(v.dir, folder, name)
		require.NoError(v.t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(v.t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
		if v.versions == 1 {
			require.NoError(v.t, os.Symlink(filepath.Join("..data", name), v.file(name)))
		}
	}
	require.NoError(v.t, os.Symlink(folder, v.file("..tmp")))
	require.NoError(v.t, os.Rename(v.file("..tmp"), v.file("..data")))
}

func (v *volume) file(name string) string { return filepath.Join(v.dir, name) }

// told returns everything that was logged, and how often.
func told(logs *observer.ObservedLogs) (text string, n int) {
	for _, e := range logs.All() {
		text += fmt.Sprint(e.Message, e.ContextMap(), "\n")
	}
	return text, logs.Len()
}

// look passes the time in which files are looked at once.
func look() { time.Sleep(time.Second) }

func TestSecretsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &volume{t: t, dir: t.TempDir()}
		secrets := func(n int) map[string]string {
			return map[string]string{
				"user": fmt.Sprint("user", n), "password": fmt.Sprint("geheim-k", n), "dsn": fmt.Sprintf("user%d:geheim-d%d@tcp(h:1)/d", n, n),
				"db": fmt.Sprint("geheim-m", n), "redis": fmt.Sprint("geheim-r", n), "sentinel": fmt.Sprint("geheim-s", n),
			}
		}
		v.put(secrets(1))
		load := func(environ ...string) *config.Config {
			cfg, err := config.Load(config.Sources{Environ: environ})
			require.NoError(t, err)
			return cfg
		}
		cfg := load("NOTYET_KAFKA_SASL_MECHANISM=PLAIN", "NOTYET_KAFKA_SASL_USER_FILE="+v.file("user"), "NOTYET_KAFKA_SASL_PASSWORD_FILE="+v.file("password"),
			"NOTYET_MYSQL_DSN_FILE="+v.file("dsn"), "NOTYET_REDIS_USER=user", "NOTYET_REDIS_PASSWORD_FILE="+v.file("redis"),
			"NOTYET_REDIS_MASTER=m", "NOTYET_REDIS_SENTINEL_PASSWORD_FILE="+v.file("sentinel"))
		core, logs := observer.New(zapcore.DebugLevel)
		kafka, err := KafkaConfig(cfg, zap.New(core))
		require.NoError(t, err)
		database, err := StoreConfig(cfg, zap.New(core))
		require.NoError(t, err)
		alone, err := StoreConfig(load("NOTYET_MYSQL_DSN=user@tcp(h:1)/d", "NOTYET_MYSQL_PASSWORD_FILE="+v.file("db")), zap.New(core))
		require.NoError(t, err)
		redis, err := IndexConfig(cfg, zap.New(core))
		require.NoError(t, err)
		expect := func(n int) {
			t.Helper()
			for want, credentials := range map[string]func() (string, string){
				fmt.Sprintf("user%d geheim-k%d", n, n): kafka.Credentials, fmt.Sprintf("user%d geheim-d%d", n, n): database.Credentials,
				fmt.Sprint("user geheim-m", n): alone.Credentials, fmt.Sprint("user geheim-r", n): redis.Credentials, fmt.Sprint(" geheim-s", n): redis.SentinelCredentials,
			} {
				user, password := credentials()
				require.Equal(t, want, user+" "+password)
			}
		}
		expect(1)
		v.put(secrets(2))
		look()
		expect(2)
		require.Zero(t, logs.Len())

		half := map[string]string{"user": "user3"} // the others are missing
		for _, name := range []string{"dsn", "redis", "sentinel", "password", "db"} {
			half[name] = ""
		}
		v.put(half)
		look()
		expect(2)
		text, n := told(logs)
		require.Equal(t, 5, n, text)
		look()
		expect(2)
		require.Equal(t, 5, logs.Len(), "a failure is told once")
		v.put(secrets(3))
		look()
		expect(3)

		other := secrets(3)
		other["dsn"] = "user4:geheim-d4@tcp(other:1)/d"
		v.put(other)
		look()
		expect(3)
		text, n = told(logs)
		require.Equal(t, 6, n)
		require.Contains(t, text, "restart notyet")
		require.NotContains(t, text, "geheim")
	})
}

// A token in a file, a client's secret, and the three parts of temporary credentials are read again too.
func TestTokensAreReadAgain(t *testing.T) {
	var asked atomic.Value
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		asked.Store(id + " " + secret)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"from the endpoint"}`)
	}))
	t.Cleanup(endpoint.Close)
	v := &volume{t: t, dir: t.TempDir()}
	put := func(n int) {
		v.put(map[string]string{"token": fmt.Sprint("token", n), "user": fmt.Sprint("user", n), "password": fmt.Sprint("geheim", n), "session": fmt.Sprint("session", n)})
	}
	put(1)
	configured := func(environ ...string) kafka.Config {
		cfg, err := config.Load(config.Sources{Environ: environ})
		require.NoError(t, err)
		out, err := KafkaConfig(cfg, zap.NewNop())
		require.NoError(t, err)
		return out
	}
	pair := []string{"NOTYET_KAFKA_SASL_USER_FILE=" + v.file("user"), "NOTYET_KAFKA_SASL_PASSWORD_FILE=" + v.file("password")}
	file := configured("NOTYET_KAFKA_SASL_MECHANISM=OAUTHBEARER", "NOTYET_KAFKA_SASL_TOKEN_FILE="+v.file("token"))
	client := configured(append(pair, "NOTYET_KAFKA_SASL_MECHANISM=OAUTHBEARER", "NOTYET_KAFKA_SASL_TOKEN_URL="+endpoint.URL)...)
	aws := configured(append(pair, "NOTYET_KAFKA_SASL_MECHANISM=AWS_MSK_IAM", "NOTYET_KAFKA_SASL_SESSION_TOKEN_FILE="+v.file("session"))...)
	all := func() string {
		first, err := file.Token(t.Context())
		require.NoError(t, err)
		second, err := client.Token(t.Context())
		require.NoError(t, err)
		key, secret, session := aws.AWS()
		return strings.Join([]string{first, second, asked.Load().(string), key, secret, session}, " ")
	}
	require.Equal(t, "token1 from the endpoint user1 geheim1 user1 geheim1 session1", all())
	put(2)
	require.Eventually(t, func() bool {
		return all() == "token2 from the endpoint user2 geheim2 user2 geheim2 session2"
	}, time.Minute, 50*time.Millisecond)
}

func TestNoCredentialsWithoutSettings(t *testing.T) {
	cfg := config.Default()
	kafka, err := KafkaConfig(&cfg, zap.NewNop())
	require.NoError(t, err)
	redis, err := IndexConfig(&cfg, zap.NewNop())
	require.NoError(t, err)
	database, err := StoreConfig(&cfg, zap.NewNop())
	require.NoError(t, err)
	require.True(t, kafka.Credentials == nil && kafka.Token == nil && kafka.AWS == nil && kafka.TLS == nil && redis.Credentials == nil && redis.SentinelCredentials == nil && redis.TLS == nil && database.Credentials == nil && database.TLS == nil)
}

// A server takes new certificates, of a new authority: connections go on, and new ones succeed once the files have changed too.
func TestCertificatesAreReadAgain(t *testing.T) {
	first, second, expired := testcert.New(t), testcert.New(t), testcert.Expired(t)
	var now atomic.Pointer[tls.Config]
	now.Store(first.Server(t))
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now.Load(), nil }})
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // echoes
				defer conn.Close()
				b := make([]byte, 1)
				for {
					if _, err := conn.Read(b); err != nil {
						return
					}
					if _, err := conn.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	v := &volume{t: t, dir: t.TempDir()}
	put := func(of testcert.Files) {
		files := map[string]string{}
		for name, path := range map[string]string{"ca": of.CA, "cert": of.ClientCert, "key": of.ClientKey} {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			files[name] = string(text)
		}
		v.put(files)
	}
	put(first)
	core, logs := observer.New(zapcore.DebugLevel)
	configs, err := TLSConfig("kafka.tls", config.TLS{Enabled: true, CA: v.file("ca"), Cert: v.file("cert"), Key: v.file("key")}, zap.New(core))
	require.NoError(t, err)
	echo := func(conn net.Conn) error {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	dial := func() error {
		conn, err := tls.Dial("tcp", listener.Addr().String(), configs())
		if err != nil {
			return err
		}
		defer conn.Close()
		return echo(conn)
	}
	living, err := tls.Dial("tcp", listener.Addr().String(), configs())
	require.NoError(t, err)
	defer living.Close()
	require.NoError(t, echo(living))

	now.Store(second.Server(t))
	require.ErrorContains(t, dial(), "unknown authority")
	put(second)
	require.Eventually(t, func() bool { return dial() == nil }, time.Minute, 50*time.Millisecond)
	require.NoError(t, echo(living), "open connections go on")
	require.Zero(t, logs.Len())

	v.put(map[string]string{"ca": "", "cert": "", "key": ""})
	require.Eventually(t, func() bool { return dial() == nil && logs.Len() == 1 }, time.Minute, 50*time.Millisecond, "half of a change is left alone")
	text, _ := told(logs)
	require.NotContains(t, text, "PRIVATE")
	now.Store(expired.Server(t))
	put(expired)
	require.Eventually(t, func() bool {
		err := dial()
		return err != nil && logs.Len() == 1 && strings.Contains(err.Error(), "expired")
	}, time.Minute, 50*time.Millisecond)
}
