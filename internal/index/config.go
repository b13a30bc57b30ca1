// Package index is the near future of every slot, kept in Redis: tasks due soon go in, the time of
// each slot's next task comes out.
//
// The index is a hint and never decides anything. MySQL is the truth: a loss, a double or an
// outdated entry here costs precision or a wasted look, never a task. Nothing needs a script or a
// transaction: every write is one plain command that may run twice (go-redis repeats a command
// after a lost reply). Every write to a slot touches one hash tag, so the same code runs on a
// single server and on Redis Cluster.
//
// Keys, for prefix "notyet", an installation whose id begins with 5f0c1a2b, and slot 17:
//
//	{notyet:5f0c1a2b:17}:due    sorted set: member = decimal seq, score = pos (Unix ms)
//	{notyet:5f0c1a2b:17}:mark   string: the set holds every task with pos up to this (Unix ms)
//	notyet:5f0c1a2b:wake        pub/sub channel: "slot:pos slot:pos …"
//
// A channel is the whole server's, for any number of the database. So its name has the installation
// too.
package index

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/notyet/notyet/internal/defaults"
)

// Config is how to connect to Redis. The zero Config is one server on 127.0.0.1:6379.
type Config struct {
	// Addrs are host:port pairs: of the server, with Cluster of some of its nodes, with MasterName
	// of the sentinels. Default 127.0.0.1:6379.
	Addrs []string
	// Credentials are asked for each new connection to the server (to the master, not to the
	// sentinels). Default none.
	Credentials func() (user, password string)
	// SentinelCredentials are asked likewise, for the sentinels. Default none.
	SentinelCredentials func() (user, password string)
	// DB is the database number; a cluster has only 0. Default 0.
	DB int
	// Cluster means: Addrs name nodes of a Redis Cluster. The number of addresses is no sign of a
	// cluster. Default false.
	Cluster bool
	// MasterName, if set, is the sentinels' name of the master, and excludes Cluster.
	MasterName string
	// TLS, if set, is asked for the configuration of each new connection. Default plain TCP.
	TLS func() *tls.Config
	// Dial opens connections. Default TCP; a test in virtual time sets its own.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Prefix begins all keys, without braces (they would move the hash tag) or blanks. Default
	// "notyet".
	Prefix string
	// Installation is the id of the installation, and separates installations with the same server
	// and prefix. Default none: the same prefix means the same keys.
	Installation string

	// DialTimeout limits one attempt to connect. Default 1 s.
	DialTimeout time.Duration
	// Timeout limits one read and one write on a connection. Default 2 s. A dead server costs a
	// caller at most about 2 × (DialTimeout + Timeout): one try and one retry. The caller's context
	// can end this earlier.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{defaults.Redis}
	}
	c.Prefix = cmp.Or(c.Prefix, defaults.RedisPrefix)
	c.DialTimeout = cmp.Or(c.DialTimeout, time.Second)
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	return c
}

func (c Config) validate() error {
	switch {
	case strings.ContainsAny(c.Prefix, "{} \t\r\n"):
		return fmt.Errorf("redis prefix %q must not contain braces or white space", c.Prefix)
	case c.Cluster && c.MasterName != "":
		return errors.New("redis cluster and redis master name exclude each other")
	case c.Cluster && c.DB != 0:
		return fmt.Errorf("redis database %d: a cluster has only database 0", c.DB)
	case !c.Cluster && c.MasterName == "" && len(c.Addrs) > 1:
		return fmt.Errorf("%d redis addresses %v: set cluster or a master name, or give one address", len(c.Addrs), c.Addrs)
	case c.DialTimeout < 0 || c.Timeout < 0:
		return errors.New("redis timeouts must not be negative")
	}
	return nil
}

// explain names the setting behind an error.
func (x *Index) explain(err error) error {
	var unverified *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &unverified), errors.As(err, &notTLS), errors.As(err, &alert):
		return fmt.Errorf("%w (see redis.tls)", err)
	case !x.secured && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
		return fmt.Errorf("%w: a server that requires TLS (redis.tls) closes connections like this", err)
	case strings.HasPrefix(err.Error(), "WRONGPASS"), strings.HasPrefix(err.Error(), "NOAUTH"), strings.HasPrefix(err.Error(), "NOPERM"):
		return fmt.Errorf("%w (see redis.user and redis.password)", err)
	case strings.Contains(err.Error(), "sentinels") && (strings.Contains(err.Error(), "NOAUTH") || strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "NOPERM")):
		return fmt.Errorf("%w (see redis.sentinel-user and redis.sentinel-password)", err)
	}
	return err
}

// namespace begins keys and channel. 32 bits of the id are enough: equal ones cost time, no task.
func (c Config) namespace() string {
	if c.Installation == "" {
		return c.Prefix + ":"
	}
	return c.Prefix + ":" + c.Installation[:min(len(c.Installation), 8)] + ":"
}

// The braces are the hash tag: both keys of a slot live on one node.
func (x *Index) dueKey(slot int) string  { return x.tag + strconv.Itoa(slot) + "}:due" }
func (x *Index) markKey(slot int) string { return x.tag + strconv.Itoa(slot) + "}:mark" }
