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

	// Shards are the numbers, from 0, of the databases in mysql.shards that this service works
	// for. Default all.
	Shards []string `key:"shards" restricts:"write the numbers, such as 1,3"`
	// Slots is how many slots migrate makes in an empty database: the most dispatchers that can
	// work. Default 64.
	Slots int `key:"slots"`
	// Window is how long before its due time a task is in Redis (index.kind redis). Default 2h.
	Window time.Duration `key:"window"`
	// StopTimeout is how long a service may take to stop. Default 30s.
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
	// Brokers are host:port of some brokers. The others are found through them. Default
	// 127.0.0.1:9092.
	Brokers []string `key:"brokers"`
	// ClientID is the name that brokers show in logs and quotas. Default notyet.
	ClientID string `key:"client-id"`
	SASL     SASL   `key:"sasl"`
	TLS      TLS    `key:"tls"`
}

// SASL authenticates to Kafka.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM. Default
	// none: no sign-in.
	Mechanism string `key:"mechanism"`
	// User is the name to sign in with. With OAUTHBEARER the client id, with AWS_MSK_IAM the
	// access key id. Default none.
	User string `key:"user"`
	// UserFile is a file with the user. Default none.
	UserFile string `key:"user-file"`
	// Password is the user's password. With OAUTHBEARER the client secret, with AWS_MSK_IAM the
	// secret access key. Default none.
	Password string `key:"password" secret:"yes"`
	// PasswordFile is a file with the password. Default none.
	PasswordFile string `key:"password-file"`
	// TokenURL is where OAUTHBEARER tokens come from (client credentials). The URL is https, or
	// of this machine. Default none.
	TokenURL string `key:"token-url"`
	// Scopes are the scopes of OAUTHBEARER tokens. Default none.
	Scopes []string `key:"scopes"`
	// TokenFile is a file with an OAUTHBEARER token, in place of token-url. Default none.
	TokenFile string `key:"token-file" secret:"in file"`
	// SessionToken belongs to temporary credentials of AWS_MSK_IAM. Default none.
	SessionToken string `key:"session-token" secret:"yes"`
	// SessionTokenFile is a file with the session token. Default none.
	SessionTokenFile string `key:"session-token-file"`
}

// TLS is used for every connection when Enabled. Default plain TCP. Changed files are read again.
type TLS struct {
	// Enabled turns TLS on. Default false.
	Enabled bool `key:"enabled"`
	// CA is a PEM file of the authorities to trust. Default the system's.
	CA string `key:"ca"`
	// Cert is a PEM file with a client certificate. Default none.
	Cert string `key:"cert"`
	// Key is a PEM file with the certificate's private key. Default none.
	Key string `key:"key" secret:"in file"`
	// ServerName is the name that the server's certificate must have. Default the host of the
	// connection.
	ServerName string `key:"server-name"`
}

// MySQL is the database, the place of the truth.
type MySQL struct {
	// DSN is the address: user:password@tcp(host:port)/database. Default none.
	DSN string `key:"dsn" secret:"yes"`
	// DSNFile is a file with the DSN. Another address in it needs a restart. Default none.
	DSNFile string `key:"dsn-file"`
	// PasswordFile is a file with the password, for a DSN without one. Default none.
	PasswordFile string `key:"password-file" secret:"in file"`
	// Shards are the databases where there are several, the home first: DSNs, or mappings with the
	// key dsn-file. Default one: mysql.dsn.
	Shards []Shard `key:"shards" secret:"yes"`
	TLS    TLS     `key:"tls"`
	// MaxConns is the most connections of one process to one database. Default 16.
	MaxConns int `key:"max-conns"`
}

// Redis holds the index of the near future.
type Redis struct {
	// Addrs are host:port of the server, of some nodes of a cluster, or of the sentinels.
	// Default 127.0.0.1:6379.
	Addrs []string `key:"addrs"`
	// User is the name to sign in with. Default none.
	User string `key:"user"`
	// Password is the password of the user, or of the server. Default none.
	Password string `key:"password" secret:"yes"`
	// PasswordFile is a file with the password. Default none.
	PasswordFile string `key:"password-file"`
	// SentinelUser is the name to sign in to sentinels with. Default none.
	SentinelUser string `key:"sentinel-user"`
	// SentinelPassword is the password for sentinels. Default none.
	SentinelPassword string `key:"sentinel-password" secret:"yes"`
	// SentinelPasswordFile is a file with the password for sentinels. Default none.
	SentinelPasswordFile string `key:"sentinel-password-file"`
	// DB is the number of the database. Default 0.
	DB int `key:"db"`
	// Cluster says that the server is a Redis Cluster. Default false.
	Cluster bool `key:"cluster"`
	// Master is the name of the master, where the addresses are those of sentinels. Default
	// none.
	Master string `key:"master"`
	// Prefix begins every key, before the installation's id. Default notyet.
	Prefix string `key:"prefix"`
	TLS    TLS    `key:"tls"`
}

// ZooKeeper distributes the slots among the dispatchers.
type ZooKeeper struct {
	// Servers are host:port of the ensemble. Default 127.0.0.1:2181.
	Servers []string `key:"servers"`
	// Root is the path of all nodes. Each installation needs its own. Default /notyet.
	Root string `key:"root"`
	// Auth is user:password. Only this user can then read and write the nodes. All dispatchers
	// need the same. Default none: everybody can.
	Auth string `key:"auth" secret:"yes"`
	// AuthFile is a file with user:password. A change needs a restart. Default none.
	AuthFile string `key:"auth-file"`
	TLS      TLS    `key:"tls"`
	// SessionTimeout is how long a dispatcher that does not answer keeps its slots. Default 4s.
	SessionTimeout time.Duration `key:"session-timeout"`
}

// Election is how dispatchers share the slots.
type Election struct {
	// Kind is zookeeper, or mysql for dispatchers that share the slots through the database. All
	// dispatchers need the same. Default zookeeper.
	Kind string `key:"kind"`
	// SessionTimeout is how long a dispatcher that does not answer keeps its slots
	// (election.kind mysql). Default 4s.
	SessionTimeout time.Duration `key:"session-timeout"`
}

// Index is where dispatchers look for the next tasks.
type Index struct {
	// Kind is redis, or mysql for the database alone, without Redis. All services need the same.
	// Default redis.
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
	// Addr is host:port of the API and the console. Services listen there, commands ask there.
	// Default 127.0.0.1:8080.
	Addr string `key:"addr"`
	// Tokens is a YAML file that says who may use the API, made with "notyet token new". Default
	// none: only callers on this machine, without a token.
	Tokens string `key:"tokens" secret:"in file" restricts:"name the file of tokens"`
	JWT    JWT    `key:"jwt"`
	SignIn SignIn `key:"sign-in"`
	// PublicURL is the console's address in browsers, such as https://notyet.example. Sign-in
	// needs it. Default none.
	PublicURL string `key:"public-url"`
	// Hosts are other names that callers on this machine may use for it, where there are no
	// tokens. Default none.
	Hosts []string `key:"hosts"`
	// Token is the token that commands send. Default none.
	Token string  `key:"token" secret:"yes"`
	TLS   HTTPTLS `key:"tls"`
	// MaxConns is the most connections with requests at work. Further requests get 503. Default
	// 1000.
	MaxConns int `key:"max-conns"`
	// AccessLog writes a line of JSON to standard output for each request. Default false.
	AccessLog bool `key:"access-log"`
	// Pprof serves Go profiles at /debug/pprof. Default false.
	Pprof bool `key:"pprof"`
}

// JWT lets callers of an OpenID provider in. Their rights follow from their groups, by entries
// {topics, group, role} in http.tokens.
type JWT struct {
	// Issuer is the OpenID provider's URL, exactly as in the iss of its tokens. Default none:
	// JWTs are refused.
	Issuer string `key:"issuer"`
	// Audience is the value that aud must have. Default none: the API refuses JWTs, and
	// operators can sign in to the console.
	Audience string `key:"audience"`
	// GroupsClaim is the claim with the caller's groups. Dots lead into objects:
	// realm_access.roles. Default groups.
	GroupsClaim string `key:"groups-claim"`
	// NameClaim is the claim with the caller's name, for the audit log. Default sub.
	NameClaim string `key:"name-claim"`
	// KeysMaxAge is how long the provider's last keys are trusted while it does not answer.
	// Default 1h.
	KeysMaxAge time.Duration `key:"keys-max-age"`
	// CA is a PEM file of the authorities to trust for the provider. Default the system's.
	CA string `key:"ca"`
}

// SignIn lets operators sign in to the console at the issuer in http.jwt.issuer, by the
// authorization code flow of OpenID Connect, with PKCE. Their ID tokens name the groups, as in
// http.jwt.
type SignIn struct {
	// ClientID is notyet's client id at the provider. Default none: the console asks for a
	// token.
	ClientID string `key:"client-id"`
	// ClientSecret is notyet's client secret at the provider. A change ends all sessions from
	// there. Default none.
	ClientSecret string `key:"client-secret" secret:"yes"`
	// ClientSecretFile is a file with the client secret. Default none.
	ClientSecretFile string `key:"client-secret-file"`
	// Scopes are the scopes to ask for besides openid, such as groups. Default none.
	Scopes []string `key:"scopes"`
}

// HTTPTLS makes http.addr speak HTTPS. Default plain HTTP.
type HTTPTLS struct {
	// Enabled turns HTTPS on. Default false.
	Enabled bool `key:"enabled"`
	// CA is a PEM file of the authorities that commands trust. Default the system's.
	CA string `key:"ca"`
	// Cert is a PEM file with the services' certificate. Default none.
	Cert string `key:"cert"`
	// Key is a PEM file with the certificate's private key. Default none.
	Key string `key:"key" secret:"in file"`
	// ServerName is the name that commands expect in the certificate. Default the host in
	// http.addr.
	ServerName string `key:"server-name"`
}

// Ops serves health and metrics.
type Ops struct {
	// Addr is host:port for health and metrics alone, in plain HTTP. Default none: they are at
	// http.addr.
	Addr string `key:"addr"`
}

// Topic is one of notyet's own topics.
type Topic struct {
	// Topic is the name. Default notyet., and the first part of the key.
	Topic string `key:"topic"`
}

// Scanner reads requests and reports.
type Scanner struct {
	// Group is the consumer group. Each installation needs its own. Default notyet-scanner.
	Group string `key:"group"`
}

// Dispatcher delivers tasks.
type Dispatcher struct {
	// MemberID is the name of this process among dispatchers. Default host, process id and a
	// random text.
	MemberID string `key:"member-id"`
	// LookAhead is how long before its due time a task is taken. A cancel is too late from then
	// on. Default 400ms.
	LookAhead time.Duration `key:"look-ahead"`
	// BurstLookAhead is the most that look-ahead grows to before a burst. A value up to
	// look-ahead keeps it as it is. Default 3s.
	BurstLookAhead time.Duration `key:"burst-look-ahead"`
	// StageTasks is the most tasks with bodies in memory. Default 100000.
	StageTasks int `key:"stage-tasks"`
	// StageBytes is the most memory for them. Default 256MiB.
	StageBytes Size `key:"stage-bytes"`
	// Retention is how long an ended task can be asked for, and its version counts. Default
	// 168h.
	Retention time.Duration `key:"retention"`
	// DrainTimeout is how long a stop waits for Kafka's acknowledgements. Later ones are sent
	// again. Default 20s.
	DrainTimeout time.Duration `key:"drain-timeout"`
	// UndeliverableAfter is how long tasks for a missing or refused topic are tried, before they
	// are dead letters. 0s tries once. Default 1m.
	UndeliverableAfter time.Duration `key:"undeliverable-after"`
}

// Timers configures the runs of timers.
type Timers struct {
	// MisfireAfter is how late a run may be before notyet-misfire decides about it. Default 1m.
	MisfireAfter time.Duration `key:"misfire-after"`
}

// Metrics configures the metrics of single targets.
type Metrics struct {
	// Targets are the topics and origins with metrics of their own. Default the busiest ones.
	Targets []string `key:"targets"`
	// TopTargets is how many of the busiest have metrics of their own. Default 20.
	TopTargets int `key:"top-targets"`
	// NeedToken asks for a token, of any role, at /metrics of http.addr. Default false.
	NeedToken bool `key:"need-token"`
}

// DeadLetters configures the dead letters in the database.
type DeadLetters struct {
	// Retention is how long dead letters are kept, replayed ones too. Default 0s: for ever.
	Retention time.Duration `key:"retention"`
}

// Audit configures the log of changes through the API and the command line.
type Audit struct {
	// Retention is how long entries are kept. 0s keeps them for ever. Default 2160h (90 days).
	Retention time.Duration `key:"retention"`
}

// SendLog is a dispatcher's local record of deliveries.
type SendLog struct {
	// Dir is the directory. Each dispatcher needs its own, on a disk that survives a restart.
	// Default ./notyet-sendlog.
	Dir string `key:"dir"`
	// Retention is how long entries are kept. Default 72h.
	Retention time.Duration `key:"retention"`
	// MaxBytes is about the most disk space. Beyond it the oldest entries go; if the last hour
	// alone needs more, deliveries stop. Default 64GiB.
	MaxBytes Size `key:"max-bytes"`
}

// Migrate configures the creations of the command of the same name. Existing topics stay unchanged.
type Migrate struct {
	// DSN is the address with a user who may change tables. Default mysql.dsn.
	DSN string `key:"dsn" secret:"yes"`
	// DSNFile is a file with the DSN. Default none.
	DSNFile string `key:"dsn-file"`
	// Partitions is the number of partitions of each new topic. Default 12.
	Partitions int `key:"partitions"`
	// Replication is the number of copies of each new topic. 0 is the brokers' default. Default
	// 0.
	Replication int `key:"replication"`
	// Retention is how long new intake and reports topics keep records. Requests are lost if
	// scanners are away for longer, or if an older backup is restored. Databases keep as long what
	// has moved to another. Default 336h.
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
		out.MySQL.DSN, out.MySQL.DSNFile, out.MySQL.PasswordFile, out.MySQL.Shards = c.Migrate.DSN, "", "", nil
	}
	return &out
}
