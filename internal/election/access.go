package election

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/wrap"
)

var openACL = zk.WorldACL(zk.PermAll)

// acl is the access list of new znodes: all rights for the session's user, none for others.
func (c Config) acl() []zk.ACL {
	if c.Auth == "" {
		return openACL
	}
	return zk.AuthACL(zk.PermAll)
}

// dial limits the TLS handshake to the time of the connect. The library gets host names, so the
// expected name is known here.
func (c Config) dial(ctx context.Context, network, addr string, timeout time.Duration) (net.Conn, error) {
	if c.Dial != nil {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return c.Dial(ctx, network, addr)
	}
	dialer := net.Dialer{Timeout: timeout}
	if c.TLS == nil {
		return dialer.DialContext(ctx, network, addr)
	}
	conn, err := (&tls.Dialer{NetDialer: &dialer, Config: c.TLS()}).DialContext(ctx, network, addr)
	return conn, wrap.Err(err, "connecting to %s with TLS (zookeeper.tls)", addr)
}

// explain adds the correcting setting to an error.
func explain(err error) error {
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%w: the znodes belong to another user: set zookeeper.auth to what the other dispatchers have", err)
	case errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("%w: the server does not accept digest authentication (zookeeper.auth)", err)
	}
	return err
}

// authenticate sends any user and password; a wrong password shows when a znode refuses access.
func (t *znodes) authenticate() error {
	if t.m.cfg.Auth == "" {
		return nil
	}
	_, err := call(t, "authenticating", func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth("digest", []byte(t.m.cfg.Auth))
	})
	return err
}

// closeToOthers removes the world's rights on a znode from before Auth was set.
func (t *znodes) closeToOthers(path string) error {
	type rights struct {
		acl  []zk.ACL
		stat *zk.Stat
	}
	now, err := call(t, "reading the rights of "+path, func(c *zk.Conn) (r rights, err error) {
		r.acl, r.stat, err = c.GetACL(path)
		return r, err
	})
	if err != nil || !slices.ContainsFunc(now.acl, func(a zk.ACL) bool { return a.Scheme == "world" }) {
		return err
	}
	_, err = call(t, "closing "+path+" to others", func(c *zk.Conn) (*zk.Stat, error) {
		return c.SetACL(path, t.m.cfg.acl(), now.stat.Aversion)
	})
	if errors.Is(err, zk.ErrBadVersion) {
		return nil // another member was faster
	}
	if err == nil {
		t.log.Info("closed a znode to others", zap.String("znode", path))
	}
	return err
}
