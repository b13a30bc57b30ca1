package election

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// ErrOtherInstallation means: the root belongs to another installation.
var ErrOtherInstallation = errors.New("the election's root belongs to another installation")

// claim makes sure of the root's installation. The first member takes the root, for good: an
// installation finds its root unchanged after a stop.
func (t *znodes) claim() error {
	mine, path := t.m.cfg.Installation, t.paths.installation
	if mine == "" {
		return nil
	}
	owner, _, err := t.get(path, false)
	if errors.Is(err, zk.ErrNoNode) {
		_, err = call(t, "creating "+path, func(c *zk.Conn) (string, error) {
			return c.Create(path, []byte(mine), zk.FlagPersistent, t.m.cfg.acl())
		})
		if err == nil {
			return nil
		}
		if errors.Is(err, zk.ErrNodeExists) { // another member was faster
			owner, _, err = t.get(path, false)
		}
	}
	switch {
	case err != nil:
		return err
	case string(owner) != mine:
		return fmt.Errorf("%w: %s says %s, and the database (mysql.dsn) %s: set zookeeper.root to a path of this installation's own; if the other one is gone for good, delete that znode",
			ErrOtherInstallation, path, owner, mine)
	case t.m.cfg.Auth != "":
		return t.closeToOthers(path)
	}
	return nil
}
