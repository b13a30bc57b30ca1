package election

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/notyet/notyet/internal/defaults"
)

// Config says how soon an unresponsive member loses its slots and, for ZooKeeper, how to reach the
// ensemble: Servers, Root, Auth, TLS and Dial. NewDatabase ignores the latter.
type Config struct {
	// Servers are the ensemble's addresses, host or host:port (2181 if left out). Names are
	// resolved at each connect, so a server may change its address. Required.
	Servers []string
	// Root is the absolute path of all znodes. One installation owns the root. Default "/notyet".
	Root string
	// Installation is the id of the installation, from the database. A member does not join under
	// another installation's root. Default none: every user of the root is a member.
	Installation string
	// Auth is user:password for digest authentication. Then only the user has access below Root;
	// existing open znodes are closed to others. Default none: every connection has access.
	Auth string
	// TLS, if set, is asked for the configuration of each new connection. Without a ServerName the
	// host in Servers is expected. Default plain TCP.
	TLS func() *tls.Config
	// MemberID names this start of the process. Do not reuse an id while another process with the
	// same id may live: the member would wait until the other one is gone. Default
	// hostname-pid-uuid.
	MemberID string
	// Instance names this process start, once and for all. Default a new one.
	Instance string
	// Ended are the Instances of certainly ended processes. Their candidates go as soon as this
	// member has joined, so their slots do not wait for a session. Never name a process that only
	// seems to have ended: others would take slots on which the process still acts. Default none.
	Ended []string
	// Dial makes connections, with TLS too. Default TCP; a test in virtual time has its own.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// SessionTimeout is how long the ensemble keeps an unresponsive member. The servers limit the
	// time to 2–20 of their ticks; if they grant less, TrustWindow shrinks in proportion. Default
	// 4s. A shorter one means sooner takeovers, but mistakes short pauses for deaths.
	SessionTimeout time.Duration
	// TrustWindow is how long an answer stays valid, counted from the sending of its request.
	// TrustWindow must be shorter than SessionTimeout: within the difference a member has to stop
	// before others take over. Default 2/3 of SessionTimeout.
	TrustWindow time.Duration
	// FailingAfter is how long a process has to fail (see Source.Report) before its candidate says
	// so. The process leaves after another one has worked for twice as long meanwhile. Default 5s.
	FailingAfter time.Duration
	// Slots returns the number of slots, from the database. Only the leader calls it. Required.
	Slots func(ctx context.Context) (int, error)
	// Can are words for what this member can do. Members of an earlier release have none.
	Can []string
	// Required returns the words for what members must be able to do now, from the database.
	// Default nothing.
	Required func(ctx context.Context) ([]string, error)
}

// withDefaults fills in defaults and refuses unworkable settings.
func (c Config) withDefaults() (Config, error) {
	c.Root = cmp.Or(c.Root, defaults.ZooKeeperRoot)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, defaults.SessionTimeout)
	c.TrustWindow = cmp.Or(c.TrustWindow, c.SessionTimeout*2/3)
	c.FailingAfter = cmp.Or(c.FailingAfter, defaults.FailingAfter)
	c.MemberID = cmp.Or(c.MemberID, defaultMemberID())
	c.Instance = cmp.Or(c.Instance, uuid.NewString())
	if c.Required == nil {
		c.Required = func(context.Context) ([]string, error) { return nil, nil }
	}
	return c, c.validate()
}

func (c Config) validate() error {
	switch {
	case c.Slots == nil:
		return errors.New("validating election config: no slot count")
	case c.SessionTimeout < 10*time.Millisecond:
		return fmt.Errorf("validating election config: session timeout %s is below 10ms", c.SessionTimeout)
	case c.TrustWindow < 0 || c.TrustWindow >= c.SessionTimeout:
		return fmt.Errorf("validating election config: trust window %s is not within the session timeout %s", c.TrustWindow, c.SessionTimeout)
	}
	return nil
}

func (c Config) validateZooKeeper() error {
	switch {
	case len(c.Servers) == 0:
		return errors.New("validating election config: no servers")
	case !strings.HasPrefix(c.Root, "/") || strings.HasSuffix(c.Root, "/") || strings.Contains(c.Root, "//"):
		return fmt.Errorf("validating election config: root %q is not an absolute path below /", c.Root)
	case c.Auth != "" && !strings.Contains(c.Auth, ":"):
		return errors.New("validating election config: auth is not user:password")
	}
	return nil
}

func defaultMemberID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // the uuid alone makes the id unique
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString())
}
