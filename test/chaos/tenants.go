package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Intakes of other tenants than the one whose requests are judged one by one.
const (
	callsIntake  = "chaos.intake.calls"  // of a tenant with callbacks, while it is beside an attack
	attackIntake = "chaos.intake.attack" // of the tenant that attacks
	slowIntake   = "chaos.intake.slow"   // likewise, with few requests a second
)

var otherIntakes = []string{callsIntake, attackIntake, slowIntake}

// Quotas of the tenant that attacks.
const (
	attackNames   = 1000      // missing topics
	slowPending   = 100       // pending tasks
	slowRate      = 10        // requests a second
	unlimitedRate = 1_000_000 // likewise, when what waits is to be read
)

// Tokens of the API.
const (
	adminToken = "nyt_admin"
	slowToken  = "nyt_slow" // and a number
	slowTokens = 2          // of the tenant that attacks
)

// writeSettings writes the processes' configuration file, with a number of requests a second.
func (c *Cluster) writeSettings(rate int) error {
	text := fmt.Sprintf("intake:\n  topics:\n    - %s\n    - %s\n    - {topic: %s, unknown-targets: %d}\n    - {topic: %s, requests-per-second: %d, pending-tasks: %d}\n",
		intakeTopic, callsIntake, attackIntake, attackNames, slowIntake, rate, slowPending)
	path := c.settingsFile()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (c *Cluster) writeTokens() error {
	var b strings.Builder
	entry := func(topics, name, token, role string) {
		sum := sha256.Sum256([]byte(token))
		fmt.Fprintf(&b, "- {topics: [%q], name: %s, sha256: %s, role: %s}\n", topics, name, hex.EncodeToString(sum[:]), role)
	}
	entry("*", "admin", adminToken, "admin")
	for i := range slowTokens {
		entry(attackTopics+"*", fmt.Sprint("slow-", i), fmt.Sprint(slowToken, i), "read")
	}
	return os.WriteFile(c.tokensFile(), []byte(b.String()), 0o600)
}

func (c *Cluster) settingsFile() string { return filepath.Join(c.dir, "notyet.yaml") }
func (c *Cluster) tokensFile() string   { return filepath.Join(c.dir, "tokens.yaml") }

// tenancy is the part of the processes' environment that is about tenants. The version before an upgrade need not know of them.
func (c *Cluster) tenancy() []string {
	if c.before != "" {
		return nil
	}
	return []string{
		"NOTYET_CONFIG=" + c.settingsFile(), "NOTYET_HTTP_TOKENS=" + c.tokensFile(),
		"NOTYET_CALLBACK_ENABLED=true", "NOTYET_CALLBACK_ALLOW_HTTP=true", "NOTYET_CALLBACK_ALLOWED_NETWORKS=127.0.0.0/8", "NOTYET_CALLBACK_MAX_IN_FLIGHT_TOTAL=256",
	}
}

// setRate has the processes take another number of requests a second over.
func (c *Cluster) setRate(rate int) error {
	err := c.writeSettings(rate)
	for _, n := range c.of(scannerRole) {
		err = errors.Join(err, n.signal(syscall.SIGHUP))
	}
	return err
}

// receivers answers callbacks at each loopback address, and so at as many origins as are asked for.
type receivers struct {
	server *http.Server
	port   int

	mu    sync.Mutex
	came  map[string]time.Time // by id: when the first request came
	first map[string]bool      // origins that have answered once
	hold  chan struct{}        // while it is open these answer no more; nil: they answer
}

func newReceivers() (*receivers, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	r := &receivers{port: l.Addr().(*net.TCPAddr).Port, came: map[string]time.Time{}, first: map[string]bool{}}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 30 * time.Second}
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

// goodHost is the one origin that always answers. Origin n is another one.
const goodHost = "127.0.0.1"

func (r *receivers) good() string {
	return "http://" + net.JoinHostPort(goodHost, strconv.Itoa(r.port))
}

func (r *receivers) origin(n int) string {
	return fmt.Sprintf("http://127.%d.%d.%d:%d", 1+n/62_500, n/250%250, 1+n%250, r.port)
}

func (r *receivers) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	at := time.Now()
	host, _, _ := net.SplitHostPort(req.Host)
	if hold := r.note(host, req.Header.Get("Notyet-Id"), at); hold != nil {
		select {
		case <-hold:
		case <-req.Context().Done():
		}
	}
}

// note returns what to wait for before the answer; nil: nothing.
func (r *receivers) note(host, id string, at time.Time) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if host == goodHost {
		if _, again := r.came[id]; !again {
			r.came[id] = at
		}
		return nil
	}
	if answered := r.first[host]; answered {
		return r.hold
	}
	r.first[host] = true
	return nil
}

// begin has origins answer once more, and then no more until end is called.
func (r *receivers) begin() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hold := make(chan struct{})
	r.hold, r.first = hold, map[string]bool{}
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hold = nil
		close(hold)
	})
}

// answered returns how many origins have answered.
func (r *receivers) answered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.first)
}

// arrival returns when the first request of a callback came.
func (r *receivers) arrival(id string) (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok = r.came[id]
	return at, ok
}

// overdue returns how many tasks should have been delivered a second ago and are not.
func (c *Cluster) overdue(ctx context.Context) int64 {
	return c.sum(ctx, "SELECT COUNT(*) FROM "+database+".tasks t JOIN "+database+".slots s ON s.slot = t.slot WHERE t.pos > s.done AND t.pos < ?", time.Now().Add(-time.Second).UnixMilli())
}
