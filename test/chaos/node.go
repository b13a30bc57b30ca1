package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/notyet/notyet/internal/machine/clockfile"
	"github.com/notyet/notyet/test/chaos/proxy"
	"github.com/notyet/notyet/test/freeport"
)

// node is one process of the program, with a proxy of its own in front of each server.
type node struct {
	name    string
	role    string // scanner or dispatcher
	binary  string
	dir     string
	env     []string
	http    string
	proxies map[string]*proxy.Proxy
	clocks  *clockfile.File // of its machine

	mu      sync.Mutex
	cmd     *exec.Cmd
	done    chan struct{}
	started time.Time
	wanted  bool // it should run: if it exits by itself it is restarted, as a supervisor would do
	exits   []exit
}

// exit is an unexpected exit of a process.
type exit struct {
	Node string
	At   int64
	Err  string
}

const (
	scannerRole    = "scanner"
	dispatcherRole = "dispatcher"
)

func (c *Cluster) newNode(name, role string) (*node, error) {
	n := &node{name: name, role: role, binary: c.first(), dir: c.dir, proxies: map[string]*proxy.Proxy{}}
	for _, server := range c.names {
		begin := proxy.Start
		switch {
		case server == kafkaServer:
			begin = proxy.StartKafka
		case server == redisServer && c.Servers.form != Single:
			begin = proxy.StartRedis
		}
		p, err := begin(c.Servers.targets(server)...)
		if err != nil {
			return nil, err
		}
		n.proxies[server] = p
	}
	var err error
	if n.http, err = freeport.Addr(); err != nil {
		return nil, err
	}
	if n.clocks, err = clockfile.Open(filepath.Join(n.dir, n.name+".clocks")); err != nil {
		return nil, err
	}
	n.clocks.Set(c.clocks())
	n.env = append(c.env(), "NOTYET_FAULT_CLOCKS="+filepath.Join(n.dir, n.name+".clocks"), "NOTYET_HTTP_ADDR="+n.http, "NOTYET_DISPATCHER_MEMBER_ID="+name, "NOTYET_SENDLOG_DIR="+n.sendlog())
	n.env = append(n.env, c.reach(func(server string) string { return n.proxies[server].Via(c.Servers.addr(server)) })...)
	return n, nil
}

func (n *node) log() string { return filepath.Join(n.dir, n.name+".log") }

func (n *node) sendlog() string { return filepath.Join(n.dir, n.name+"-sendlog") }

// sendlogOf is the send log of one database.
func (n *node) sendlogOf(d *store) string {
	if d.number == 0 {
		return n.sendlog()
	}
	return filepath.Join(n.sendlog(), fmt.Sprintf("shard-%d", d.number))
}

const (
	farthestClock = 2 * time.Hour
	fastestSlew   = 500 // ppm
)

// clocks draws those of a machine.
func (c *Cluster) clocks() clockfile.Clocks {
	return clockfile.Clocks{
		Offset: time.Duration(c.rng.Int64N(int64(2*farthestClock))) - farthestClock, PPM: c.rng.Int64N(2*fastestSlew) - fastestSlew, Since: time.Now(),
	}
}

// machine says what the clocks of the process's machine show.
func (n *node) machine() string {
	c := n.clocks.Get()
	return fmt.Sprintf("%s %v, slewed by %d ppm", n.name, c.Offset.Round(time.Second), c.PPM)
}

// metric reads one number from the process, by the beginning of its line.
func (n *node) metric(name string) (float64, error) {
	resp, err := http.Get("http://" + n.http + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", n.name, name)
}

// start runs the process until kill or stop. It restarts it whenever it exits by itself.
func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = true
	return n.spawn()
}

// spawn needs mu.
func (n *node) spawn() error {
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(n.binary, n.role)
	cmd.Env, cmd.Stdout, cmd.Stderr = n.env, log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", n.name, err)
	}
	n.cmd, n.done, n.started = cmd, make(chan struct{}), time.Now()
	go n.await(cmd, n.done)
	return nil
}

// startTime is how long a start takes at most. A process that cannot reach the database by then says so
// and ends, and its supervisor starts it again.
const startTime = 10 * time.Second

func (n *node) await(cmd *exec.Cmd, done chan struct{}) {
	err := cmd.Wait()
	close(done)
	n.mu.Lock()
	surprise := n.wanted && n.cmd == cmd
	if surprise && time.Since(n.started) > startTime {
		n.exits = append(n.exits, exit{n.name, time.Now().UnixMilli(), fmt.Sprint(err)})
	}
	n.mu.Unlock()
	if !surprise {
		return
	}
	time.Sleep(time.Second)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wanted && n.cmd == cmd {
		_ = n.spawn() // an error shows when the cluster does not recover
	}
}

func (n *node) unwant() (*exec.Cmd, chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = false
	return n.cmd, n.done
}

// kill sends SIGKILL and waits until the process is gone.
func (n *node) kill() {
	cmd, done := n.unwant()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	<-done
}

// stop sends SIGTERM. It returns an error if the exit takes too long or fails.
func (n *node) stop() error {
	code, err := n.terminate()
	if err == nil && code != 0 {
		err = fmt.Errorf("%s stopped with exit code %d", n.name, code)
	}
	return err
}

// terminate sends SIGTERM and waits until the process is gone. An error means that it did not exit
// within the time limit.
func (n *node) terminate() (code int, err error) {
	cmd, done := n.unwant()
	if cmd == nil {
		return 0, nil
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-done:
		return cmd.ProcessState.ExitCode(), nil
	case <-time.After(45 * time.Second):
		n.kill()
		return -1, fmt.Errorf("%s did not stop within 45 s", n.name)
	}
}

func (n *node) signal(s syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return errors.New("it does not run")
	}
	return n.cmd.Process.Signal(s)
}

func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd.Process.Pid
}

// ready asks the process's /readyz.
func (n *node) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (n *node) close() {
	n.kill()
	for _, p := range n.proxies {
		p.Close()
	}
}
