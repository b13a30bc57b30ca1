package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election/zkconn"
)

var errLost = errors.New("connection lost")

// quorum is the ensemble of ZooKeeper, as the ground of an election.
type quorum struct {
	m       *Member
	paths   paths
	servers []string // in the order in which the terms use them
}

func (q *quorum) open(ctx context.Context, nth int) (*term, error) {
	server := q.servers[nth%len(q.servers)]
	t := &znodes{
		term: q.m.newTerm(ctx, q.m.log.With(zap.String("server", server))), paths: q.paths,
		ready: make(chan struct{}), known: map[string]candidate{}, armed: map[string]bool{},
	}
	t.seat = t
	var err error
	t.conn, t.done, err = zk.Connect([]string{server}, q.m.cfg.SessionTimeout,
		zk.WithDialer(t.dial), zk.WithHostProvider(&byName{}), zk.WithEventCallback(t.event),
		zk.WithLogger(clientLog{t.log}), zk.WithMaxBufferSize(zkconn.MaxPacket))
	if err != nil {
		t.end(err)
		return nil, fmt.Errorf("connecting to %s: %w", server, err)
	}
	return t.term, nil
}

// othersWork asks whether another member works. Without an answer, nobody can join either.
func (q *quorum) othersWork(ctx context.Context) bool {
	bound, cancel := context.WithTimeout(ctx, q.m.cfg.FailingAfter)
	defer cancel()
	all, err := ask(bound, q.m.cfg, q.m.log, func(conn *zk.Conn, p paths) ([]candidate, error) { return candidatesBelow(conn, p.members) })
	return err != nil || slices.ContainsFunc(all, func(c candidate) bool { return c.ID != q.m.cfg.MemberID && !c.Failing })
}

// znodes is the seat of a term in the ensemble: one TCP connection, one session and one candidate,
// all with the same end. A second connect is refused, so a request in the client's queue can never
// run under another session.
//
// The client's goroutine calls only dial, granted and event.
type znodes struct {
	*term
	paths paths
	conn  *zk.Conn
	done  <-chan zk.Event // closed when the client's goroutines have ended
	ready chan struct{}   // closed when the session is granted
	known map[string]candidate

	mu      sync.Mutex
	tcp     net.Conn
	state   dialState
	session bool            // granted and not lost
	armed   map[string]bool // paths whose one-shot watch is set; setting it again would pile up in the client
}

var _ seat = (*znodes)(nil)

type dialState int

const (
	undialled dialState = iota
	dialled
	cut
)

// leave closes the session, and the others see our end at once. Without an answer of the server
// leave takes up to a second.
func (t *znodes) leave() {
	t.mu.Lock()
	session := t.session
	t.mu.Unlock()
	if session {
		t.conn.Close()
	}
}

// cut ends the term without notice to the server. The server keeps the session until the timeout.
// Closing the session would delete our ephemeral while we are still trusted.
func (t *znodes) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = cut
	if t.tcp != nil {
		t.tcp.Close()
	}
}

// unwind waits until the client has given up the queue, within a second or two.
func (t *znodes) unwind() {
	t.conn.Close()
	for range t.done {
	}
}

func (t *znodes) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	t.mu.Lock()
	first := t.state == undialled
	if first {
		t.state = dialled
	}
	t.mu.Unlock()
	if !first {
		return nil, errOver
	}
	tcp, err := t.m.cfg.dial(t.ctx, network, addr, t.pace())
	if err != nil {
		t.end(err)
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tcp = tcp
	if t.state == cut {
		tcp.Close()
	}
	return zkconn.New(tcp, t.granted), nil
}

// granted shrinks the trust window in proportion if the server grants a shorter session than
// requested. granted runs before ready is closed.
func (t *znodes) granted(timeout time.Duration) {
	if asked := t.m.cfg.SessionTimeout; timeout < asked {
		t.window = time.Duration(float64(t.window) * float64(timeout) / float64(asked))
		t.log.Warn("session timeout shortened by the server", zap.Duration("asked", asked), zap.Duration("granted", timeout))
	}
}

// event runs on the client's receiving goroutine, and must not block.
func (t *znodes) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateHasSession:
		t.setSession(true)
		close(t.ready) // once: there is one connect
	case e.Type == zk.EventSession && (e.State == zk.StateDisconnected || e.State == zk.StateExpired || e.State == zk.StateAuthFailed):
		t.setSession(false)
		t.end(errLost)
	case e.Type > 0:
		t.mu.Lock()
		delete(t.armed, e.Path)
		t.mu.Unlock()
		signal(t.wake)
	}
}

func (t *znodes) setSession(granted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session = granted
}

// arm reports whether a read of path should set a watch: true unless one is set.
func (t *znodes) arm(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed[path] {
		return false
	}
	t.armed[path] = true
	return true
}

func (t *znodes) disarm(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.armed, path)
}

// call limits the time of a request, because the client has no timeouts: a request blocks while cut
// off. A timed out request may still take effect, so the term ends.
func call[T any](t *znodes, what string, request func(*zk.Conn) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1) // room for a late answer that nobody reads
	t.calls.Go(func() {
		value, err := request(t.conn)
		answers <- answer{value, err}
	})
	var zero T
	select {
	case a := <-answers:
		if a.err != nil {
			return zero, fmt.Errorf("%s: %w", what, explain(a.err))
		}
		return a.value, nil
	case <-t.ctx.Done():
		return zero, fmt.Errorf("%s: %w", what, context.Cause(t.ctx))
	case <-time.After(t.pace()):
		return zero, fmt.Errorf("%s: no answer within %s", what, t.pace())
	}
}

// connected waits for the session. A server may accept a connection and then not answer, hence the
// limit: connect plus handshake.
func (t *znodes) connected() error {
	select {
	case <-t.ready:
		return nil
	case <-t.ctx.Done():
		if cause := context.Cause(t.ctx); errors.Is(cause, errLost) && t.m.cfg.TLS == nil {
			return fmt.Errorf("opening a session: %w; a server that requires TLS (zookeeper.tls) does that", cause)
		}
		return fmt.Errorf("opening a session: %w", context.Cause(t.ctx))
	case <-time.After(2 * t.m.cfg.TrustWindow / roundsPerWindow):
		return errors.New("opening a session: no answer in time")
	}
}

// join creates the missing znodes and our candidate, unless another process uses our id.
func (t *znodes) join() error {
	if err := t.authenticate(); err != nil {
		return err
	}
	for _, path := range t.paths.all {
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
	data, err := json.Marshal(t.m.memberData())
	if err != nil {
		return fmt.Errorf("encoding the candidate: %w", err)
	}
	path, err := call(t, "creating the candidate", func(c *zk.Conn) (string, error) {
		return c.CreateProtectedEphemeralSequential(t.paths.candidate, data, t.m.cfg.acl())
	})
	if err != nil {
		return err
	}
	t.own = path[len(t.paths.members)+1:]
	return nil
}

// ensure checks first, because creating needs rights on the parent even if the node exists.
func (t *znodes) ensure(path string) error {
	there, err := call(t, "looking for "+path, func(c *zk.Conn) (bool, error) {
		there, _, err := c.Exists(path)
		return there, err
	})
	if err != nil {
		return err
	}
	ours := t.m.cfg.Auth != "" && t.paths.below(path)
	if there {
		if !ours {
			return nil
		}
		return t.closeToOthers(path)
	}
	acl := openACL
	if ours {
		acl = t.m.cfg.acl()
	}
	_, err = call(t, "creating "+path, func(c *zk.Conn) (string, error) {
		return c.Create(path, nil, zk.FlagPersistent, acl)
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// read first makes the server catch up with the quorum. A cut off server would otherwise answer
// from old data, for a session already expired in the quorum. The assignment is read before the
// members (see view.apply).
func (t *znodes) read() (snapshot, error) {
	var s snapshot
	if _, err := call(t, "syncing", func(c *zk.Conn) (string, error) { return c.Sync(t.paths.members) }); err != nil {
		return s, err
	}
	data, version, err := t.get(t.paths.assignment, true)
	if err != nil {
		return s, t.missing(err)
	}
	if s.sharing, err = decodeSharing(data); err != nil {
		t.log.Error("unreadable assignment is ignored, the leader writes a new one", zap.Error(err))
	}
	s.version = int64(version.Version)
	if s.candidates, err = t.readCandidates(); err != nil {
		return s, t.missing(err)
	}
	for _, c := range s.candidates {
		if c.name == t.own && c.owner != t.conn.SessionID() {
			return s, fmt.Errorf("candidate %s belongs to session %#x: %w", t.own, c.owner, errEvicted)
		}
	}
	return s, nil
}

// missing explains the loss of a path of join: the ensemble lost its data, and we are no member.
func (t *znodes) missing(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %w", errEvicted, err)
	}
	return err
}

func (t *znodes) remove(cand candidate) error {
	_, err := call(t, "removing a candidate", func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(t.paths.members+"/"+cand.name, -1)
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// follow watches only the candidate before ours: a death wakes one member and not all.
func (t *znodes) follow(before candidate) error {
	path := t.paths.members + "/" + before.name
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

// publish writes a new distribution if our candidate still exists and nobody has written since s
// was read. The ensemble checks both in one step.
func (t *znodes) publish(s snapshot, next sharing) error {
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encoding the assignment: %w", err)
	}
	_, err = call(t, "publishing the assignment", func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.CheckVersionRequest{Path: t.paths.members + "/" + t.own, Version: -1},
			&zk.SetDataRequest{Path: t.paths.assignment, Data: data, Version: int32(s.version)})
	})
	if errors.Is(err, zk.ErrBadVersion) {
		return errOutrun
	}
	return t.missing(err)
}

func (t *znodes) say(data memberData) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = call(t, "saying whether this process works", func(c *zk.Conn) (*zk.Stat, error) {
		return c.Set(t.paths.members+"/"+t.own, raw, -1)
	})
	return t.missing(err)
}

// fails reads a candidate anew, because read does so once per term. A member of an earlier version
// notes no failure, and counts as working.
func (t *znodes) fails(c candidate) (bool, error) {
	now, there, err := t.readCandidate(c.name)
	return !there || now.Failing, err
}

// byName is the host provider: the servers in turn, by name, so that each name is resolved at every
// connect and not once per process. After all servers Next says so; the client then pauses and
// checks for its end.
type byName struct {
	servers []string
	next    int
}

func (b *byName) Init(servers []string) error { b.servers = servers; return nil }
func (b *byName) Len() int                    { return len(b.servers) }
func (b *byName) Connected()                  {}

func (b *byName) Next() (string, bool) {
	server, again := b.servers[b.next%len(b.servers)], b.next > 0 && b.next%len(b.servers) == 0
	b.next++
	return server, again
}

type clientLog struct{ log *zap.Logger }

func (l clientLog) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client", zap.String("detail", fmt.Sprintf(format, args...)))
}
