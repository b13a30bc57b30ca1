package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/schemas"
)

// check finds unworkable values. Unreadable keys hold their defaults.
func (l *loader) check(c *Config) {
	l.restricting(c)
	l.addresses("kafka.brokers", c.Kafka.Brokers)
	l.addresses("redis.addrs", c.Redis.Addrs)
	l.addresses("zookeeper.servers", c.ZooKeeper.Servers)
	l.listen("http.addr", c.HTTP.Addr)
	if c.Ops.Addr != "" {
		l.listen("ops.addr", c.Ops.Addr)
	}
	l.http(c.HTTP)
	l.jwt(c.HTTP)
	l.signIn(c.HTTP)
	l.dsns(c)
	l.checkShards(c)
	l.sasl(c.Kafka.SASL)
	l.tls("kafka.tls", c.Kafka.TLS)
	l.tls("redis.tls", c.Redis.TLS)
	l.tls("mysql.tls", c.MySQL.TLS)
	l.tls("zookeeper.tls", c.ZooKeeper.TLS)
	l.zookeeperAuth(c.ZooKeeper.Auth)
	l.election(c)
	l.redis(c.Redis)
	l.topics(c)
	l.metrics(c)
	l.callback(c.Callback)
	l.numbers(c)
	l.durations(c)
	l.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	l.oneOf("log.format", c.Log.Format, "json", "console")
	if r := c.ZooKeeper.Root; !strings.HasPrefix(r, "/") || len(r) < 2 || strings.HasSuffix(r, "/") || strings.Contains(r, "//") {
		l.bad("zookeeper.root", r, "is not a path below /", "write one such as /notyet")
	}
}

// restricting finds closing keys set to nothing, maybe by an empty variable: that must not mean
// all.
func (l *loader) restricting(c *Config) {
	for _, f := range fields {
		v := reflect.ValueOf(c).Elem().FieldByIndex(f.index)
		if f.restricts != "" && c.IsSet(f.key) && !l.unread[f.key] && v.Kind() != reflect.Int && v.Kind() != reflect.Int64 && v.Len() == 0 {
			l.bad(f.key, "", "is empty", f.restricts+", or remove it")
		}
	}
}

func (l *loader) bad(key, value, problem, fix string) {
	if f, _ := find(fields, key); f.secret {
		value = ""
	}
	l.add(Problem{Key: key, Source: l.origin[key].String(), Value: redact(value), Problem: problem, Fix: fix})
}

func (l *loader) addresses(key string, list []string) {
	if len(list) == 0 {
		l.bad(key, "", "is empty", "write host:port")
	}
	for _, a := range list {
		if !address(a) {
			l.bad(key, a, "is not an address", "write host:port, several with commas between them")
		}
	}
}

// address also accepts a host alone: each client knows the usual port.
func address(a string) bool {
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		return a != "" && !strings.ContainsAny(a, " /:@")
	}
	n, err := strconv.Atoi(port)
	return err == nil && n > 0 && n <= 65535 && host != "" && !strings.ContainsAny(host, " /@")
}

func (l *loader) listen(key, addr string) {
	_, port, err := net.SplitHostPort(addr)
	n, portErr := strconv.Atoi(port)
	if err != nil || portErr != nil || n < 0 || n > 65535 {
		l.bad(key, addr, "is not an address to listen on", "write host:port such as 127.0.0.1:8080, or :8080 for all interfaces")
	}
}

func (l *loader) zookeeperAuth(auth string) {
	user, password, _ := strings.Cut(auth, ":")
	if auth != "" && (user == "" || password == "") {
		l.bad("zookeeper.auth", "", "is not a user and a password", "write user:password")
	}
}

func (l *loader) election(c *Config) {
	l.oneOf("election.kind", c.Election.Kind, KindZooKeeper, KindMySQL)
	if c.Election.Kind == KindZooKeeper && c.IsSet("election.session-timeout") {
		l.bad("election.session-timeout", c.Election.SessionTimeout.String(), "does nothing with election.kind zookeeper", "set zookeeper.session-timeout")
	}
	if c.Election.Kind == KindMySQL && c.IsSet("zookeeper.session-timeout") {
		l.bad("zookeeper.session-timeout", c.ZooKeeper.SessionTimeout.String(), "does nothing with election.kind mysql", "set election.session-timeout")
	}
	l.oneOf("index.kind", c.Index.Kind, KindRedis, KindMySQL)
	if c.Index.Kind == KindRedis && c.IsSet("wakes.topic") {
		l.bad("wakes.topic", c.Wakes.Topic, "does nothing with index.kind redis", "remove it, or set index.kind to mysql")
	}
	l.within("election.session-timeout", c.Election.SessionTimeout, time.Second, time.Minute, "write 1s to 1m")
}

func (l *loader) sasl(s SASL) {
	const key = "kafka.sasl."
	l.oneOf(key+"mechanism", s.Mechanism, "", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", oauthBearer, mskIAM)
	bearer := s.Mechanism == oauthBearer
	switch {
	case s.Mechanism == "":
		if s.User != "" || s.Password != "" || s.TokenFile != "" || s.TokenURL != "" || s.SessionToken != "" {
			l.bad(key+"mechanism", "", "is not set though user, password or token is", "write PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM")
		}
	case bearer && (s.TokenFile == "") == (s.TokenURL == ""):
		l.bad(key+"mechanism", s.Mechanism, "needs one of kafka.sasl.token-file and kafka.sasl.token-url", "set one of them")
	case bearer && s.TokenFile != "":
		if s.User != "" || s.Password != "" || len(s.Scopes) > 0 {
			l.bad(key+"token-file", "", "makes kafka.sasl.user, kafka.sasl.password and kafka.sasl.scopes useless", "remove them, or set kafka.sasl.token-url")
		}
	case s.User == "":
		l.bad(key+"user", "", "is not set though kafka.sasl.mechanism is", "set "+EnvName(key+"user"))
	case s.Password == "" && (bearer || s.Mechanism == mskIAM):
		l.bad(key+"password", "", "is not set, and kafka.sasl.mechanism "+s.Mechanism+" needs it", "set "+EnvName(key+"password")+", or "+key+"password-file")
	}
	if !bearer && s.Mechanism != "" && (s.TokenFile != "" || s.TokenURL != "" || len(s.Scopes) > 0) {
		l.bad(key+"mechanism", s.Mechanism, "makes kafka.sasl.token-file, kafka.sasl.token-url and kafka.sasl.scopes useless", "write OAUTHBEARER, or remove them")
	}
	if s.Mechanism != "" && s.Mechanism != mskIAM && s.SessionToken != "" {
		l.bad(key+"session-token", "", "is for kafka.sasl.mechanism AWS_MSK_IAM", "remove it")
	}
	if s.TokenURL != "" && !endpoint(s.TokenURL) {
		l.bad(key+"token-url", s.TokenURL, "is not the address of a token endpoint", "write one such as https://login.example/token; http is for loopback hosts only, as it carries the secret in the clear")
	}
}

// Mechanisms with more than user and password.
const oauthBearer, mskIAM = "OAUTHBEARER", "AWS_MSK_IAM"

func endpoint(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname())
}

func (l *loader) tls(key string, t TLS) {
	if (t.Cert == "") != (t.Key == "") {
		l.bad(key+".cert", t.Cert, "and "+key+".key go together", "set both or none")
	}
	if !t.Enabled && t != (TLS{}) {
		l.bad(key+".enabled", "false", "makes the other settings of "+key+" useless", "write true, or remove them")
	}
}

func (l *loader) http(h HTTP) {
	l.tls("http.tls", TLS(h.TLS))
	for _, host := range h.Hosts {
		if strings.ContainsAny(host, "/ *") {
			l.bad("http.hosts", host, "is not a host name", "write a name such as notyet.example, without scheme, path or pattern")
		}
	}
	if strings.ContainsAny(h.Token, " \t\r\n") {
		l.bad("http.token", "", "has white space in it", "write the token that `notyet token new` printed")
	}
}

func (l *loader) jwt(h HTTP) {
	j := h.JWT
	if j.Issuer == "" {
		if d := Default().HTTP.JWT; j != d {
			l.bad("http.jwt.issuer", "", "is not set, and the other settings of http.jwt do nothing without it", "write the URL of the OpenID provider, or remove them")
		}
		return
	}
	u, err := url.Parse(j.Issuer)
	switch {
	case err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(j.Issuer, "?# "):
		l.bad("http.jwt.issuer", j.Issuer, "is not the URL of an issuer", "write one such as https://login.example.com/realms/main")
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		l.bad("http.jwt.issuer", j.Issuer, "is not https: whoever is between could make tokens", "write an https URL; http is for loopback addresses")
	}
	for key, value := range map[string]string{"audience": j.Audience, "groups-claim": j.GroupsClaim, "name-claim": j.NameClaim} {
		if value == "" && (key != "audience" || h.SignIn.ClientID == "") {
			l.bad("http.jwt."+key, "", "is empty", "write what the issuer's tokens have")
		}
	}
	l.within("http.jwt.keys-max-age", j.KeysMaxAge, 5*time.Minute, 7*24*time.Hour, "write 5m to 168h")
	if h.Tokens == "" {
		l.bad("http.tokens", "", "is not set, and it says what the groups of http.jwt may do", "name a YAML file with entries {topics, group, role}")
	}
}

func (l *loader) signIn(h HTTP) {
	const key = "http.sign-in."
	s := h.SignIn
	if h.PublicURL != "" && !site(h.PublicURL) {
		l.bad("http.public-url", h.PublicURL, "is not the address of a site", "write one such as https://notyet.example, without a path; http is for loopback addresses")
	}
	if s.ClientID == "" {
		if s.ClientSecret != "" || len(s.Scopes) > 0 {
			l.bad(key+"client-id", "", "is not set, and the other settings of http.sign-in do nothing without it", "write notyet's name at the issuer, or remove them")
		}
		return
	}
	if h.JWT.Issuer == "" {
		l.bad("http.jwt.issuer", "", "is not set, and http.sign-in needs it", "write the URL of the OpenID provider")
	}
	if s.ClientSecret == "" {
		l.bad(key+"client-secret", "", "is not set though http.sign-in.client-id is", "set "+EnvName(key+"client-secret")+", or "+key+"client-secret-file")
	}
	if h.PublicURL == "" {
		l.bad("http.public-url", "", "is not set, and http.sign-in needs it", "write the address at which browsers reach the console, and allow its /sign-in/callback at the issuer")
	}
	for _, scope := range s.Scopes {
		if strings.ContainsAny(scope, " \t\"\\") {
			l.bad(key+"scopes", scope, "is not a scope", "write a list such as [profile, groups]")
		}
	}
}

// site reports whether a text is the address of a whole site.
func site(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || strings.Contains(text, "?") || strings.Contains(text, "#") || u.Path != "" {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname())
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func (l *loader) redis(r Redis) {
	switch {
	case r.Cluster && r.Master != "":
		l.bad("redis.master", r.Master, "and redis.cluster exclude each other", "remove one")
	case r.Cluster && r.DB != 0:
		l.bad("redis.db", strconv.Itoa(r.DB), "is not 0, and a cluster has only database 0", "remove it")
	case !r.Cluster && r.Master == "" && len(r.Addrs) > 1:
		l.bad("redis.addrs", strings.Join(r.Addrs, ","), "has several addresses", "set redis.cluster or redis.master, or write one address")
	}
	if r.Master == "" && (r.SentinelUser != "" || r.SentinelPassword != "") {
		l.bad("redis.sentinel-user", r.SentinelUser, "or redis.sentinel-password does nothing without sentinels", "set redis.master, or remove both")
	}
	if strings.ContainsAny(r.Prefix, "{} \t\r\n") || r.Prefix == "" {
		l.bad("redis.prefix", r.Prefix, "is empty, or has braces or white space", "write a name such as notyet")
	}
	if r.DB < 0 {
		l.bad("redis.db", strconv.Itoa(r.DB), "is negative", "write 0 or more")
	}
}

func (l *loader) topics(c *Config) {
	if len(c.Intake.Topics) == 0 {
		l.bad("intake.topics", "", "is empty", "name at least one topic")
	}
	all := c.Intake
	l.quotas(Intake{RequestsPerSecond: all.RequestsPerSecond, PendingTasks: all.PendingTasks, PendingBytes: all.PendingBytes, UnknownTargets: all.UnknownTargets, MaxValueBytes: all.MaxValueBytes}, "intake", func(key string) bool { return c.IsSet("intake." + key) })
	if c.IsSet("intake.beyond") {
		l.beyond("intake.beyond", "", all.Beyond, slices.ContainsFunc(c.Intake.Topics, Intake.hasQuota))
	}
	for _, in := range c.Intake.Topics {
		l.topic("intake.topics", in.Topic)
		if in.own["beyond"] {
			l.beyond("intake.topics", in.Topic+", beyond: ", in.Beyond, in.hasQuota())
		}
		l.quotas(in, "intake.topics", func(key string) bool {
			return in.own[key] || key == "pending-bytes" && in.own["max-value-bytes"] && in.PendingBytes != 0
		})
		if len(in.Topic) > schemas.MaxIntakeTopicLen {
			l.bad("intake.topics", in.Topic, "is too long to make ids from", fmt.Sprintf("write at most %d characters", schemas.MaxIntakeTopicLen))
		}
		if !l.target(in, c.OwnTopics()) {
			continue
		}
		limits, _ := c.Limits(in.Topic)
		if err := limits.Validate(); err != nil {
			l.bad("intake", in.Topic, "has limits that cannot work: "+quoting(err, slices.Concat(in.AllowedTargets, in.Aliases)), "see intake.allowed-targets, intake.aliases, intake.max-delay and intake.max-value-bytes")
		}
	}
	l.topic("reports.topic", c.Reports.Topic)
	l.topic("results.topic", c.Results.Topic)
	l.topic("cancels.topic", c.Cancels.Topic)
	l.topic("wakes.topic", c.Wakes.Topic)
	seen := map[string]bool{}
	for _, name := range c.OwnTopics() {
		if seen[name] {
			l.bad("intake.topics", name, "is named twice among intake, reports, results, cancels and wakes", "give each topic a name of its own")
		}
		seen[name] = true
	}
}

func (l *loader) target(in Intake, own []string) (ok bool) {
	const key = "intake.topics"
	switch {
	case in.Target == "":
		return true
	case schemas.IsOrigin(in.Target):
		l.bad(key, in.Target, "is a target that is no topic", "name a topic; for callbacks write allowed-targets: [https://shop.example] instead")
	case slices.Contains(own, in.Target) || strings.HasPrefix(in.Target, "__"):
		l.bad(key, in.Target, "is a target that is an internal topic", "name a topic of your own")
	case !slices.Equal(in.AllowedTargets, []string{in.Target}):
		l.bad(key, in.Target, "is a target beside allowed-targets, which then mean nothing", "remove one of the two")
	case !schemas.ValidTopic(in.Target):
		l.topic(key, in.Target)
	default:
		return true
	}
	return false
}

// quoting returns the error's text, with a quoted value, without credentials.
func quoting(err error, values []string) string {
	text := err.Error()
	for _, v := range values {
		text = strings.ReplaceAll(text, strconv.Quote(v), strconv.Quote(withoutCredentials(v)))
	}
	return text
}

// maxMetricTargets limits the targets with own metrics: each is some 13 series.
const maxMetricTargets = 200

func (l *loader) metrics(c *Config) {
	m := c.Metrics
	switch {
	case m.NeedToken && c.HTTP.Tokens == "":
		l.bad("metrics.need-token", "true", "needs http.tokens", "name the file of tokens, or remove it")
	case m.NeedToken && c.Ops.Addr != "":
		l.bad("metrics.need-token", "true", "does nothing beside ops.addr, which serves the metrics without tokens", "remove one of the two")
	}
	if n := len(m.Targets); n > maxMetricTargets {
		l.bad("metrics.targets", strconv.Itoa(n), "names too many targets", fmt.Sprintf("name at most %d", maxMetricTargets))
		return
	}
	for _, name := range m.Targets {
		if schemas.IsOrigin(name) {
			if origin, rejection := schemas.ParseOrigin([]byte(name)); rejection != nil || origin != name {
				l.bad("metrics.targets", name, "is not the origin of a callback", "write scheme and host, such as https://shop.example")
			}
			continue
		}
		l.topic("metrics.targets", name)
	}
}

func (l *loader) topic(key, name string) {
	if !schemas.ValidTopic(name) {
		l.bad(key, name, "is not a topic name", "write 1 to 249 of a-z A-Z 0-9 . _ -")
	}
}

func (l *loader) numbers(c *Config) {
	within := func(key string, n, low, high int64) {
		if n < low || n > high {
			l.bad(key, strconv.FormatInt(n, 10), "is out of range", fmt.Sprintf("write %d to %d", low, high))
		}
	}
	within("slots", int64(c.Slots), 1, 4096)
	within("http.max-conns", int64(c.HTTP.MaxConns), 10, 1_000_000)
	within("mysql.max-conns", int64(c.MySQL.MaxConns), 2, 10_000)
	within("dispatcher.stage-tasks", int64(c.Dispatcher.StageTasks), 1, 100_000_000)
	within("dispatcher.stage-bytes", int64(c.Dispatcher.StageBytes), 1<<20, 1<<40)
	within("intake.max-value-bytes", int64(c.Intake.MaxValueBytes), 1, schemas.MaxValueBytes)
	within("sendlog.max-bytes", int64(c.SendLog.MaxBytes), 64<<20, 1<<50)
	within("metrics.top-targets", int64(c.Metrics.TopTargets), 1, maxMetricTargets)
	within("migrate.partitions", int64(c.Migrate.Partitions), 1, 10_000)
	within("migrate.replication", int64(c.Migrate.Replication), 0, 100)
}

func (l *loader) durations(c *Config) {
	positive := func(key string, d time.Duration) {
		if d <= 0 {
			l.bad(key, d.String(), "is not positive", "write a duration such as 20s")
		}
	}
	positive("window", c.Window)
	positive("stop-timeout", c.StopTimeout)
	l.within("zookeeper.session-timeout", c.ZooKeeper.SessionTimeout, 10*time.Millisecond, math.MaxInt64, "write 10ms or more; servers grant 2 to 20 of their ticks")
	positive("intake.max-delay", c.Intake.MaxDelay)
	positive("dispatcher.drain-timeout", c.Dispatcher.DrainTimeout)
	positive("dispatcher.retention", c.Dispatcher.Retention)
	if d := c.DeadLetters.Retention; d != 0 {
		l.within("deadletters.retention", d, time.Minute, math.MaxInt64, "write 1m or more, or 0s to keep dead letters forever")
	}
	if d := c.Audit.Retention; d != 0 {
		l.within("audit.retention", d, time.Minute, math.MaxInt64, "write 1m or more, or 0s to keep the audit log forever")
	}
	positive("timers.misfire-after", c.Timers.MisfireAfter)
	positive("sendlog.retention", c.SendLog.Retention)
	positive("migrate.retention", c.Migrate.Retention)
	l.within("dispatcher.look-ahead", c.Dispatcher.LookAhead, 10*time.Millisecond, time.Minute, "write 10ms to 1m")
	l.within("dispatcher.burst-look-ahead", c.Dispatcher.BurstLookAhead, 0, time.Minute, "write 0s to 1m")
	l.within("dispatcher.undeliverable-after", c.Dispatcher.UndeliverableAfter, 0, math.MaxInt64, "write a duration such as 1m, or 0s to try once")
}

func (l *loader) within(key string, d, least, most time.Duration, fix string) {
	if d < least || d > most {
		l.bad(key, d.String(), "is out of range", fix)
	}
}

func (l *loader) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		l.bad(key, value, "is none of its values", "write one of "+strings.TrimPrefix(strings.Join(allowed, ", "), ", "))
	}
}
