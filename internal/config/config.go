// Package config reads the operator's settings: defaults, then a YAML file, then NOTYET_*
// variables, then flags; later ones take precedence. It returns one checked Config, or one error
// that names every mistake.
//
// A variable's name follows from its key: http.addr is NOTYET_HTTP_ADDR, dispatcher.look-ahead is
// NOTYET_DISPATCHER_LOOK_AHEAD. In variables and flags, commas separate the elements of a list.
package config

import (
	"time"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/schemas"
)

// Config holds all settings. The tag key of a field is the last part of its key. The tag secret says that the value is a secret ("yes"), or
// that the file that it names holds one ("in file"). The tag restricts says what to write in a key that closes something, and that may not be
// set to nothing. The tag live says that a service takes a new value over at
// SIGHUP ("yes"), only if there is one ("some"), or another number where there is one before and after ("number").
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
	// DeadLetters are tasks and requests that were given up.
	DeadLetters DeadLetters `key:"deadletters"`
	Audit       Audit       `key:"audit"`
	Migrate     Migrate     `key:"migrate"`
	Log         Log         `key:"log"`
	Metrics     Metrics     `key:"metrics"`

	// Slots is the number of slots that migrate creates in an empty database. Default 64.
	Slots int `key:"slots"`
	// Window is how long before their due time tasks are in the Redis index; with index.kind mysql it means nothing. Default 2h.
	Window time.Duration `key:"window"`
	// StopTimeout limits the whole stop of a service. Its successor does what has not finished by
	// then. Default 30s.
	StopTimeout time.Duration `key:"stop-timeout"`

	set    map[string]Origin // where each key was set
	unread map[string]bool   // keys whose values could not be read
}

// IsSet reports whether a key was set in the file, the environment or by a flag.
func (c *Config) IsSet(key string) bool { return c.set[key].Kind != "" }

// Origin returns where a key was set: the name of the file or of the variable, or "flag". It
// returns "" if the key was not set.
func (c *Config) Origin(key string) string { return c.set[key].String() }

// Kafka is how to connect to Kafka.
type Kafka struct {
	// Brokers are the host:port of the first brokers to contact. Default 127.0.0.1:9092.
	Brokers []string `key:"brokers"`
	// ClientID is the name that brokers use for logs and quotas. Default "notyet".
	ClientID string `key:"client-id"`
	SASL     SASL   `key:"sasl"`
	TLS      TLS    `key:"tls"`
}

// SASL authenticates to Kafka.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM. Default none.
	Mechanism string `key:"mechanism"`
	// User is the name to sign in with; with OAUTHBEARER the client's id at token-url, with AWS_MSK_IAM the access key's id. Default none.
	User string `key:"user"`
	// UserFile is a file that holds the user. It is read again when it changes. Default none.
	UserFile string `key:"user-file"`
	// Password belongs to User: a password, the client's secret, or the secret access key. Default none.
	Password string `key:"password" secret:"yes"`
	// PasswordFile is a file that holds the password, read again likewise. Default none.
	PasswordFile string `key:"password-file"`
	// TokenURL is the endpoint that gives OAUTHBEARER its tokens, for User and Password (client credentials). It begins with https, or its
	// host is a loopback one. Default none.
	TokenURL string `key:"token-url"`
	// Scopes are asked for at TokenURL. Default none.
	Scopes []string `key:"scopes"`
	// TokenFile is a file that holds the token of OAUTHBEARER, in place of TokenURL, read again likewise. Default none.
	TokenFile string `key:"token-file" secret:"in file"`
	// SessionToken is that of temporary credentials, with AWS_MSK_IAM. Default none.
	SessionToken string `key:"session-token" secret:"yes"`
	// SessionTokenFile is a file that holds it, read again likewise. Default none.
	SessionTokenFile string `key:"session-token-file"`
}

// TLS is used for every connection when Enabled. Default plain TCP. Files are read again when they change.
type TLS struct {
	// Enabled turns it on. Default false: plain TCP.
	Enabled bool `key:"enabled"`
	// CA is a PEM file of the authorities to trust. It is read again when it changes. Default the system's.
	CA string `key:"ca"`
	// Cert is a PEM file of the client's certificate, read again likewise. Default none.
	Cert string `key:"cert"`
	// Key is the PEM file of its private key, read again likewise. Default none.
	Key string `key:"key" secret:"in file"`
	// ServerName is the name expected in the server's certificate. Default the host of the
	// connection.
	ServerName string `key:"server-name"`
}

// MySQL is the database, which holds the truth.
type MySQL struct {
	// DSN is user:password@tcp(host:port)/database. Default none.
	DSN string `key:"dsn" secret:"yes"`
	// DSNFile is a file that holds the DSN. It is read again when it changes; then only user and password may be others. Default none.
	DSNFile string `key:"dsn-file"`
	// PasswordFile is a file that holds the password of a DSN without one, read again likewise. Default none.
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
	// PasswordFile is a file that holds it. It is read again when it changes. Default none.
	PasswordFile string `key:"password-file"`
	// SentinelUser is the name to sign in to the sentinels with. Default none.
	SentinelUser string `key:"sentinel-user"`
	// SentinelPassword belongs to SentinelUser, or is the sentinels'. Default none: sentinels ask
	// for no password.
	SentinelPassword string `key:"sentinel-password" secret:"yes"`
	// SentinelPasswordFile is a file that holds it, read again likewise. Default none.
	SentinelPasswordFile string `key:"sentinel-password-file"`
	// DB is the number of the database. Default 0.
	DB int `key:"db"`
	// Cluster says that Addrs are nodes of a Redis Cluster. Default false.
	Cluster bool `key:"cluster"`
	// Master is the name under which the sentinels at Addrs know the master. Default none: no
	// sentinels.
	Master string `key:"master"`
	// Prefix is how all keys begin. The installation's id follows it, so installations may share a
	// prefix. Default "notyet".
	Prefix string `key:"prefix"`
	TLS    TLS    `key:"tls"`
}

// ZooKeeper distributes the slots among the dispatchers.
type ZooKeeper struct {
	// Servers are host:port of the ensemble. Default 127.0.0.1:2181.
	Servers []string `key:"servers"`
	// Root is the path of all nodes. It belongs to one installation; members of another one are
	// refused. Default "/notyet".
	Root string `key:"root"`
	// Auth is user:password for digest authentication. Only that user can then read and write below
	// Root; all dispatchers need the same. Default none: everybody who can connect has access.
	Auth string `key:"auth" secret:"yes"`
	// AuthFile is a file that holds it. It is read at the start only: znodes keep the user that made them. Default none.
	AuthFile string `key:"auth-file"`
	TLS      TLS    `key:"tls"`
	// SessionTimeout is how long an unresponsive dispatcher keeps its slots. Default 4s.
	SessionTimeout time.Duration `key:"session-timeout"`
}

// Election is how dispatchers share the slots.
type Election struct {
	// Kind is zookeeper, or mysql: through the database, without ZooKeeper. All dispatchers need the same. Default zookeeper.
	Kind string `key:"kind"`
	// SessionTimeout is how long an unresponsive dispatcher keeps its slots, with kind mysql. Default 4s.
	SessionTimeout time.Duration `key:"session-timeout"`
}

// Index is where dispatchers look for what is next.
type Index struct {
	// Kind is redis, or mysql: the database itself, without Redis. Dispatchers are then woken over the topic wakes.topic. All services need the
	// same. Default redis.
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
	// Tokens is a YAML file of who may use the API: a list of {topics, expires, name, sha256, role},
	// see "notyet token new", and of {topics, group, role} for http.jwt, each also with tenant,
	// intake and requests-per-second. Services read the file again when it changes. Default none: the API serves
	// loopback addresses only.
	Tokens string `key:"tokens" secret:"in file" restricts:"name the file of tokens"`
	JWT    JWT    `key:"jwt"`
	SignIn SignIn `key:"sign-in"`
	// PublicURL is the address at which browsers reach the console, such as https://notyet.example, without a
	// path. Sign-in at the issuer comes back to /sign-in/callback below it, and cookies go over HTTPS only if it
	// does. Default none.
	PublicURL string `key:"public-url"`
	// Hosts are names that the Host header may have in addition to loopback ones, if there are no
	// tokens.
	Hosts []string `key:"hosts"`
	// Token is the token that commands send to the API. Default none.
	Token string  `key:"token" secret:"yes"`
	TLS   HTTPTLS `key:"tls"`
	// MaxConns limits the connections on which requests are at work at a time; further requests are
	// answered 503, and health and metrics are served all the same. One token has half of them. 64
	// connections more may be open. One without a request of an admitted caller gives way to a new one.
	// Default 1000.
	MaxConns int `key:"max-conns"`
	// AccessLog writes a line of JSON to standard output for each request of API and console. Default false.
	AccessLog bool `key:"access-log"`
	// Pprof serves Go's profiles under /debug/pprof. Default false.
	Pprof bool `key:"pprof"`
}

// JWT lets callers of an OpenID provider in. What they may do follows from their groups, for which
// http.tokens has entries {topics, group, role}.
type JWT struct {
	// Issuer is the provider's URL, exactly as its tokens have it in iss. Its keys are read from the
	// addresses that /.well-known/openid-configuration below it names. Default none: no JWT is accepted.
	Issuer string `key:"issuer"`
	// Audience is a value that a token must have in aud. Default none; then http.sign-in lets operators sign in, and
	// the API accepts no JWT.
	Audience string `key:"audience"`
	// GroupsClaim is the claim with the groups: a list, or one group; scope and scp have blanks between
	// them. Dots lead into objects: realm_access.roles. Default groups.
	GroupsClaim string `key:"groups-claim"`
	// NameClaim is the claim with the caller's name in the audit log, which begins with jwt: there. It must
	// be one that no other caller can have. Default sub.
	NameClaim string `key:"name-claim"`
	// KeysMaxAge is how old the issuer's keys may get while it does not answer; then no JWT is accepted until it does. While it
	// answers, they are read every 4 minutes. Default 1h.
	KeysMaxAge time.Duration `key:"keys-max-age"`
	// CA is a PEM file of the authorities to trust for the issuer. It is read again when it changes. Default the
	// system's.
	CA string `key:"ca"`
}

// SignIn lets operators sign in to the console at the issuer in http.jwt.issuer, by the authorization code flow of
// OpenID Connect, with PKCE. Their ID tokens name their groups, as http.jwt says.
type SignIn struct {
	// ClientID is notyet's name at the issuer. Default none: the console asks for a token.
	ClientID string `key:"client-id"`
	// ClientSecret is notyet's secret at the issuer. Changing it ends the sessions of those who signed in.
	ClientSecret string `key:"client-secret" secret:"yes"`
	// ClientSecretFile is a file that holds the secret. It is read again when it changes.
	ClientSecretFile string `key:"client-secret-file"`
	// Scopes are asked for besides openid, such as groups or profile. Default none.
	Scopes []string `key:"scopes"`
}

// HTTPTLS makes http.addr speak HTTPS. Default plain HTTP.
type HTTPTLS struct {
	// Enabled turns it on. Default false: plain HTTP.
	Enabled bool `key:"enabled"`
	// Cert is a PEM file of the services' certificate. It is read again when it changes. Default
	// none.
	Cert string `key:"cert"`
	// Key is the PEM file of its private key, read again likewise. Default none.
	Key string `key:"key" secret:"in file"`
	// CA is a PEM file of the authorities that commands trust. Default the system's.
	CA string `key:"ca"`
	// ServerName is the name that commands expect in the certificate. Default the host in
	// http.addr.
	ServerName string `key:"server-name"`
}

// Ops serves health and metrics.
type Ops struct {
	// Addr is host:port for health and metrics alone, always plain HTTP. Default none: http.addr
	// serves them.
	Addr string `key:"addr"`
}

// Topic is one of notyet's own topics.
type Topic struct {
	// Topic is its name. Default notyet.reports, notyet.results, notyet.cancels, and notyet.wakes (with index.kind mysql only).
	Topic string `key:"topic"`
}

// Scanner reads requests and reports.
type Scanner struct {
	// Group is the consumer group. It belongs to one installation; scanners of another one are
	// refused. Default notyet-scanner.
	Group string `key:"group"`
}

// Dispatcher delivers tasks.
type Dispatcher struct {
	// MemberID names this process among the dispatchers. Default host, process id and a random
	// part.
	MemberID string `key:"member-id"`
	// LookAhead is how long before its due time a task is claimed. From then on a cancel is too
	// late. Default 400ms.
	LookAhead time.Duration `key:"look-ahead"`
	// BurstLookAhead is the upper limit of the look-ahead before a burst that a dispatcher cannot
	// read in time (about 30,000 tasks/s). A value that is not above look-ahead turns this growth
	// off. Default 3s.
	BurstLookAhead time.Duration `key:"burst-look-ahead"`
	// StageTasks limits the claimed tasks that are in memory with their bodies. Default 100000.
	StageTasks int `key:"stage-tasks"`
	// StageBytes limits the bytes that these take. Default 256MiB.
	StageBytes Size `key:"stage-bytes"`
	// Retention is how long an ended task can be queried and keeps its version. It counts from the
	// due time or, if a caller or a consumer ended the task, from then. Default 168h.
	Retention time.Duration `key:"retention"`
	// DrainTimeout limits the wait for Kafka's acknowledgements when a slot is given away or the
	// service stops. Tasks without one by then are sent again: longer than a broker is ever slow
	// means fewer copies. Default 20s.
	DrainTimeout time.Duration `key:"drain-timeout"`
	// UndeliverableAfter is how long notyet retries the tasks of a target topic that does not exist
	// or refuses writes. Then they become dead letters. 0s: one attempt. Default 1m.
	UndeliverableAfter time.Duration `key:"undeliverable-after"`
}

// Timers configures the runs of timers.
type Timers struct {
	// MisfireAfter is how late a run may be released. After that it is missed, and the timer's
	// notyet-misfire says what becomes of it. Default 1m.
	MisfireAfter time.Duration `key:"misfire-after"`
}

// Metrics configures the metrics of single targets.
type Metrics struct {
	// Targets are the target topics, and origins of callbacks, that have metrics of their own; the
	// others are "other" together. Default those with the most traffic.
	Targets []string `key:"targets"`
	// TopTargets is how many those are. Default 20.
	TopTargets int `key:"top-targets"`
	// NeedToken says that /metrics at http.addr needs a token, of any role. Default false: metrics, which name targets, are
	// anybody's.
	NeedToken bool `key:"need-token"`
}

// DeadLetters configures the dead letters in the database.
type DeadLetters struct {
	// Retention is how long a dead letter is kept, counted from its task's death, whether or not it
	// was replayed. Default 0s: no limit.
	Retention time.Duration `key:"retention"`
}

// Audit configures the log of changes that were made through the API and the command line.
type Audit struct {
	// Retention is how long an entry is kept; 0s: no limit. Default 2160h (90 days).
	Retention time.Duration `key:"retention"`
}

// SendLog is a dispatcher's local record of what it sent.
type SendLog struct {
	// Dir belongs to one dispatcher at a time, and to one installation. Default ./notyet-sendlog.
	Dir string `key:"dir"`
	// Retention is how long entries are kept. Default 72h.
	Retention time.Duration `key:"retention"`
	// MaxBytes is about how much disk entries may take: beyond it the oldest go before their time, and those of the last hour stop
	// deliveries instead. Default 64GiB.
	MaxBytes Size `key:"max-bytes"`
}

// Migrate configures what the command of that name creates. It does not change existing topics.
type Migrate struct {
	// DSN is with which migrate connects to the database of mysql.dsn, as a user who may change tables. Default mysql.dsn.
	DSN string `key:"dsn" secret:"yes"`
	// DSNFile is a file that holds it. Default none.
	DSNFile string `key:"dsn-file"`
	// Partitions of each topic. Default 12.
	Partitions int `key:"partitions"`
	// Replication is the number of copies. Default 0: the broker's default.
	Replication int `key:"replication"`
	// Retention of intake and report topics. Requests are lost if all scanners are down longer than
	// this, or if a database backup older than this is restored. Default 336h.
	Retention time.Duration `key:"retention"`
}

// Log is what a service writes to its standard error.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `key:"level" live:"yes"`
	// Format is json or console. Default json.
	Format string `key:"format"`
}

// Default returns a Config in which nothing is set.
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

// ForMigrate returns the configuration with which migrate works.
func (c *Config) ForMigrate() *Config {
	out := *c
	if c.Migrate.DSN != "" {
		out.MySQL.DSN, out.MySQL.DSNFile, out.MySQL.PasswordFile = c.Migrate.DSN, "", ""
	}
	return &out
}
