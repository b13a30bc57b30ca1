package election

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
)

type node struct {
	data []byte
	stat *zk.Stat
}

// get reads a znode. watch also makes sure of a watch.
func (t *znodes) get(path string, watch bool) ([]byte, *zk.Stat, error) {
	set := watch && t.arm(path)
	n, err := call(t, "reading "+path, func(c *zk.Conn) (n node, err error) {
		if set {
			n.data, n.stat, _, err = c.GetW(path)
		} else {
			n.data, n.stat, err = c.Get(path)
		}
		return n, err
	})
	if err != nil && set {
		t.disarm(path)
	}
	return n.data, n.stat, err
}

// children lists the candidates' names. The leader also watches the list.
func (t *znodes) children() ([]string, error) {
	path := t.paths.members
	set := t.lead != nil && t.arm(path)
	names, err := call(t, "listing the members", func(c *zk.Conn) (names []string, err error) {
		if set {
			names, _, _, err = c.ChildrenW(path)
		} else {
			names, _, err = c.Children(path)
		}
		return names, err
	})
	if err != nil && set {
		t.disarm(path)
	}
	return names, err
}

// readCandidates returns all candidates, oldest first. Each is read once per term: of a candidate's
// data only Failing changes, and failing members read that anew. A candidate gone between the two
// reads is left out.
func (t *znodes) readCandidates() ([]candidate, error) {
	names, err := t.children()
	if err != nil {
		return nil, err
	}
	known := make(map[string]candidate, len(names))
	var all []candidate
	for _, name := range names {
		c, ok := t.known[name]
		if !ok {
			if c, ok, err = t.readCandidate(name); err != nil {
				return nil, err
			}
		}
		if ok {
			known[name] = c
			all = append(all, c)
		}
	}
	t.known = known
	slices.SortFunc(all, bySequence)
	return all, nil
}

func (t *znodes) readCandidate(name string) (candidate, bool, error) {
	c := candidate{name: name}
	seq, ok := sequence(name)
	if !ok {
		t.log.Debug("not a candidate", zap.String("znode", name))
		return c, false, nil
	}
	data, stat, err := t.get(t.paths.members+"/"+name, false)
	if errors.Is(err, zk.ErrNoNode) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	if err := json.Unmarshal(data, &c.memberData); err != nil || c.ID == "" {
		t.log.Warn("candidate without a member id is ignored", zap.String("znode", name))
		return c, false, nil
	}
	if mine := t.m.cfg.Installation; mine != "" && c.Installation != "" && c.Installation != mine {
		// Somebody has deleted the claim while members were there. One of both has it again by now.
		t.log.Warn("candidate of another installation", zap.String("znode", name), zap.String("installation", c.Installation))
		return c, false, t.claim()
	}
	c.seq, c.owner = seq, stat.EphemeralOwner
	return c, true, nil
}
