package chaos

import (
	"bytes"
	"context"
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
)

var serverNames = []string{kafkaServer, mysqlServer, redisServer, zookeeperServer}

// smallServers are those of the small form: the database is election and index.
var smallServers = []string{kafkaServer, mysqlServer}

// Servers is a set of real servers for this run alone, so they may be broken.
type Servers struct {
	script string // scripts/servers
	dir    string
	ports  map[string]int
}

// NewServers returns a set whose ports are base+92 (Kafka), +306 (MariaDB), +379 (Redis) and +181
// (ZooKeeper).
func NewServers(root, dir string, base int) *Servers {
	return &Servers{script: filepath.Join(root, "scripts", "servers"), dir: dir, ports: map[string]int{
		kafkaServer: base + 92, mysqlServer: base + 306, redisServer: base + 379, zookeeperServer: base + 181,
	}}
}

func (s *Servers) addr(name string) string { return fmt.Sprintf("127.0.0.1:%d", s.ports[name]) }

func (s *Servers) home(name string) string { return filepath.Join(s.dir, name) }

func (s *Servers) call(ctx context.Context, command string, names ...string) error {
	cmd := exec.CommandContext(ctx, s.script, append([]string{command}, names...)...)
	cmd.Env = append(os.Environ(), "SERVERS_DIR="+s.dir, "SERVERS_MYSQL_BUFFER_POOL=512M",
		fmt.Sprintf("SERVERS_KAFKA_PORT=%d", s.ports[kafkaServer]), fmt.Sprintf("SERVERS_MYSQL_PORT=%d", s.ports[mysqlServer]),
		fmt.Sprintf("SERVERS_REDIS_PORT=%d", s.ports[redisServer]), fmt.Sprintf("SERVERS_ZOOKEEPER_PORT=%d", s.ports[zookeeperServer]))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/servers %s %s: %w: %s", command, strings.Join(names, " "), err, out)
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

// redis runs one command.
func (s *Servers) redis(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-p", strconv.Itoa(s.ports[redisServer])}, args...)...).CombinedOutput()
	if err == nil && bytes.HasPrefix(out, []byte("ERR")) { // an error has no exit code of its own
		err = errors.New("refused")
	}
	if err != nil {
		return "", fmt.Errorf("redis %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// zookeeper sends one of ZooKeeper's four-letter words.
func (s *Servers) zookeeper(word string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.addr(zookeeperServer), 2*time.Second)
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
