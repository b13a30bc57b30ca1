package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/test/mysqltest"
	"github.com/notyet/notyet/test/oidctest"
	"github.com/notyet/notyet/test/program"
	"github.com/notyet/notyet/test/recordtest"
	"github.com/notyet/notyet/test/testcert"
	"github.com/notyet/notyet/test/tracingtest"
)

// geheim begins each marker; the rest of a marker is the key of its setting. privat begins what is in a task's value and headers.
const geheim, privat = "geheim.", "privat."

// requireNoSecret also finds markers inside text in base64.
func requireNoSecret(t *testing.T, text string, from ...any) {
	t.Helper()
	requireWithout(t, geheim, text, from)
}

// requireNothingPrivate is for what shows no content of tasks.
func requireNothingPrivate(t *testing.T, text string, from ...any) {
	t.Helper()
	requireWithout(t, geheim, text, from)
	requireWithout(t, privat, text, from)
}

func requireWithout(t *testing.T, marker, text string, from []any) {
	t.Helper()
	in64 := func(before string) string { // the part that does not depend on what surrounds the marker
		return base64.RawStdEncoding.EncodeToString([]byte(before + marker))[(len(before)*8+5)/6:][:8]
	}
	for _, form := range []string{marker, in64(""), in64("."), in64("..")} {
		if i := strings.Index(text, form); i >= 0 {
			require.Fail(t, "a secret is shown", "%v: …%s…", from, text[max(i-200, 0):min(i+80, len(text))])
		}
	}
}

// addresses are where the settings of a test lead.
type addresses struct{ kafka, database, redis, zookeeper, issuer, origin string }

// plants sets every secret that there is, except some, to a marker of its own: itself, or in its file.
type plants struct {
	at      addresses
	inFiles bool
	several bool     // databases, in place of one
	without []string // keys that exclude others, or that a server of the test cannot be asked to use
	pair    testcert.Files
}

// oneDatabase are the secrets of an installation with one.
var oneDatabase = map[string]bool{"mysql.dsn": true, "mysql.dsn-file": true, "mysql.password-file": true, "migrate.dsn": true, "migrate.dsn-file": true}

// environ returns the settings as variables. It notes which secrets are planted.
func (p plants) environ(t *testing.T, planted map[string]bool) []string {
	t.Helper()
	values, files := config.Secrets()
	var out []string
	plant := func(key, value string) {
		if p.several && oneDatabase[key] || !p.several && key == "mysql.shards" {
			return
		}
		if !slices.Contains(p.without, key) {
			out = append(out, config.EnvName(key)+"="+value)
			planted[key] = true
		}
	}
	for _, key := range values {
		if !p.inFiles || !slices.Contains(files, key+"-file") {
			plant(key, p.marked(key))
		}
	}
	for _, key := range files {
		if value := strings.TrimSuffix(key, "-file"); p.inFiles || !slices.Contains(values, value) {
			plant(key, fileWith(t, strings.ReplaceAll(key, ".", "-"), p.marked(value)+"\n"))
		}
	}
	return out
}

// marked returns the marker of a key, in the form that the key needs.
func (p plants) marked(key string) string {
	marker := geheim + key
	switch {
	case key == "mysql.shards":
		return "u:" + marker + "@tcp(" + p.at.database + ")/d,u:" + marker + "@tcp(" + p.at.database + ")/e"
	case strings.HasSuffix(key, ".dsn"):
		return "u:" + marker + "@tcp(" + p.at.database + ")/d"
	case key == "zookeeper.auth":
		return "u:" + marker
	case key == "callback.secrets":
		return "# " + marker + "\n- {origin: '" + p.at.origin + "', secrets: [whsec_" + base64.StdEncoding.EncodeToString([]byte(marker)) + "]}"
	case key == "http.tokens":
		sum := sha256.Sum256([]byte(geheim + "http.token"))
		return "# " + marker + "\n- {name: ops, sha256: " + hex.EncodeToString(sum[:]) + ", role: admin, topics: ['*']}\n- {group: root, role: admin, topics: ['*']}"
	case strings.HasSuffix(key, ".tls.key"):
		pem, _ := os.ReadFile(p.pair.ClientKey)
		return marker + "\n" + string(pem)
	}
	return marker
}

// settings are what the secrets need beside them.
func (p plants) settings(t *testing.T) []string {
	return []string{
		"NOTYET_KAFKA_BROKERS=" + p.at.kafka, "NOTYET_REDIS_ADDRS=" + p.at.redis, "NOTYET_ZOOKEEPER_SERVERS=" + p.at.zookeeper, "NOTYET_LOG_LEVEL=debug",
		"NOTYET_HTTP_JWT_ISSUER=" + p.at.issuer, "NOTYET_HTTP_SIGN_IN_CLIENT_ID=console", "NOTYET_SENDLOG_DIR=" + t.TempDir(), "NOTYET_CALLBACK_ENABLED=true",
	}
}

func tlsSettings(pair testcert.Files, sections ...string) (out []string) {
	for _, section := range sections {
		out = append(out, config.EnvName(section+".tls.enabled")+"=true", config.EnvName(section+".tls.ca")+"="+pair.CA, config.EnvName(section+".tls.cert")+"="+pair.ClientCert)
	}
	return out
}

// A marker in every secret is nowhere in what commands print and services log, whatever is wrong with the settings and the servers.
func TestNoSecretIsShown(t *testing.T) {
	pair, stranger := testcert.New(t), testcert.New(t)
	nobody := "127.0.0.1:1"
	away := addresses{nobody, nobody, nobody, nobody, "http://" + nobody, "https://shop.example"}
	other := away
	other.kafka, other.redis = refusingKafka(t), refusingRedis(t)
	other.issuer = refusingIssuer(t)
	if parsed, err := mysql.ParseDSN(os.Getenv("NOTYET_MYSQL_DSN")); err == nil && parsed.Net == "tcp" {
		other.database = parsed.Addr
	}
	strange := away
	strange.kafka = speaksTLS(t, stranger)
	strange.database, strange.redis, strange.zookeeper = strange.kafka, strange.kafka, strange.kafka
	clients := []string{"kafka", "mysql", "redis", "zookeeper"}
	keys := []string{"kafka.tls.key", "mysql.tls.key", "redis.tls.key", "zookeeper.tls.key"}
	const user, mechanism = "NOTYET_KAFKA_SASL_USER=u", "NOTYET_KAFKA_SASL_MECHANISM="
	session := []string{"kafka.sasl.session-token", "kafka.sasl.session-token-file"}
	token, password := "kafka.sasl.token-file", "mysql.password-file"
	planted := map[string]bool{}
	var all sync.WaitGroup // most commands wait for servers
	defer all.Wait()
	for name, c := range map[string]struct {
		plants
		more []string
	}{
		"away":              {plants{at: away, without: append(keys, append(session, token, password)...)}, []string{user, mechanism + "PLAIN", "NOTYET_REDIS_MASTER=m"}},
		"away, in files":    {plants{at: away, inFiles: true, without: append(keys, token, password)}, []string{user, mechanism + "AWS_MSK_IAM", "NOTYET_REDIS_MASTER=m"}},
		"several databases": {plants{at: away, several: true, without: append(keys, append(session, token)...)}, []string{user, mechanism + "PLAIN", "NOTYET_REDIS_MASTER=m"}},
		"refused":           {plants{at: other, without: append(keys, append(session, token, password, "redis.sentinel-password")...)}, []string{user, mechanism + "SCRAM-SHA-256"}},
		"refused, in files": {plants{at: other, inFiles: true, without: append(keys, append(session, token, password, "redis.sentinel-password-file")...)},
			[]string{user, mechanism + "OAUTHBEARER", "NOTYET_KAFKA_SASL_TOKEN_URL=" + other.issuer + "/token"}},
		"refused, others": {plants{at: other, without: append(keys, append(session, "kafka.sasl.password", "mysql.dsn", "redis.sentinel-password")...)},
			[]string{mechanism + "OAUTHBEARER", "NOTYET_MYSQL_DSN=u@tcp(" + other.database + ")/d"}},
		"wrong certificates": {plants{at: strange, without: []string{token, password}}, append(tlsSettings(pair, clients...), user, mechanism+"AWS_MSK_IAM", "NOTYET_REDIS_MASTER=m")},
	} {
		c.pair = pair
		environ := slices.Concat(c.settings(t), []string{"NOTYET_HTTP_ADDR=127.0.0.1:0", "NOTYET_HTTP_PUBLIC_URL=https://notyet.example", "NOTYET_HTTP_TLS_ENABLED=true", "NOTYET_HTTP_TLS_CERT=" + pair.ClientCert, "NOTYET_HTTP_TLS_CA=" + pair.CA},
			c.environ(t, planted), c.more)
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				r := notyet(t, environ, "", "config", "check")
				require.Equal(t, command.ExitDone, r.code, r.stderr)
				for _, args := range []string{
					"config print", "config print --json", "config check --json", "doctor --patience 500ms", "doctor --json --patience 500ms", "migrate", "migrate --json", "scanner", "dispatcher", "all",
					"cluster --json", "list --json", "list", "audit export", "deadletter list --json", "schedule -t orders --delay 1h --value x --json",
				} {
					if c.several && slices.Contains([]string{"scanner", "dispatcher", "all"}, args) {
						continue // they wait for their databases
					}
					r := notyet(t, environ, "", strings.Fields(args)...)
					requireNoSecret(t, r.stdout+r.stderr, args)
					require.NotEmpty(t, r.stdout+r.stderr, args)
				}
				marker := geheim + "wrong"
				for _, bad := range []string{"kafka.brokers=u:" + marker + "@h", "slots=" + marker + "@x", "mysql.dsn=u:" + marker + "(h)/d", "redis.addrs=redis://h?password=" + marker, marker, "redis.password-file=" + marker} {
					for _, args := range []string{"config print", "config print --json", "config check", "config check --json", "doctor --json", "scanner", "list --json"} {
						if c.several && args == "scanner" {
							continue
						}
						r := notyet(t, environ, "", append(strings.Fields(args), "--set", bad)...)
						requireNoSecret(t, r.stdout+r.stderr, args, bad)
					}
				}
			})
		})
	}
	values, files := config.Secrets()
	for _, key := range append(values, files...) {
		require.True(t, planted[key], "%s: no case above plants a marker in it", key)
	}
}

// Mistakes in the files of secrets do not show what is in them.
func TestMistakesInFilesOfSecretsShowNothing(t *testing.T) {
	_, files := config.Secrets()
	for _, key := range files {
		section, isKey := strings.CutSuffix(key, ".key")
		args := []string{"config", "check", "--set", key + "=" + fileWith(t, "secret", "- {name: "+geheim+", secrets: [whsec_"+geheim+"!]}\n"+geheim+"\n")}
		switch {
		case isKey:
			args = append(args, "--set", section+".enabled=true", "--set", section+".cert="+testcert.New(t).ClientCert)
		case key == "callback.secrets":
			args = append(args, "--set", "callback.enabled=true")
		}
		r := notyet(t, servers, "", args...)
		require.Equal(t, command.ExitUsage, r.code, key)
		require.Contains(t, r.stderr, key, "the file was read")
		requireNoSecret(t, r.stderr, key)
	}
}

func refusingKafka(t *testing.T) string {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "other"), kfake.Superuser("PLAIN", "u", "other"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

// Brokers that refuse a sign-in have answered: the command says what they refuse, and by which settings.
func TestARefusedSignIn(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "other"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) { // as a real broker does
		c.KeepControl()
		answer := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return answer, nil, true
	})
	r := notyet(t, []string{"NOTYET_KAFKA_BROKERS=" + c.ListenAddrs()[0], "NOTYET_KAFKA_SASL_MECHANISM=SCRAM-SHA-256", "NOTYET_KAFKA_SASL_USER=u", "NOTYET_KAFKA_SASL_PASSWORD=wrong"},
		"", "watch", "-n", "1")
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.stderr, "kafka at "+c.ListenAddrs()[0]+": sign-in refused (see kafka.sasl)")
	require.NotContains(t, r.stderr, "no answer")
}

func refusingRedis(t *testing.T) string {
	m := miniredis.RunT(t)
	m.RequireAuth("other")
	return m.Addr()
}

// refusingIssuer repeats what it was asked: whoever shows its answers shows the secret.
func refusingIssuer(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		http.Error(w, `{"error":"invalid_client","error_description":"not `+r.Header.Get("Authorization")+" "+string(body)+`"}`, http.StatusUnauthorized)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// speaksTLS has a certificate that nobody expects.
func speaksTLS(t *testing.T, pair testcert.Files) string {
	l, err := tls.Listen("tcp", "127.0.0.1:0", pair.Server(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond)) // a client of MySQL waits for a greeting
				_ = c.(*tls.Conn).Handshake()
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// secretive is a whole installation whose servers accept the markers, until they do not.
type secretive struct {
	t         *testing.T
	environ   []string
	flags     []string // of the service: these settings are flags
	public    string
	browser   *http.Client
	kafka     *kfake.Cluster
	redis     *miniredis.Miniredis
	stopMySQL func()
	traces    *tracingtest.Receiver
	origin    string
	signed    atomic.Int64 // callbacks that were signed
}

func newSecretive(t *testing.T) *secretive {
	s := &secretive{t: t, traces: tracingtest.NewReceiver(t), redis: miniredis.RunT(t), stopMySQL: func() {}}
	pair := testcert.New(t)
	p := oidctest.New(t)
	addr := program.FreeAddr(t)
	s.public = "https://" + addr
	p.Client("console", geheim+"http.sign-in.client-secret", s.public+access.CallbackPath)
	p.SetGroups(oidctest.Operator, "root")
	var err error
	s.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", geheim+"kafka.sasl.password"), kfake.AllowAutoTopicCreation(),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	require.NoError(t, err)
	t.Cleanup(func() { s.kafka.Close() })
	s.redis.RequireAuth(geheim + "redis.password")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Webhook-Signature") != "" {
			s.signed.Add(1)
		}
		if r.URL.Path != "/ok" {
			http.Error(w, "not for you", http.StatusForbidden)
		}
	}))
	t.Cleanup(web.Close)
	s.origin = web.URL
	plants := plants{at: addresses{s.kafka.ListenAddrs()[0], "", s.redis.Addr(), ensemble(t), p.URL, web.URL}, pair: pair,
		without: []string{"kafka.tls.key", "mysql.tls.key", "redis.tls.key", "zookeeper.tls.key", "kafka.sasl.session-token", "kafka.sasl.session-token-file", "kafka.sasl.token-file",
			"mysql.dsn", "mysql.password-file", "migrate.dsn", "redis.sentinel-password"}}
	dsn := s.database()
	s.environ = slices.Concat(plants.settings(t), plants.environ(t, map[string]bool{}), tlsSettings(pair, "http"), []string{
		"NOTYET_KAFKA_SASL_MECHANISM=SCRAM-SHA-256", "NOTYET_KAFKA_SASL_USER=u", "NOTYET_HTTP_ADDR=" + addr, "NOTYET_HTTP_PUBLIC_URL=" + s.public, "NOTYET_MYSQL_DSN=" + dsn, "NOTYET_MIGRATE_DSN=" + dsn,
		"NOTYET_HTTP_ACCESS_LOG=true", "NOTYET_HTTP_PPROF=true", "NOTYET_CALLBACK_ALLOW_HTTP=true", "NOTYET_CALLBACK_ALLOWED_NETWORKS=127.0.0.0/8", "NOTYET_DISPATCHER_DRAIN_TIMEOUT=1s", "NOTYET_STOP_TIMEOUT=5s",
	})
	for i, pair := range s.environ {
		s.environ[i] = strings.Replace(pair, "HTTP_TLS_CERT="+plants.pair.ClientCert, "HTTP_TLS_CERT="+plants.pair.ServerCert, 1)
	}
	s.serverKey(plants.pair)
	s.flags = []string{"--mysql-dsn", dsn, "--http-token", geheim + "http.token", "--set", "redis.password=" + geheim + "redis.password"}
	pem, err := os.ReadFile(pair.CA)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	s.browser = &http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}}}
	return s
}

// serverKey puts the server's private key behind the marker.
func (s *secretive) serverKey(pair testcert.Files) {
	for _, set := range s.environ {
		if file, ok := strings.CutPrefix(set, "NOTYET_HTTP_TLS_KEY="); ok {
			key, err := os.ReadFile(pair.ServerKey)
			require.NoError(s.t, err)
			require.NoError(s.t, os.WriteFile(file, append([]byte(geheim+"http.tls.key\n"), key...), 0o600))
		}
	}
}

// database is a real one with a password, if there is a server, otherwise SQLite.
func (s *secretive) database() string {
	if os.Getenv("NOTYET_MYSQL_DSN") == "" {
		return "sqlite:" + filepath.Join(s.t.TempDir(), "notyet.db")
	}
	cfg, err := mysql.ParseDSN(mysqltest.Fresh(s.t))
	require.NoError(s.t, err)
	user, stop := mysqltest.User(s.t, cfg.DBName, geheim+"mysql.dsn")
	cfg.User, cfg.Passwd, s.stopMySQL = user, geheim+"mysql.dsn", stop
	return cfg.FormatDSN()
}

// get returns what the service answers to its operator.
func (s *secretive) get(path, token string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.public+path, nil)
	require.NoError(s.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.browser.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, text, path)
	return fmt.Sprint(resp.StatusCode, resp.Header, string(text))
}

var (
	hrefs = regexp.MustCompile(`href="(/[^"#]*)"`)
	paths = regexp.MustCompile(`"(/api/v1/[a-z/-]*)": ?\{\s*"get"`)
)

// requireSilence reads all pages of console and API, and what the service says of itself.
func (s *secretive) requireSilence() {
	s.t.Helper()
	token := geheim + "http.token"
	seen, next := map[string]bool{}, []string{"/"}
	for ; len(next) > 0 && len(seen) < 60; next = next[1:] {
		path := strings.ReplaceAll(next[0], "&amp;", "&")
		if seen[path] || strings.HasPrefix(path, "/sign-") || strings.HasPrefix(path, "/console/") {
			continue
		}
		seen[path] = true
		text := s.get(path, "")
		requireNoSecret(s.t, text, path)
		if !strings.HasPrefix(path, "/deadletter?") && !strings.HasPrefix(path, "/task?") {
			requireNothingPrivate(s.t, text, path)
		}
		for _, link := range hrefs.FindAllStringSubmatch(text, -1) {
			next = append(next, link[1])
		}
	}
	require.Greater(s.t, len(seen), 6, "the console has pages: %v", seen)
	found := paths.FindAllStringSubmatch(s.get("/openapi.json", token), -1)
	require.Greater(s.t, len(found), 3, "the API has questions")
	for _, path := range found {
		requireNothingPrivate(s.t, s.get(path[1], token), path[1])
		requireNothingPrivate(s.t, s.get(path[1], geheim+"no-token"), path[1])
	}
	for _, path := range []string{"/metrics", "/readyz", "/healthz", "/openapi.json", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2"} {
		requireNothingPrivate(s.t, s.get(path, token), path)
	}
}

// run runs a command beside the service.
func (s *secretive) run(args ...string) string {
	s.t.Helper()
	r := notyet(s.t, s.environ, "", args...)
	require.Equal(s.t, command.ExitDone, r.code, "%v: %s%s", args, r.stdout, r.stderr)
	return r.stdout + r.stderr
}

// A marker in every secret is nowhere in what a service at work tells anybody, while its servers accept the secrets, and once they refuse them.
func TestNoSecretIsShownByAServiceAtWork(t *testing.T) {
	s := newSecretive(t)
	requireNothingPrivate(t, s.run("migrate"))
	var out, errs program.Output
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, append([]string{"all"}, s.flags...)...) //nolint:noctx // ended by a signal
	cmd.Env = append(s.environ, "HOME=/", asProgram+"=1", "OTEL_EXPORTER_OTLP_ENDPOINT="+s.traces.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization="+geheim+"otlp", "OTEL_BSP_SCHEDULE_DELAY=100")
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool { return strings.Contains(errs.String(), "took slots") }, time.Minute, 10*time.Millisecond, "%s", &errs)

	private := "x-api-key=" + privat + "header"
	requireNothingPrivate(t, s.run("schedule", "--url", s.origin+"/ok", "--id", "ok", "--delay", "10ms", "--value", privat+"value", "-H", private, "--events", "all", "--json"))
	requireNothingPrivate(t, s.run("schedule", "-t", "orders", "--id", "later", "--delay", "1h", "--value", privat+"value", "-H", private, "--json"))
	s.produce("notyet-url", s.origin+"/refuses", "notyet-delay", "10ms", "notyet-max-attempts", "1")
	s.produce("notyet-topic", "orders", "notyet-delay", "soon")
	require.Eventually(t, func() bool {
		return strings.Count(s.run("deadletter", "list", "--json"), `"id"`) >= 2 && s.signed.Load() >= 2
	}, time.Minute, 100*time.Millisecond)

	require.Contains(t, s.get("/sign-in/start", ""), "You are signed in")
	require.Contains(t, s.get("/find", ""), "jwt:"+oidctest.Operator+" (admin)")
	s.requireSilence()
	for _, args := range []string{"list --json", "cluster --json", "cluster", "doctor --json", "doctor", "config print --json", "audit list --json", "audit export", "deadletter list --json", "deadletter list", "timer list --json"} {
		requireNothingPrivate(t, s.run(strings.Fields(args)...), args)
	}
	for _, args := range []string{"get -t orders --id later --json", "deadletter export"} {
		text := s.run(strings.Fields(args)...)
		requireNoSecret(t, text, args)
		require.Contains(t, text, privat, "%s shows what its task has", args)
	}
	s.requireNoSecretInTopics("notyet.results", "notyet.reports")

	before := len(errs.String())
	s.refuse()
	want := []string{"SASL", "WRONGPASS"}
	if os.Getenv("NOTYET_MYSQL_DSN") != "" {
		want = append(want, "Access denied")
	}
	for _, word := range want {
		require.Eventually(t, func() bool { return strings.Contains(errs.String()[before:], word) }, time.Minute, 50*time.Millisecond, word)
	}
	s.requireSilence()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // without servers a stop may fail
	requireNothingPrivate(t, errs.String(), "log")
	requireNothingPrivate(t, out.String(), "access log")
	require.Contains(t, out.String(), "/api/v1/")
	spans, err := json.Marshal(s.traces.Spans())
	require.NoError(t, err)
	require.Contains(t, string(spans), "deliver "+s.origin)
	requireNothingPrivate(t, string(spans), "traces")
}

func (s *secretive) client(opts ...kgo.Opt) *kgo.Client {
	user := func() (string, string) { return "u", geheim + "kafka.sasl.password" }
	c, err := kafka.New(kafka.Config{Brokers: s.kafka.ListenAddrs(), SASL: "SCRAM-SHA-256", Credentials: user}, zap.NewNop(), opts...)
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// produce sends a request with a private value and a private header.
func (s *secretive) produce(headers ...string) {
	headers = append(headers, "traceparent", "00-"+strings.Repeat("a", 32)+"-"+strings.Repeat("b", 16)+"-01", "x-api-key", privat+"header")
	r := &kgo.Record{Topic: "notyet.intake", Value: []byte(privat + "value"), Headers: recordtest.Headers(headers...)}
	require.NoError(s.t, s.client().ProduceSync(s.t.Context(), r).FirstErr())
}

// requireNoSecretInTopics reads topics from their beginning to their end of now.
func (s *secretive) requireNoSecretInTopics(topics ...string) {
	c := s.client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ends, err := kadm.NewClient(c).ListEndOffsets(s.t.Context(), topics...)
	require.NoError(s.t, err)
	var left int64
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	require.Positive(s.t, left, "there are events")
	var all bytes.Buffer
	for left > 0 {
		f := c.PollFetches(s.t.Context())
		require.NoError(s.t, f.Err())
		f.EachRecord(func(r *kgo.Record) {
			left--
			fmt.Fprintf(&all, "%s %s %v", r.Key, r.Value, r.Headers)
		})
	}
	requireNothingPrivate(s.t, all.String(), topics)
}

// refuse makes the servers take other secrets from now on.
func (s *secretive) refuse() {
	_, port, err := net.SplitHostPort(s.kafka.ListenAddrs()[0])
	require.NoError(s.t, err)
	n, err := strconv.Atoi(port)
	require.NoError(s.t, err)
	s.kafka.Close()
	s.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(n), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "other"))
	require.NoError(s.t, err)
	s.redis.RequireAuth("other")
	s.redis.Close()
	require.NoError(s.t, s.redis.Restart())
	s.stopMySQL()
}
