package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/machine"
)

// snapshot is what one round has read.
type snapshot struct {
	sharing    sharing
	version    int32 // of the assignment znode
	candidates []candidate
}

// serve joins and then reads round after round until something ends the term.
func (t *term) serve() error {
	if err := t.connected(); err != nil {
		return err
	}
	if err := t.join(); err != nil {
		return err
	}
	for {
		pause, err := t.round()
		if err != nil {
			return err
		}
		if err := t.wait(pause); err != nil {
			return err
		}
	}
}

// connected waits for the session. A server may accept a connection and then not answer, so this
// has a limit too: connect plus handshake.
func (t *term) connected() error {
	timeout := time.NewTimer(2 * t.z.cfg.TrustWindow / roundsPerWindow)
	defer timeout.Stop()
	select {
	case <-t.ready:
		return nil
	case <-t.ctx.Done():
		if cause := context.Cause(t.ctx); errors.Is(cause, errLost) && t.z.cfg.TLS == nil {
			return fmt.Errorf("opening a session: %w; a server that requires TLS (zookeeper.tls) does that", cause)
		}
		return fmt.Errorf("opening a session: %w", context.Cause(t.ctx))
	case <-timeout.C:
		return errors.New("opening a session: no answer in time")
	}
}

func (t *term) wait(pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	case <-t.wake:
	case <-timer.C:
	}
	return nil
}

// join creates the missing znodes and our candidate, unless another process uses our id.
func (t *term) join() error {
	if err := t.authenticate(); err != nil {
		return err
	}
	for _, path := range t.z.paths.all {
		if err := t.ensure(path); err != nil {
			return err
		}
	}
	if err := t.claim(); err != nil {
		return err
	}
	candidates, err := t.readCandidates()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(candidates, t.stranger) {
		return errTaken
	}
	data, err := json.Marshal(t.z.memberData())
	if err != nil {
		return fmt.Errorf("encoding the candidate: %w", err)
	}
	path, err := call(t, "creating the candidate", func(c *zk.Conn) (string, error) {
		return c.CreateProtectedEphemeralSequential(t.z.paths.candidate, data, t.z.cfg.acl())
	})
	if err != nil {
		return err
	}
	t.own = path[len(t.z.paths.members)+1:]
	return nil
}

// ensure checks first, because creating needs rights on the parent even if the node exists.
func (t *term) ensure(path string) error {
	there, err := call(t, "looking for "+path, func(c *zk.Conn) (bool, error) {
		there, _, err := c.Exists(path)
		return there, err
	})
	if err != nil {
		return err
	}
	ours := t.z.cfg.Auth != "" && t.z.paths.below(path)
	if there {
		if !ours {
			return nil
		}
		return t.closeToOthers(path)
	}
	acl := openACL
	if ours {
		acl = t.z.cfg.acl()
	}
	_, err = call(t, "creating "+path, func(c *zk.Conn) (string, error) {
		return c.Create(path, nil, zk.FlagPersistent, acl)
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// round reads everything again, applies it and acts on it. It returns how long the next round can
// wait if nothing wakes it.
func (t *term) round() (time.Duration, error) {
	sent := machine.Exact()
	s, err := t.read()
	if err != nil {
		return 0, err
	}
	place, err := t.place(s.candidates)
	if err != nil {
		return 0, err
	}
	if err := t.checkHealth(s.candidates); err != nil {
		return 0, err
	}
	t.z.view.apply(sent, t.window, s.sharing, memberIDs(s.candidates))
	if place > 0 {
		t.lead = nil
		err = t.follow(s.candidates[place-1])
		return t.pace() - time.Since(sent.Time), err
	}
	if t.lead == nil {
		t.log.Info("leading the election")
		t.lead = newLeader(t)
		return 0, nil // read again: a leader watches the members
	}
	pause, err := t.lead.act(s)
	return min(pause, t.pace()-time.Since(sent.Time)), err
}

// read first makes the server catch up with the quorum. A server that was cut off from the quorum
// would otherwise answer from old data, for a session that the quorum has expired. It reads the
// assignment before the members (see view.apply).
func (t *term) read() (snapshot, error) {
	var s snapshot
	if _, err := call(t, "syncing", func(c *zk.Conn) (string, error) { return c.Sync(t.z.paths.members) }); err != nil {
		return s, err
	}
	data, version, err := t.get(t.z.paths.assignment, true)
	if err != nil {
		return s, t.missing(err)
	}
	if s.sharing, err = decodeSharing(data); err != nil {
		t.log.Error("unreadable assignment is ignored, the leader writes a new one", zap.Error(err))
	}
	s.version = version.Version
	s.candidates, err = t.readCandidates()
	return s, t.missing(err)
}

// missing explains why a path that join created is gone: the ensemble lost its data, so we are no
// member of it.
func (t *term) missing(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %w", errEvicted, err)
	}
	return err
}

// place returns our candidate's rank by age. It removes left-over candidates of this process, whose
// sessions have not expired yet. It withdraws if another process with our id came first.
func (t *term) place(candidates []candidate) (int, error) {
	place := slices.IndexFunc(candidates, func(c candidate) bool { return c.name == t.own })
	if place < 0 {
		return 0, errEvicted
	}
	if owner := candidates[place].owner; owner != t.conn.SessionID() {
		return 0, fmt.Errorf("candidate %s belongs to session %#x: %w", t.own, owner, errEvicted)
	}
	for i, c := range candidates {
		if t.stranger(c) && i < place {
			return 0, errTaken
		}
		if c.Instance == t.z.instance && c.name != t.own {
			if err := t.remove(c.name); err != nil {
				return 0, err
			}
		}
	}
	return place, nil
}

// stranger reports whether a candidate has our id and belongs to another process.
func (t *term) stranger(c candidate) bool {
	return c.ID == t.z.cfg.MemberID && c.Instance != t.z.instance
}

func (t *term) remove(name string) error {
	_, err := call(t, "removing a left-over candidate", func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(t.z.paths.members+"/"+name, -1)
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// follow watches only the candidate before ours, so that a death wakes one member and not all.
func (t *term) follow(before candidate) error {
	path := t.z.paths.members + "/" + before.name
	if !t.arm(path) {
		return nil
	}
	_, err := call(t, "watching the candidate before", func(c *zk.Conn) (struct{}, error) {
		_, _, _, err := c.GetW(path)
		return struct{}{}, err
	})
	if err == nil {
		return nil
	}
	t.disarm(path)
	if errors.Is(err, zk.ErrNoNode) {
		signal(t.wake) // it disappeared meanwhile
		return nil
	}
	return err
}
