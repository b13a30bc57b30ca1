// Package config reads the operator's settings: defaults, then a YAML file, then NOTYET_*
// variables, then flags; later ones take precedence. One checked Config comes out, or one error
// with every mistake.
//
// A variable's name follows from the key: http.addr is NOTYET_HTTP_ADDR, dispatcher.look-ahead is
// NOTYET_DISPATCHER_LOOK_AHEAD. In variables and flags, commas separate the elements of a list.
package config

import (
	"time"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/schemas"
)

// Config holds all settings. The tag key of a field is the last part of its key. The tag secret
// marks a secret value ("yes"), or the name of a file with a secret ("in file"). The tag restricts
// belongs to a closing key, never set to nothing, and says what to write. The tag live lets a
// service take a new value over at SIGHUP: any ("yes"), only an existing one ("some"), or another
// number in place of a number ("number").
type Config struct {
	Kafka      Kafka      `key:"kafka"`
	MySQL      MySQL      `key:"mysql"`
	Redis      Redis      `key:"redis"`
	ZooKeeper  ZooKeeper  `key:"zookeeper"`
	Election   Election   `key:"election"`
	Index      Index      `key:"index"`
	HTTP       HTTP       `key:"http"`
	Ops        Ops        `key:"ops"`
	Intake     Intakes    `key:"intake"`
	Reports    Topic      `key:"reports"`
	Results    Topic      `key:"results"`
	Cancels    Topic      `key:"cancels"`
	Wakes      Topic      `key:"wakes"`
	Scanner    Scanner    `key:"scanner"`
	Dispatcher Dispatcher `key:"dispatcher"`
	Timers     Timers     `key:"timers"`
	SendLog    SendLog    `key:"sendlog"`
	Callback   Callback   `key:"callback"`
	// DeadLetters are given up tasks and requests.
	DeadLetters DeadLetters `key:"deadletters"`
	Audit       Audit       `key:"audit"`
	Migrate     Migrate     `key:"migrate"`
	Log         Log         `key:"log"`
	Metrics     Metrics     `key:"metrics"`

	// Slots is the number of slots of an empty database at migrate. Default 64.
	Slots int `key:"slots"`
	// Window is how long before the due time a task is in the Redis index (index.kind redis).
	// Default 2h.
	Window time.Duration `key:"window"`
	// StopTimeout limits the whole stop of a service. The successor does the rest. Default 30s.
	StopTimeout time.Duration `key:"stop-timeout"`

	set    map[string]Origin // where each key was set
	unread map[string]bool   // keys whose values could not be read
}

// IsSet reports whether a key was set in the file, the environment or by a flag.
func (c *Config) IsSet(key string) bool { return c.set[key].Kind != "" }

// Origin returns where a key was set: the file's or the variable's name, or "flag"; "": not set.
func (c *Config) Origin(key string) string { return c.set[key].String() }

// Kafka is how to connect to Kafka.
type Kafka struct {
	// Brokers are the host:port of the first brokers to contact. Default 127.0.0.1:9092.
	Brokers []string `key:"brokers"`
	// ClientID is the name in the brokers' logs and quotas. Default "notyet".
	ClientID string `key:"client-id"`
	SASL     SASL   `key:"sasl"`
	TLS      TLS    `key:"tls"`
}

// SASL authenticates to Kafka.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM. Default none.
	Mechanism string `key:"mechanism"`
	// User is the name to sign in with; with OAUTHBEARER the client's id at token-url, with
	// AWS_MSK_IAM the access key's id. Default none.
	User string `key:"user"`
	// UserFile is a file with the user. A changed file is read again. Default none.
	UserFile string `key:"user-file"`
	// Password belongs to User: a password, a client's secret, or a secret access key. Default
	// none.
	Password string `key:"password" secret:"yes"`
	// PasswordFile is a file with the password, read again likewise. Default none.
	PasswordFile string `key:"password-file"`
	// TokenURL is the endpoint for OAUTHBEARER's tokens, with User and Password (client
	// credentials): an https URL, or one of a loopback host. Default none.
	TokenURL string `key:"token-url"`
	// Scopes are asked for at TokenURL. Default none.
	Scopes []string `key:"scopes"`
	// TokenFile is a file with an OAUTHBEARER token, instead of TokenURL, read again likewise.
	// Default none.
	TokenFile string `key:"token-file" secret:"in file"`
	// SessionToken is the token of temporary credentials, with AWS_MSK_IAM. Default none.
	SessionToken string `key:"session-token" secret:"yes"`
	// SessionTokenFile is a file with the session token, read again likewise. Default none.
	SessionTokenFile string `key:"session-token-file"`
}

// TLS is used for every connection when Enabled. Default plain TCP. Changed files are read again.
type TLS struct {
	// Enabled turns TLS on. Default false: plain TCP.
	Enabled bool `key:"enabled"`
	// CA is a PEM file of authorities to trust. A changed file is read again. Default the system's.
	CA string `key:"ca"`
	// Cert is a PEM file of the client's certificate, read again likewise. Default none.
	Cert string `key:"cert"`
	// Key is the PEM file of the certificate's private key, read again likewise. Default none.
	Key string `key:"key" secret:"in file"`
	// ServerName is the name expected in the server's certificate. Default the connection's host.
	ServerName string `key:"server-name"`
}

// MySQL is the database, the place of the truth.
type MySQL struct {
	// DSN is user:password@tcp(host:port)/database. Default none.
	DSN string `key:"dsn" secret:"yes"`
	// DSNFile is a file with the DSN, read again for a change of user or password only. Default
	// none.
	DSNFile string `key:"dsn-file"`
	// PasswordFile is a file with the password of a DSN without one, read again likewise. Default
	// none.
	PasswordFile string `key:"password-file" secret:"in file"`
	TLS          TLS    `key:"tls"`
	// MaxConns limits the open connections of one process. Default 16.
	MaxConns int `key:"max-conns"`
}

// Redis holds the index of the near future.
type Redis struct {
	// Addrs are host:port: of the server, of some nodes of a cluster, or of the sentinels. Default
	// 127.0.0.1:6379.
	Addrs []string `key:"addrs"`
	// User is the name to sign in with. Default none.
	User string `key:"user"`
	// Password belongs to User, or is the server's. Default none.
	Password string `key:"password" secret:"yes"`
	// PasswordFile is a file with the password. A changed file is read again. Default none.
	PasswordFile string `key:"password-file"`
	// SentinelUser is the name to sign in to the sentinels with. Default none.
	SentinelUser string `key:"sentinel-user"`
	// SentinelPassword belongs to SentinelUser, or is the sentinels'. Default none: no sign-in.
	SentinelPassword string `key:"sentinel-password" secret:"yes"`
	// SentinelPasswordFile is a file with SentinelPassword, read again likewise. Default none.
	SentinelPasswordFile string `key:"sentinel-password-file"`
	// DB is the number of the database. Default 0.
	DB int `key:"db"`
	// Cluster means: Addrs are nodes of a Redis Cluster. Default false.
	Cluster bool `key:"cluster"`
	// Master is the name under which the sentinels at Addrs know the master. Default none: no
	// sentinels.
	Master string `key:"master"`
	// Prefix is how all keys begin. The installation's id follows, so installations may share a
	// prefix. Default "notyet".
	Prefix string `key:"prefix"`
	TLS    TLS    `key:"tls"`
}

// ZooKeeper distributes the slots among the dispatchers.
type ZooKeeper struct {
	// Servers are host:port of the ensemble. Default 127.0.0.1:2181.
	Servers []string `key:"servers"`
	// Root is the path of all nodes. The root belongs to one installation; members of another one
	// are refused. Default "/notyet".
	Root string `key:"root"`
	// Auth is user:password for digest authentication. Then only the user can read and write below
	// Root; all dispatchers need the same. Default none: every connection has access.
	Auth string `key:"auth" secret:"yes"`
	// AuthFile is a file with Auth, read at the start only: znodes keep their user. Default none.
	AuthFile string `key:"auth-file"`
	TLS      TLS    `key:"tls"`
	// SessionTimeout is how long an unresponsive dispatcher keeps its slots. Default 4s.
	SessionTimeout time.Duration `key:"session-timeout"`
}

// Election is how dispatchers share the slots.
type Election struct {
	// Kind is zookeeper, or mysql: through the database, without ZooKeeper. All dispatchers need
	// the same. Default zookeeper.
	Kind string `key:"kind"`
	// SessionTimeout is how long an unresponsive dispatcher keeps slots (kind mysql). Default 4s.
	SessionTimeout time.Duration `key:"session-timeout"`
}

// Index is where dispatchers look for the next tasks.
type Index struct {
	// Kind is redis, or mysql: the database itself, without Redis. Then dispatchers are woken over
	// the topic wakes.topic. All services need the same. Default redis.
	Kind string `key:"kind"`
}

// Kinds of the election, and of the index.
const (
	KindZooKeeper = "zookeeper"
	KindRedis     = "redis"
	KindMySQL     = "mysql"
)

// HTTP serves the API and, unless ops.addr is set, health and metrics.
type HTTP struct {
	// Addr is host:port to listen on. Commands find the API there. Default 127.0.0.1:8080.
	Addr string `key:"addr"`
	// Tokens is a YAML file of the API's users: a list of {topics, expires, name, sha256, role},
	// see "notyet token new", and of {topics, group, role} for http.jwt, each also with tenant,
	// intake and requests-per-second. Services read the file again when it changes. Default none:
	// the API serves loopback addresses only.
	Tokens string `key:"tokens" secret:"in file" restricts:"name the file of tokens"`
	JWT    JWT    `key:"jwt"`
	SignIn SignIn `key:"sign-in"`
	// PublicURL is the console's address for browsers, such as https://notyet.example, without a
	// path. Sign-in at the issuer comes back to /sign-in/callback below, and with https cookies go
	// over HTTPS only. Default none.
	PublicURL string `key:"public-url"`
	// Hosts are permitted Host headers besides loopback ones, if there are no tokens.
	Hosts []string `key:"hosts"`
	// Token is the commands' token for the API. Default none.
	Token string  `key:"token" secret:"yes"`
	TLS   HTTPTLS `key:"tls"`
	// MaxConns limits the connections with requests at work at a time; further requests get 503,
	// and health and metrics are served all the same. One token has half of them. 64 connections
	// more may be open. One without a request of an admitted caller gives way to a new one. Default
	// 1000.
	MaxConns int `key:"max-conns"`
	// AccessLog writes a JSON line to standard output for each request of API and console. Default
	// false.
	AccessLog bool `key:"access-log"`
	// Pprof serves Go's profiles under /debug/pprof. Default false.
	Pprof bool `key:"pprof"`
}

// JWT lets callers of an OpenID provider in. Their rights follow from their groups, by entries
// {topics, group, role} in http.tokens.
type JWT struct {
	// Issuer is the provider's URL, exactly as in the iss of tokens. The keys come from the
	// addresses in /.well-known/openid-configuration below the URL. Default none: no JWT is
	// accepted.
	Issuer string `key:"issuer"`
	// Audience is a required value in aud. Default none; then http.sign-in lets operators sign in,
	// and the API accepts no JWT.
	Audience string `key:"audience"`
	// GroupsClaim is the claim with the groups: a list, or one group; scope and scp have blanks in
	// between. Dots lead into objects: realm_access.roles. Default groups.
	GroupsClaim string `key:"groups-claim"`
	// NameClaim is the claim with the caller's name, unique to the caller. In the audit log the
	// name begins with jwt:. Default sub.
	NameClaim string `key:"name-claim"`
	// KeysMaxAge is how old the issuer's keys may get while the issuer does not answer; then no JWT
	// is accepted until the next answer. Otherwise the keys are read every 4 minutes. Default 1h.
	KeysMaxAge time.Duration `key:"keys-max-age"`
	// CA is a PEM file of authorities for the issuer. A changed file is read again. Default the
	// system's.
	CA string `key:"ca"`
}

// SignIn lets operators sign in to the console at the issuer in http.jwt.issuer, by the
// authorization code flow of OpenID Connect, with PKCE. Their ID tokens name the groups, as in
// http.jwt.
type SignIn struct {
	// ClientID is notyet's name at the issuer. Default none: the console asks for a token.
	ClientID string `key:"client-id"`
	// ClientSecret is notyet's secret at the issuer. A change ends sessions of signed-in operators.
	ClientSecret string `key:"client-secret" secret:"yes"`
	// ClientSecretFile is a file with the secret. A changed file is read again.
	ClientSecretFile string `key:"client-secret-file"`
	// Scopes are asked for besides openid, such as groups or profile. Default none.
	Scopes []string `key:"scopes"`
}

// HTTPTLS makes http.addr speak HTTPS. Default plain HTTP.
type HTTPTLS struct {
	// Enabled turns HTTPS on. Default false: plain HTTP.
	Enabled bool `key:"enabled"`
	// CA is a PEM file of the commands' trusted authorities. Default the system's.
	CA string `key:"ca"`
	// Cert is a PEM file of the services' certificate. A changed file is read again. Default none.
	Cert string `key:"cert"`
	// Key is the PEM file of the certificate's private key, read again likewise. Default none.
	Key string `key:"key" secret:"in file"`
	// ServerName is the commands' expected name in the certificate. Default the host in http.addr.
	ServerName string `key:"server-name"`
}

// Ops serves health and metrics.
type Ops struct {
	// Addr is host:port for health and metrics alone, always plain HTTP. Default none: at
	// http.addr.
	Addr string `key:"addr"`
}

// Topic is one of notyet's own topics.
type Topic struct {
	// Topic is the name. Default notyet.reports, notyet.results, notyet.cancels, and notyet.wakes
	// (with index.kind mysql only).
	Topic string `key:"topic"`
}

// Scanner reads requests and reports.
type Scanner struct {
	// Group is the consumer group. The group belongs to one installation; scanners of another one
	// are refused. Default notyet-scanner.
	Group string `key:"group"`
}

// Dispatcher delivers tasks.
type Dispatcher struct {
	// MemberID names this process among the dispatchers. Default host, process id and a random
	// text.
	MemberID string `key:"member-id"`
	// LookAhead is how long before the due time a task is claimed. From then on a cancel is too
	// late. Default 400ms.
	LookAhead time.Duration `key:"look-ahead"`
	// BurstLookAhead is the upper limit of the look-ahead before a burst too large for a dispatcher
	// to read in time (about 30,000 tasks/s). A value up to look-ahead turns this growth off.
	// Default 3s.
	BurstLookAhead time.Duration `key:"burst-look-ahead"`
	// StageTasks limits the claimed tasks in memory, with their bodies. Default 100000.
	StageTasks int `key:"stage-tasks"`
	// StageBytes limits the bytes of the claimed tasks in memory. Default 256MiB.
	StageBytes Size `key:"stage-bytes"`
	// Retention is how long an ended task can be queried and keeps its version, counted from the
	// due time or from the end by a caller or a consumer. Default 168h.
	Retention time.Duration `key:"retention"`
	// DrainTimeout limits the wait for Kafka's acknowledgements when a slot is given away or the
	// service stops. Tasks without one by then are sent again: longer than a broker is ever slow
	// means fewer copies. Default 20s.
	DrainTimeout time.Duration `key:"drain-timeout"`
	// UndeliverableAfter is how long notyet retries the tasks of a missing target topic, or of one
	// refusing writes. Then the tasks become dead letters. 0s: one attempt. Default 1m.
	UndeliverableAfter time.Duration `key:"undeliverable-after"`
}

// Timers configures the runs of timers.
type Timers struct {
	// MisfireAfter is how late a run may be released. A later run is missed, and the timer's
	// notyet-misfire decides. Default 1m.
	MisfireAfter time.Duration `key:"misfire-after"`
}

// Metrics configures the metrics of single targets.
type Metrics struct {
	// Targets are the target topics, and origins of callbacks, with metrics of their own; the
	// others are "other" together. Default the ones with the most traffic.
	Targets []string `key:"targets"`
	// TopTargets is how many targets with the most traffic have own metrics. Default 20.
	TopTargets int `key:"top-targets"`
	// NeedToken demands a token, of any role, for /metrics at http.addr. Default false: metrics,
	// with the targets' names, are anybody's.
	NeedToken bool `key:"need-token"`
}

// DeadLetters configures the dead letters in the database.
type DeadLetters struct {
	// Retention is how long a dead letter, replayed or not, is kept after the death. Default 0s: no
	// limit.
	Retention time.Duration `key:"retention"`
}

// Audit configures the log of changes through the API and the command line.
type Audit struct {
	// Retention is how long an entry is kept; 0s: no limit. Default 2160h (90 days).
	Retention time.Duration `key:"retention"`
}

// SendLog is a dispatcher's local record of deliveries.
type SendLog struct {
	// Dir belongs to one dispatcher at a time, and to one installation. Default ./notyet-sendlog.
	Dir string `key:"dir"`
	// Retention is how long entries are kept. Default 72h.
	Retention time.Duration `key:"retention"`
	// MaxBytes is about how much disk entries may take: beyond it the oldest go before their time,
	// and entries of the last hour stop deliveries instead. Default 64GiB.
	MaxBytes Size `key:"max-bytes"`
}

// Migrate configures the creations of the command of the same name. Existing topics stay unchanged.
type Migrate struct {
	// DSN is migrate's DSN for the database, with a user who may change tables. Default mysql.dsn.
	DSN string `key:"dsn" secret:"yes"`
	// DSNFile is a file with the DSN. Default none.
	DSNFile string `key:"dsn-file"`
	// Partitions of each topic. Default 12.
	Partitions int `key:"partitions"`
	// Replication is the number of copies. Default 0: the broker's default.
	Replication int `key:"replication"`
	// Retention of intake and report topics. Requests are lost if all scanners are down for longer,
	// or if an older database backup is restored. Default 336h.
	Retention time.Duration `key:"retention"`
}

// Log configures a service's log on standard error.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `key:"level" live:"yes"`
	// Format is json or console. Default json.
	Format string `key:"format"`
}

// Default returns a Config without settings.
func Default() Config {
	return Config{
		Kafka:     Kafka{Brokers: []string{defaults.Kafka}, ClientID: defaults.ClientID},
		MySQL:     MySQL{MaxConns: defaults.DatabaseConns},
		Redis:     Redis{Addrs: []string{defaults.Redis}, Prefix: defaults.RedisPrefix},
		ZooKeeper: ZooKeeper{Servers: []string{"127.0.0.1:2181"}, Root: defaults.ZooKeeperRoot, SessionTimeout: defaults.SessionTimeout},
		Election:  Election{Kind: KindZooKeeper, SessionTimeout: defaults.SessionTimeout},
		Index:     Index{Kind: KindRedis},
		HTTP:      HTTP{Addr: defaults.HTTP, MaxConns: defaults.HTTPConns, JWT: JWT{GroupsClaim: "groups", NameClaim: "sub", KeysMaxAge: time.Hour}},
		Intake: Intakes{
			Beyond: BeyondWait, UnknownTargets: defaults.UnknownTargets,
			Topics:   []Intake{{Topic: schemas.TopicIntake}},
			MaxDelay: schemas.DefaultMaxDelay, MaxValueBytes: schemas.DefaultMaxValueBytes,
		},
		Reports: Topic{schemas.TopicReports},
		Results: Topic{schemas.TopicResults},
		Cancels: Topic{schemas.TopicCancels},
		Wakes:   Topic{schemas.TopicWakes},
		Scanner: Scanner{Group: defaults.ScannerGroup},
		Dispatcher: Dispatcher{
			LookAhead: defaults.LookAhead, BurstLookAhead: defaults.BurstLookAhead, StageTasks: defaults.StageTasks, StageBytes: defaults.StageBytes,
			Retention: defaults.Retention, DrainTimeout: defaults.DrainTimeout, UndeliverableAfter: defaults.UndeliverableAfter,
		},
		Audit:    Audit{Retention: 90 * 24 * time.Hour},
		Timers:   Timers{MisfireAfter: defaults.MisfireAfter},
		SendLog:  SendLog{Dir: "notyet-sendlog", Retention: defaults.SendLogRetention, MaxBytes: defaults.SendLogBytes},
		Callback: Callback{MaxInFlight: defaults.CallsInFlight, MaxInFlightTotal: defaults.CallsInFlightTotal, MaxTimeout: defaults.CallTimeout},
		Migrate:  Migrate{Partitions: 12, Retention: 14 * 24 * time.Hour},
		Log:      Log{Level: "info", Format: "json"},
		Metrics:  Metrics{TopTargets: defaults.TopTargets},

		Slots: 64, Window: defaults.Window, StopTimeout: 30 * time.Second,
	}
}

// ForMigrate returns migrate's configuration.
func (c *Config) ForMigrate() *Config {
	out := *c
	if c.Migrate.DSN != "" {
		out.MySQL.DSN, out.MySQL.DSNFile, out.MySQL.PasswordFile = c.Migrate.DSN, "", ""
	}
	return &out
}
