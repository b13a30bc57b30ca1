package chaos

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The servers, by their names in scripts/servers.
const (
	kafkaServer     = "kafka"
	mysqlServer     = "mariadb"
	redisServer     = "redis"
	zookeeperServer = "zookeeper"
	sentinel        = "sentinel"
)

var serverNames = []string{kafkaServer, mysqlServer, redisServer, zookeeperServer}

// smallServers are those of the small form: the database is election and index.
var smallServers = []string{kafkaServer, mysqlServer}

// Form is how many servers there are of each.
type Form int

// The forms of the servers.
const (
	Single    Form = iota // one of each
	Clustered             // scripts/servers --cluster: brokers, ZooKeepers, a database with a replica, Redis Cluster
	Sentinels             // the same, with sentinels in Redis Cluster's place
)

// Servers is a set of real servers for this run alone, so they may be broken. A server is named as in scripts/servers.
type Servers struct {
	script string // scripts/servers
	dir    string
	form   Form
	dbs    int            // how many databases
	ports  map[string]int // of each kind; several servers of a kind are 10 ports apart
}

// NewServers returns a set whose ports are base+92 (Kafka), +306 (MariaDB), +379 (Redis) and +181
// (ZooKeeper).
func NewServers(root, dir string, base int, form Form, databases int) *Servers {
	return &Servers{script: filepath.Join(root, "scripts", "servers"), dir: dir, form: form, dbs: databases, ports: map[string]int{
		kafkaServer: base + 92, mysqlServer: base + 306, redisServer: base + 379, sentinel: base + 384, zookeeperServer: base + 181,
	}}
}

// databases returns the servers of the databases, in their order.
func (s *Servers) databases() []string {
	names := []string{s.primary()}
	for n := 2; n <= s.dbs; n++ {
		names = append(names, mysqlServer+"-"+strconv.Itoa(n))
	}
	return names
}

// isDatabase tells whether a server is one.
func isDatabase(name string) bool {
	kind, _, _ := strings.Cut(name, "-")
	return kind == mysqlServer
}

// members returns the servers of a kind.
func (s *Servers) members(kind string) []string {
	if s.form == Single {
		return []string{kind}
	}
	count := 3
	switch {
	case kind == redisServer && s.form == Clustered:
		count = 6
	case kind == redisServer, kind == mysqlServer:
		count = 2
	}
	var names []string
	for i := range count {
		names = append(names, kind+"-"+strconv.Itoa(i+1))
	}
	return names
}

func (s *Servers) port(name string) int {
	kind, number, clustered := strings.Cut(name, "-")
	n := 1
	if clustered {
		n, _ = strconv.Atoi(number)
	}
	return s.ports[kind] + 10*(n-1)
}

// addr returns the address of a server, or those of a kind that a client is given, separated by commas.
func (s *Servers) addr(name string) string {
	names := []string{name}
	switch {
	case s.form == Single || strings.Contains(name, "-"):
	case name == mysqlServer:
		names = []string{s.primary()}
	case name == redisServer && s.form == Sentinels:
		names = s.members(sentinel)
	default:
		names = s.members(name)
	}
	return s.addrs(names)
}

func (s *Servers) addrs(names []string) string {
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf("127.0.0.1:%d", s.port(n)))
	}
	return strings.Join(all, ",")
}

// targets returns the addresses behind which a process's proxy stands.
func (s *Servers) targets(kind string) []string {
	all := s.addr(kind)
	if kind == redisServer && s.form == Sentinels {
		all += "," + s.addrs(s.members(redisServer))
	}
	return strings.Split(all, ",")
}

// primary returns the database server that takes writes.
func (s *Servers) primary() string {
	if s.form == Single {
		return mysqlServer
	}
	name, err := os.ReadFile(filepath.Join(s.dir, "primary"))
	if err != nil { // none was promoted yet
		return mysqlServer + "-1"
	}
	return strings.TrimSpace(string(name))
}

func (s *Servers) home(name string) string { return filepath.Join(s.dir, name) }

func (s *Servers) call(ctx context.Context, command string, names ...string) error {
	args := append([]string{command}, names...)
	if s.form != Single {
		args = append(args, "--cluster")
	}
	cmd := exec.CommandContext(ctx, s.script, args...)
	cmd.Env = append(os.Environ(), "SERVERS_DIR="+s.dir, fmt.Sprintf("SERVERS_DATABASES=%d", s.dbs), "SERVERS_MYSQL_BUFFER_POOL=512M",
		fmt.Sprintf("SERVERS_KAFKA_PORT=%d", s.ports[kafkaServer]), fmt.Sprintf("SERVERS_MYSQL_PORT=%d", s.ports[mysqlServer]),
		fmt.Sprintf("SERVERS_REDIS_PORT=%d", s.ports[redisServer]), fmt.Sprintf("SERVERS_ZOOKEEPER_PORT=%d", s.ports[zookeeperServer]))
	if s.form == Sentinels {
		cmd.Env = append(cmd.Env, "SERVERS_SENTINEL=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/servers %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Up starts servers; no names means all. They are ready when it returns.
func (s *Servers) Up(ctx context.Context, names ...string) error { return s.call(ctx, "up", names...) }

// Down stops servers gracefully.
func (s *Servers) Down(ctx context.Context, names ...string) error {
	return s.call(ctx, "down", names...)
}

// Signal sends a signal to a server and returns its pid.
func (s *Servers) Signal(name string, signal syscall.Signal) (int, error) {
	text, err := os.ReadFile(s.pidFile(name))
	if err != nil {
		return 0, fmt.Errorf("signalling %s: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("signalling %s: %w", name, err)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return 0, fmt.Errorf("signalling %s: %w", name, err)
	}
	return pid, nil
}

func (s *Servers) pidFile(name string) string { return filepath.Join(s.home(name), "pid") }

// Kill kills a server and returns when it is gone.
func (s *Servers) Kill(name string) error {
	pid, err := s.Signal(name, syscall.SIGKILL)
	if err != nil {
		return err
	}
	for range 500 {
		// A dead process can still have threads that hold its port.
		if !running(pid) && s.refuses(name) {
			return os.Remove(s.pidFile(name))
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("killing %s: process %d is still there", name, pid)
}

// refuses reports whether nothing listens at the server's port.
func (s *Servers) refuses(name string) bool {
	conn, err := net.DialTimeout("tcp", s.addr(name), time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

// running reports whether a process exists and is no zombie.
func running(pid int) bool {
	state, err := processState(pid)
	return err == nil && state != 'Z'
}

// processState returns the kernel's letter: R, S, D, T (stopped), Z.
func processState(pid int) (byte, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	i := bytes.LastIndexByte(stat, ')') // the name before it may hold anything
	if i < 0 || i+2 >= len(stat) {
		return 0, errors.New("a stat without a state")
	}
	return stat[i+2], nil
}

// redis runs one command on the only server.
func (s *Servers) redis(ctx context.Context, args ...string) (string, error) {
	return s.redisAt(ctx, redisServer, args...)
}

// redisAt runs one command on a server or sentinel.
func (s *Servers) redisAt(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-p", strconv.Itoa(s.port(name))}, args...)...).CombinedOutput()
	if err == nil && bytes.HasPrefix(out, []byte("ERR")) { // an error has no exit code of its own
		err = errors.New("refused")
	}
	if err != nil {
		return "", fmt.Errorf("redis %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// zookeeper sends one of ZooKeeper's four-letter words to each server and returns the answers of those that run.
func (s *Servers) zookeeper(word string) (string, error) {
	var all strings.Builder
	var errs []error
	for _, name := range s.members(zookeeperServer) {
		text, err := s.zookeeperAt(name, word)
		errs = append(errs, err)
		all.WriteString(text)
	}
	if all.Len() == 0 {
		return "", errors.Join(errs...)
	}
	return all.String(), nil
}

func (s *Servers) zookeeperAt(name, word string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.addr(name), 2*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte(word)); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	return string(out), err
}

// stopReplica stops the replica of the database from reading what the primary writes.
func (s *Servers) stopReplica(ctx context.Context) error {
	for _, name := range s.members(mysqlServer) {
		if name == s.primary() {
			continue
		}
		db, err := sql.Open("mysql", "root@tcp("+s.addr(name)+")/")
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, "STOP SLAVE IO_THREAD")
		return errors.Join(err, db.Close())
	}
	return nil
}
