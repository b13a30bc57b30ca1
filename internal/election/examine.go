package election

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
)

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
