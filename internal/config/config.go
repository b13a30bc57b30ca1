// Package config reads what an operator has set: defaults, then a YAML file, then NOTYET_* variables, then flags, each
// over the one before. One checked Config comes out, or one error that names every mistake at once.
//
// The name of a variable follows from the key: http.addr is NOTYET_HTTP_ADDR, dispatcher.look-ahead is
// NOTYET_DISPATCHER_LOOK_AHEAD. Lists in variables and flags are separated by commas.
package config

import (
	"time"

	"github.com/notyet/notyet/schemas"
)

// Config is everything that can be set. The tag of a field is the last part of its key.
type Config struct {
	Kafka      Kafka      `key:"kafka"`
	MySQL      MySQL      `key:"mysql"`
	Redis      Redis      `key:"redis"`
	ZooKeeper  ZooKeeper  `key:"zookeeper"`
	HTTP       HTTP       `key:"http"`
	Ops        Ops        `key:"ops"`
	Intake     Intakes    `key:"intake"`
	Reports    Topic      `key:"reports"`
	Results    Topic      `key:"results"`
	Scanner    Scanner    `key:"scanner"`
	Dispatcher Dispatcher `key:"dispatcher"`
	SendLog    SendLog    `key:"sendlog"`
	// DeadLetters are tasks and requests that were given up.
	DeadLetters DeadLetters `key:"deadletters"`
	Migrate     Migrate     `key:"migrate"`
	Log         Log         `key:"log"`

	// Slots is how many lines tasks are kept in; migrate makes them in an empty database. Default 64.
	Slots int `key:"slots"`
	// Window is how far ahead of their due time tasks are in the Redis index. Default 2h.
	Window time.Duration `key:"window"`
	// StopTimeout bounds the whole stop of a service; what has not drained by then is left to its successor. Default 30s.
	StopTimeout time.Duration `key:"stop-timeout"`

	set map[string]string // where each key was set
}

// IsSet tells whether a key was set in the file, the environment or by a flag.
func (c *Config) IsSet(key string) bool { return c.set[key] != "" }

// Origin is where a key was set: the name of the file or of the variable, or "flag"; "" when it was not.
func (c *Config) Origin(key string) string { return c.set[key] }

// Kafka says where Kafka is and how to talk to it.
type Kafka struct {
	// Brokers are host:port to begin with. Default 127.0.0.1:9092.
	Brokers []string `key:"brokers"`
	// ClientID is what brokers log and count quotas by. Default "notyet".
	ClientID string `key:"client-id"`
	SASL     SASL   `key:"sasl"`
	TLS      TLS    `key:"tls"`
}

// SASL authenticates to Kafka.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Default none.
	Mechanism string `key:"mechanism"`
	User      string `key:"user"`
	Password  string `key:"password" secret:"yes"`
}

// TLS is used for every connection when Enabled. Default plain TCP.
type TLS struct {
	Enabled bool `key:"enabled"`
	// CA is a PEM file of the authorities to trust. Default the system's.
	CA string `key:"ca"`
	// Cert and Key are PEM files by which we show who we are. Default none.
	Cert string `key:"cert"`
	Key  string `key:"key"`
	// ServerName is the name to expect in the server's certificate. Default the host that is dialled.
	ServerName string `key:"server-name"`
}

// MySQL is the database that decides everything.
type MySQL struct {
	// DSN is user:password@tcp(host:port)/database. Default none.
	DSN string `key:"dsn" secret:"yes"`
	TLS TLS    `key:"tls"`
	// MaxConns bounds the open connections of one process. Default 16.
	MaxConns int `key:"max-conns"`
}

// Redis holds the index of the near future.
type Redis struct {
	// Addrs are host:port: of the server, of some nodes of a cluster, or of the sentinels. Default 127.0.0.1:6379.
	Addrs    []string `key:"addrs"`
	User     string   `key:"user"`
	Password string   `key:"password" secret:"yes"`
	// DB is the number of the database. Default 0.
	DB int `key:"db"`
	// Cluster says that Addrs are nodes of a Redis Cluster. Default false.
	Cluster bool `key:"cluster"`
	// Master is the name under which the sentinels at Addrs know the master. Default none: no sentinels.
	Master string `key:"master"`
	// Prefix separates installations that share a server. Default "notyet".
	Prefix string `key:"prefix"`
	TLS    TLS    `key:"tls"`
}

// ZooKeeper shares the slots among the dispatchers.
type ZooKeeper struct {
	// Servers are host:port of the ensemble. Default 127.0.0.1:2181.
	Servers []string `key:"servers"`
	// Root is the path under which everything is kept. Default "/notyet".
	Root string `key:"root"`
	// Auth is user:password of digest authentication. Everything below Root is then open to that user alone; all
	// dispatchers need the same. Default none: open to whoever can connect.
	Auth string `key:"auth" secret:"yes"`
	TLS  TLS    `key:"tls"`
	// SessionTimeout is how long a silent dispatcher keeps its slots. Default 4s.
	SessionTimeout time.Duration `key:"session-timeout"`
}

// HTTP serves the API and, unless ops.addr is set, health and metrics.
type HTTP struct {
	// Addr is host:port to listen on, and for commands where to find the API. Default 127.0.0.1:8080.
	Addr string `key:"addr"`
	// Tokens is a YAML file of who may use the API: a list of {name, sha256, role, topics}, see "notyet token new". It is
	// read again when it changes. Default none: the API answers on loopback addresses only.
	Tokens string `key:"tokens"`
	// Hosts are names that requests may have in their Host header beside loopback ones, where there are no tokens.
	Hosts []string `key:"hosts"`
	// Token is what commands show to the API. Default none.
	Token string  `key:"token" secret:"yes"`
	TLS   HTTPTLS `key:"tls"`
	// MaxConns bounds the connections that are open at a time; others wait. Default 1000.
	MaxConns int `key:"max-conns"`
	// Pprof serves Go's profiles under /debug/pprof. Default false.
	Pprof bool `key:"pprof"`
}

// HTTPTLS makes http.addr speak HTTPS. Default plain HTTP.
type HTTPTLS struct {
	Enabled bool `key:"enabled"`
	// Cert and Key are PEM files that services show. They are read again when they change.
	Cert string `key:"cert"`
	Key  string `key:"key"`
	// CA is a PEM file of the authorities that commands trust. Default the system's.
	CA string `key:"ca"`
	// ServerName is the name that commands expect in the certificate. Default the host in http.addr.
	ServerName string `key:"server-name"`
}

// Ops serves health and metrics.
type Ops struct {
	// Addr is host:port for them alone, always plain HTTP. Default none: they are served at http.addr.
	Addr string `key:"addr"`
}

// Intakes are the topics that requests come from, and what holds for those that say nothing else.
type Intakes struct {
	// Topics are names, or in the file also mappings with the keys of Intake. Default notyet.intake.
	Topics []Intake `key:"topics"`
	// AllowedTargets are patterns (path.Match) of which a target topic must match one, for every op: who may not schedule
	// for a topic may not cancel, fire or replace there either. Default every topic, of which scanners warn; * means that
	// it is meant.
	AllowedTargets []string `key:"allowed-targets"`
	// MaxDelay is the horizon; a request beyond it is rejected. Default 10 years.
	MaxDelay time.Duration `key:"max-delay"`
	// MaxValueBytes is the largest value. Default 1MiB, at most 8MiB.
	MaxValueBytes Size `key:"max-value-bytes"`
}

// Intake is one intake topic; what it leaves out is that of Intakes.
type Intake struct {
	Topic          string        `key:"topic"`
	AllowedTargets []string      `key:"allowed-targets"`
	MaxDelay       time.Duration `key:"max-delay"`
	MaxValueBytes  Size          `key:"max-value-bytes"`
}

// Topic is one of our own topics.
type Topic struct {
	Topic string `key:"topic"`
}

// Scanner takes requests and reports.
type Scanner struct {
	// Group is the consumer group. Default notyet-scanner.
	Group string `key:"group"`
}

// Dispatcher delivers.
type Dispatcher struct {
	// MemberID names this process among the dispatchers. Default host, process id and a random part.
	MemberID string `key:"member-id"`
	// LookAhead is how long before its due time a task is taken; from then on a cancel is too late. Default 400ms.
	LookAhead time.Duration `key:"look-ahead"`
	// BurstLookAhead is how far the look-ahead may grow before so many tasks that they could not be read within it: 30,000
	// a second. One that is not above look-ahead keeps it as it is. Default 3s.
	BurstLookAhead time.Duration `key:"burst-look-ahead"`
	// StageTasks and StageBytes bound what waits in memory for its instant. Default 100000 and 256MiB.
	StageTasks int  `key:"stage-tasks"`
	StageBytes Size `key:"stage-bytes"`
	// Retention is how long a task can be asked about and keeps its version once it has ended, counted from its due time
	// or, where a caller or a consumer ended it, from then. Default 168h.
	Retention time.Duration `key:"retention"`
	// DrainTimeout bounds, at a stop, the wait for Kafka's answers to what was sent. Default 20s.
	DrainTimeout time.Duration `key:"drain-timeout"`
	// UndeliverableAfter is how long the tasks of a target topic that does not exist, or may not be written, are tried before they
	// become dead letters. 0s: once. Default 1m.
	UndeliverableAfter time.Duration `key:"undeliverable-after"`
}

// DeadLetters are kept in the database.
type DeadLetters struct {
	// Retention is how long a dead letter is kept, counted from its task's death, replayed or not. Default 0s: for ever.
	Retention time.Duration `key:"retention"`
}

// SendLog is a dispatcher's local record of what it sent.
type SendLog struct {
	// Dir belongs to one dispatcher at a time. Default ./notyet-sendlog.
	Dir string `key:"dir"`
	// Retention is how long entries are kept. Default 72h.
	Retention time.Duration `key:"retention"`
}

// Migrate is what the command of that name makes; topics that exist are left as they are.
type Migrate struct {
	// Partitions of each topic. Default 12.
	Partitions int `key:"partitions"`
	// Replication is the number of copies. Default 0: the broker's default.
	Replication int `key:"replication"`
	// Retention of intake and report topics: how long a scanner may be away, or a database backup may be old, before
	// requests are lost. Default 336h.
	Retention time.Duration `key:"retention"`
}

// Log is what a service writes to its standard error.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `key:"level"`
	// Format is json or console. Default json.
	Format string `key:"format"`
}

// Default is a Config in which nothing was set.
func Default() Config {
	return Config{
		Kafka:     Kafka{Brokers: []string{"127.0.0.1:9092"}, ClientID: "notyet"},
		MySQL:     MySQL{MaxConns: 16},
		Redis:     Redis{Addrs: []string{"127.0.0.1:6379"}, Prefix: "notyet"},
		ZooKeeper: ZooKeeper{Servers: []string{"127.0.0.1:2181"}, Root: "/notyet", SessionTimeout: 4 * time.Second},
		HTTP:      HTTP{Addr: "127.0.0.1:8080", MaxConns: 1000},
		Intake: Intakes{
			Topics:   []Intake{{Topic: schemas.TopicIntake}},
			MaxDelay: schemas.DefaultMaxDelay, MaxValueBytes: schemas.DefaultMaxValueBytes,
		},
		Reports:    Topic{schemas.TopicReports},
		Results:    Topic{schemas.TopicResults},
		Scanner:    Scanner{Group: "notyet-scanner"},
		Dispatcher: Dispatcher{LookAhead: 400 * time.Millisecond, BurstLookAhead: 3 * time.Second, StageTasks: 100_000, StageBytes: 256 << 20, Retention: 7 * 24 * time.Hour, DrainTimeout: 20 * time.Second, UndeliverableAfter: time.Minute},
		SendLog:    SendLog{Dir: "notyet-sendlog", Retention: 72 * time.Hour},
		Migrate:    Migrate{Partitions: 12, Retention: 14 * 24 * time.Hour},
		Log:        Log{Level: "info", Format: "json"},

		Slots: 64, Window: 2 * time.Hour, StopTimeout: 30 * time.Second,
	}
}

// Limits is what the named intake topic accepts; ok is false when it is none of ours.
func (c *Config) Limits(topic string) (l schemas.Limits, ok bool) {
	for _, in := range c.Intake.Topics {
		if in.Topic == topic {
			return schemas.Limits{
				MaxDelay: in.MaxDelay, MaxValueBytes: int(in.MaxValueBytes), AllowedTargets: in.AllowedTargets, InternalTopics: c.OwnTopics(),
			}, true
		}
	}
	return schemas.Limits{}, false
}

// Unrestricted are the intake topics whose writers may reach every target topic because nobody said otherwise.
func (c *Config) Unrestricted() []string {
	var names []string
	for _, in := range c.Intake.Topics {
		if len(in.AllowedTargets) == 0 {
			names = append(names, in.Topic)
		}
	}
	return names
}

// IntakeNames are the names of the intake topics.
func (c *Config) IntakeNames() []string {
	names := make([]string, 0, len(c.Intake.Topics))
	for _, in := range c.Intake.Topics {
		names = append(names, in.Topic)
	}
	return names
}

// OwnTopics are all topics that belong to the installation and are never a target.
func (c *Config) OwnTopics() []string {
	return append(c.IntakeNames(), c.Reports.Topic, c.Results.Topic)
}
