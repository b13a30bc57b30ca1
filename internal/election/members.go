package election

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/election/zkconn"
	"github.com/notyet/notyet/internal/wrap"
)

// Members returns the ids of the living members, for a caller from outside. Only the connection in
// cfg counts. A dead member counts until its session expires.
func Members(ctx context.Context, cfg Config, log *zap.Logger) ([]string, error) {
	ids, err := ask(ctx, cfg, log, func(conn *zk.Conn, p paths) ([]string, error) { return readMembers(conn, p.members) })
	return ids, wrap.Err(err, "asking the ensemble who is alive")
}

func ask[T any](ctx context.Context, cfg Config, log *zap.Logger, f func(*zk.Conn, paths) (T, error)) (none T, err error) {
	cfg.Root = cmp.Or(cfg.Root, defaults.ZooKeeperRoot)
	var trouble atomic.Pointer[error] // why the last connect failed; the library only logs it
	trouble.Store(new(error))
	dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		tcp, err := cfg.dial(ctx, network, addr, timeout)
		if trouble.Store(&err); err != nil {
			return nil, err
		}
		return zkconn.New(tcp, func(time.Duration) {}), nil
	}
	conn, _, err := zk.Connect(cfg.Servers, defaults.SessionTimeout,
		zk.WithDialer(dial), zk.WithHostProvider(&byName{}), zk.WithLogger(clientLog{log}), zk.WithLogInfo(false))
	if err != nil {
		return none, err
	}
	defer conn.Close()
	type answer struct {
		found T
		err   error
	}
	answers := make(chan answer, 1) // the client has no timeouts: while cut off it blocks until it is closed
	go func() {
		if cfg.Auth != "" {
			if err := conn.AddAuth("digest", []byte(cfg.Auth)); err != nil {
				answers <- answer{err: explain(err)}
				return
			}
		}
		found, err := f(conn, pathsUnder(cfg.Root))
		answers <- answer{found, explain(err)}
	}()
	select {
	case a := <-answers:
		if errors.Is(a.err, zk.ErrNoServer) || errors.Is(a.err, zk.ErrConnectionClosed) {
			return none, errors.Join(a.err, *trouble.Load())
		}
		return a.found, a.err
	case <-ctx.Done():
		return none, errors.Join(ctx.Err(), *trouble.Load())
	}
}

func readMembers(conn *zk.Conn, parent string) ([]string, error) {
	all, err := candidatesBelow(conn, parent)
	return memberIDs(all), err
}

func candidatesBelow(conn *zk.Conn, parent string) ([]candidate, error) {
	names, _, err := conn.Children(parent)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil // no dispatcher has run here yet
	}
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, name := range names {
		data, _, err := conn.Get(parent + "/" + name)
		switch {
		case errors.Is(err, zk.ErrNoNode): // it has left meanwhile
		case err != nil:
			return nil, err
		default:
			m := memberData{ID: name} // an unreadable one still is a member
			_ = json.Unmarshal(data, &m)
			all = append(all, candidate{name: name, memberData: m})
		}
	}
	return all, nil
}

// Examined is the ensemble's view of itself.
type Examined struct {
	// Version is the first server's; empty where the server does not say (the command srvr).
	Version string
	// Rooted means: a dispatcher has made the root. Without a root nothing else is known.
	Rooted bool
	// Installation is the id of the root's installation; "" where none is noted.
	Installation string
	Members      []string
	// Ahead is the least lead of the ensemble's clock over this machine's; Within is the round
	// trip.
	Ahead, Within time.Duration
}

// Examine asks the ensemble about itself. A temporary znode below the root tries the rights of a
// member, and shows the ensemble's time. The znode is deleted, at the latest with the session.
func Examine(ctx context.Context, cfg Config, log *zap.Logger) (Examined, error) {
	out, err := ask(ctx, cfg, log, func(conn *zk.Conn, p paths) (out Examined, err error) {
		if out.Rooted, _, err = conn.Exists(p.root); err != nil || !out.Rooted {
			return out, err
		}
		if out.Members, err = readMembers(conn, p.members); err != nil {
			return out, err
		}
		owner, _, err := conn.Get(p.installation)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return out, err
		}
		out.Installation = string(owner)
		probe := p.root + "/doctor-" + rand.Text()
		sent := time.Now()
		if _, err := conn.Create(probe, nil, zk.FlagEphemeral, cfg.acl()); err != nil {
			return out, err
		}
		heard := time.Now()
		_, stat, err := conn.Exists(probe)
		if err != nil {
			return out, err
		}
		out.Ahead, out.Within = time.UnixMilli(stat.Ctime).Sub(heard), heard.Sub(sent)+time.Millisecond
		if err := conn.Delete(probe, stat.Version); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return out, err
		}
		return out, nil
	})
	if err != nil {
		return out, fmt.Errorf("examining the ensemble: %w", err)
	}
	if cfg.TLS == nil && cfg.Dial == nil { // srvr is a word on a plain connection
		if stats, ok := zk.FLWSrvr(cfg.Servers[:1], 2*time.Second); ok && len(stats) == 1 {
			out.Version = stats[0].Version
		}
	}
	return out, nil
}
