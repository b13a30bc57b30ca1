package chaos

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of Cluster.db
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/test/chaos/proxy"
)

// Names on the servers that only this run uses.
const (
	intakeTopic  = "notyet.intake"
	reportsTopic = "notyet.reports"
	resultsTopic = "notyet.results"
	ackTopic     = "chaos.ack"   // its tasks wait for reports
	limitTopic   = "chaos.limit" // its message limit is lowered
	floodTopic   = "chaos.flood" // bursts
	groupName    = "notyet-scanner"
	database     = "chaos"
)

var plainTopics = []string{"chaos.a", "chaos.b", "chaos.c", "chaos.d"}

func allTargets() []string { return append([]string{ackTopic, limitTopic, floodTopic}, plainTopics...) }

const (
	slotCount = 16
	partCount = 4

	sentinelMaster = "notyet" // in scripts/servers.d/redis.sh
)

// session is the session timeout of the election, which is the product's default.
const session = 4 * time.Second

// Cluster is servers and processes. The harness itself connects to the servers without a proxy.
type Cluster struct {
	Servers *Servers
	names   []string // of its servers
	dir     string
	binary  string // the program of this tree
	before  string // that of an older version, with which an upgrade begins; "": none
	log     *zap.Logger
	rng     *rand.Rand // of the machines' clocks

	primary   *proxy.Proxy // leads to the database server that takes writes
	databases []*store     // in their order
	client    *kgo.Client
	large     *kgo.Client // sends records that exceed our limits, and compress to less than the broker's
	attacker  *kgo.Client // of the tenant that attacks
	receivers *receivers  // of callbacks
	admin     *kadm.Client
	nodes     []*node
}

// store is one of the databases.
type store struct {
	server  string
	number  int
	*sql.DB // as root, which can read while others cannot write
}

// NewCluster builds the program, starts empty servers and everything on them. Logs and send logs go
// to the run's folder.
func NewCluster(ctx context.Context, cfg Config, log *zap.Logger) (*Cluster, error) {
	dir, servers := cfg.Dir, filepath.Join(cfg.Dir, "servers")
	c := &Cluster{Servers: NewServers(cfg.Root, servers, cfg.BasePort, cfg.Form, max(cfg.Several, 1)), names: cfg.servers(), dir: dir, binary: filepath.Join(dir, "notyet"), log: log, rng: rand.New(rand.NewPCG(cfg.Seed, 4))}
	if err := build(ctx, cfg.Root, c.binary); err != nil {
		return nil, err
	}
	if cfg.Before != "" {
		c.before = filepath.Join(dir, "notyet-before")
		if err := buildCommit(ctx, cfg.Root, cfg.Before, c.before); err != nil {
			return nil, err
		}
	}
	if err := c.Servers.Up(ctx, c.names...); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{c.connect, c.prepare, c.startNodes} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// build builds the program of a tree. The tag makes clocks adjustable; no fault point is armed.
func build(ctx context.Context, root, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "faultpoints", "-o", binary, "./cmd/notyet")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building notyet in %s: %w: %s", root, err, out)
	}
	return nil
}

// first returns the program with which the run begins.
func (c *Cluster) first() string { return cmp.Or(c.before, c.binary) }

func (c *Cluster) connect(context.Context) error {
	var err error
	if c.primary, err = proxy.Start(c.Servers.addr(mysqlServer)); err != nil {
		return err
	}
	for k, server := range c.Servers.databases() {
		addr := c.Servers.addr(server)
		if k == 0 {
			addr = c.primary.Addr()
		}
		db, err := sql.Open("mysql", "root@tcp("+addr+")/?multiStatements=true&timeout=2s&readTimeout=60s")
		if err != nil {
			return err
		}
		c.databases = append(c.databases, &store{server, k, db})
	}
	if c.client, err = kgo.NewClient(kgo.SeedBrokers(c.brokers()...), kgo.RecordDeliveryTimeout(30*time.Second), kgo.MaxBufferedRecords(500_000),
		kgo.ProducerLinger(2*time.Millisecond)); err != nil {
		return err
	}
	if c.large, err = kgo.NewClient(kgo.SeedBrokers(c.brokers()...), kgo.ProducerBatchMaxBytes(64<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression())); err != nil {
		return err
	}
	if c.attacker, err = kgo.NewClient(kgo.SeedBrokers(c.brokers()...), kgo.MaxBufferedRecords(100_000)); err != nil {
		return err
	}
	if c.receivers, err = newReceivers(); err != nil {
		return err
	}
	c.admin = kadm.NewClient(c.client)
	return errors.Join(c.writeSettings(slowRate), c.writeTokens())
}

func (c *Cluster) prepare(ctx context.Context) error {
	// This user cannot write while the server is read-only.
	for _, d := range c.databases {
		if _, err := d.ExecContext(ctx, "CREATE DATABASE "+database+" CHARACTER SET utf8mb4; CREATE USER 'chaos'@'%' IDENTIFIED BY 'chaos'; GRANT ALL PRIVILEGES ON "+database+".* TO 'chaos'@'%'"); err != nil {
			return fmt.Errorf("making the database: %w", err)
		}
	}
	if err := c.topics(ctx, slices.Concat(allTargets(), otherIntakes, []string{intakeTopic, reportsTopic, resultsTopic})...); err != nil {
		return err
	}
	if _, err := c.command(ctx, c.first(), "migrate"); err != nil {
		return err
	}
	return c.share(ctx)
}

// share lets each database have its part of the targets.
func (c *Cluster) share(ctx context.Context) error {
	for k := range c.databases[1:] {
		n := strconv.Itoa(k + 1)
		if _, err := c.command(ctx, c.binary, "shards", "add", n); err != nil {
			return err
		}
		if _, err := c.command(ctx, c.binary, "shards", "move", "*", n, "--part", fmt.Sprintf("%d/%d", k+2, len(c.databases)), "--wait"); err != nil {
			return err
		}
	}
	return nil
}

// command runs a command of a program, and returns what it printed.
func (c *Cluster) command(ctx context.Context, binary string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(c.env(), c.reach(c.Servers.addr)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("notyet %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// stamped are the targets whose records carry the time that the sender gives them, as Kafka makes
// topics by default, so a broker judges it. The others' carry the broker's time of arrival, which judges
// the sender.
var stamped = []string{"chaos.a", "chaos.b", limitTopic, floodTopic}

// topics creates topics.
func (c *Cluster) topics(ctx context.Context, names ...string) error {
	var specs []kafka.TopicSpec
	for _, n := range names {
		kind := "LogAppendTime"
		if slices.Contains(stamped, n) {
			kind = "CreateTime"
		}
		specs = append(specs, kafka.TopicSpec{Name: n, Partitions: partCount, Configs: map[string]string{"message.timestamp.type": kind}})
	}
	_, err := kafka.EnsureTopics(ctx, c.client, specs)
	return err
}

func (c *Cluster) startNodes(context.Context) error {
	for _, role := range []struct {
		name  string
		count int
	}{{scannerRole, 2}, {dispatcherRole, 3}} {
		for i := range role.count {
			n, err := c.newNode(role.name+strconv.Itoa(i+1), role.name)
			if err != nil {
				return err
			}
			c.nodes = append(c.nodes, n)
			if err := n.start(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) dsn(addr string) string { return "chaos:chaos@tcp(" + addr + ")/" + database }

func (c *Cluster) brokers() []string { return strings.Split(c.Servers.addr(kafkaServer), ",") }

// reach is the environment of a process that finds each server at its address.
func (c *Cluster) reach(addr func(server string) string) []string {
	var env []string
	for _, server := range c.names {
		switch server {
		case kafkaServer:
			env = append(env, "NOTYET_KAFKA_BROKERS="+addr(server))
		case mysqlServer:
			var all []string
			for _, server := range c.Servers.databases() {
				all = append(all, c.dsn(addr(server)))
			}
			if len(all) == 1 {
				env = append(env, "NOTYET_MYSQL_DSN="+c.dsn(addr(server)))
			} else {
				env = append(env, "NOTYET_MYSQL_SHARDS="+strings.Join(all, ","))
			}
		case redisServer:
			env = append(env, "NOTYET_REDIS_ADDRS="+addr(server))
			switch c.Servers.form {
			case Clustered:
				env = append(env, "NOTYET_REDIS_CLUSTER=true")
			case Sentinels:
				env = append(env, "NOTYET_REDIS_MASTER="+sentinelMaster)
			}
		case zookeeperServer:
			env = append(env, "NOTYET_ZOOKEEPER_SERVERS="+addr(server))
		}
	}
	return env
}

// has tells whether the cluster has a server.
func (c *Cluster) has(server string) bool { return slices.Contains(c.names, server) }

// env is the environment that all processes share.
func (c *Cluster) env() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "NOTYET_") {
			env = append(env, kv)
		}
	}
	if c.has(zookeeperServer) {
		env = append(env, "NOTYET_ZOOKEEPER_SESSION_TIMEOUT="+session.String())
	} else {
		env = append(env, "NOTYET_ELECTION_KIND=mysql", "NOTYET_INDEX_KIND=mysql", "NOTYET_ELECTION_SESSION_TIMEOUT="+session.String())
	}
	env = append(env, c.tenancy()...)
	return append(env, "NOTYET_SLOTS="+strconv.Itoa(slotCount), "NOTYET_MIGRATE_PARTITIONS="+strconv.Itoa(partCount), "NOTYET_SCANNER_GROUP="+groupName,
		"NOTYET_LOG_FORMAT=console", "NOTYET_DISPATCHER_UNDELIVERABLE_AFTER=5s")
}

func (c *Cluster) of(role string) []*node {
	var out []*node
	for _, n := range c.nodes {
		if n.role == role {
			out = append(out, n)
		}
	}
	return out
}

// AwaitReady waits until every process is ready and every slot has a living owner that makes
// progress.
func (c *Cluster) AwaitReady(ctx context.Context, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var problem string
	for {
		if problem = c.broken(ctx); problem == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not whole after %v: %s%s", bound, problem, c.logsOfUnready())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// logsOfUnready returns the last lines of the processes that are not ready.
func (c *Cluster) logsOfUnready() string {
	var out strings.Builder
	for _, n := range c.nodes {
		if !n.ready(context.Background()) {
			log, err := os.ReadFile(n.log())
			lines := strings.Split(strings.TrimSpace(string(log)), "\n")
			fmt.Fprintf(&out, "\n%s: %s %v", n.name, strings.Join(lines[max(0, len(lines)-10):], "\n"), err)
		}
	}
	return out.String()
}

// broken returns what is wrong, or "".
func (c *Cluster) broken(ctx context.Context) string {
	for _, n := range c.nodes {
		if !n.ready(ctx) {
			return n.name + " is not ready"
		}
	}
	for _, d := range c.databases {
		slots, err := d.slots(ctx)
		if err != nil {
			return err.Error()
		}
		owners := map[string]bool{}
		// From there on, slots were given up. In older tables none are.
		given := d.count(ctx, "SELECT MAX(GREATEST(base, target)) FROM "+database+".slots")
		if given < 0 {
			given = int64(len(slots))
		}
		for _, s := range slots[:min(int(given), len(slots))] {
			owners[s.Owner] = true
		}
		for _, n := range c.of(dispatcherRole) {
			if !owners[n.name] {
				return fmt.Sprintf("%s owns no slot of %s", n.name, d.server)
			}
			delete(owners, n.name)
		}
		for o := range owners {
			return fmt.Sprintf("slots of %s are owned by '%s'", d.server, o)
		}
	}
	return ""
}

// Close ends all processes and servers.
func (c *Cluster) Close() error {
	for _, n := range c.nodes {
		n.close()
	}
	for _, client := range []*kgo.Client{c.client, c.large, c.attacker} {
		if client != nil {
			client.Close()
		}
	}
	if c.receivers != nil {
		_ = c.receivers.server.Close()
	}
	for _, d := range c.databases {
		_ = d.Close()
	}
	if c.primary != nil {
		c.primary.Close()
	}
	return c.Servers.Down(context.WithoutCancel(context.Background()))
}
