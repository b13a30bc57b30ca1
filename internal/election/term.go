package election

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/election/zkconn"
)

// A member reads three rounds per trust window, and one call may take as long as the pause between
// two. If a server stops answering right after a round, the member gives it up after 2/3 of the
// window. That leaves 1/3 to find another server in time.
const roundsPerWindow = 3

var (
	errLost    = errors.New("connection lost")
	errOver    = errors.New("the term is over")
	errEvicted = errors.New("own candidate is missing")
	errTaken   = errors.New("member id is held by another process")
)

// term is one TCP connection, one session and one candidate; none of them outlives the others. A
// second connect is refused, so a request in the client's queue can never run under another
// session.
//
// serve and what it calls run on one goroutine. The client's goroutine calls only dial, granted and
// event.
type term struct {
	z     *ZooKeeper
	log   *zap.Logger
	ctx   context.Context // ends with the connection, cause errLost
	end   context.CancelCauseFunc
	conn  *zk.Conn
	done  <-chan zk.Event // closed when the client's goroutines have ended
	ready chan struct{}   // closed when the session is granted
	wake  chan struct{}   // something may have changed: read a round now
	calls sync.WaitGroup  // running requests and database queries

	window time.Duration // the trust window of this session; valid after ready
	own    string        // name of our candidate
	known  map[string]candidate
	lead   *leader // not nil while our candidate is the oldest

	failing    bool      // as our candidate says
	othersWork time.Time // since when another member has been seen to work while this one fails; zero: none has

	mu      sync.Mutex
	tcp     net.Conn
	state   dialState
	session bool            // granted and not lost
	armed   map[string]bool // paths whose one-shot watch is set; setting it again would pile up in the client
}

type dialState int

const (
	undialled dialState = iota
	dialled
	cut
)

// serveTerm returns whether the member had joined, and why the term ended.
func (z *ZooKeeper) serveTerm(ctx context.Context, server string, ending *sync.WaitGroup) (bool, error) {
	t, err := z.openTerm(ctx, server)
	if err != nil {
		return false, err
	}
	err = t.serve()
	if ctx.Err() != nil || errors.Is(err, errEvicted) || errors.Is(err, errTaken) || errors.Is(err, errFailing) {
		z.view.distrust() // before the ephemeral disappears: others may act on that at once
		t.leave()
	}
	t.cut()
	ending.Go(t.unwind)
	return t.own != "", err
}

func (z *ZooKeeper) openTerm(ctx context.Context, server string) (*term, error) {
	t := &term{
		z: z, log: z.log.With(zap.String("server", server)), window: z.cfg.TrustWindow,
		ready: make(chan struct{}), wake: make(chan struct{}, 1),
		known: map[string]candidate{}, armed: map[string]bool{},
	}
	t.ctx, t.end = context.WithCancelCause(ctx)
	var err error
	t.conn, t.done, err = zk.Connect([]string{server}, z.cfg.SessionTimeout,
		zk.WithDialer(t.dial), zk.WithHostProvider(&byName{}), zk.WithEventCallback(t.event),
		zk.WithLogger(clientLog{t.log}), zk.WithMaxBufferSize(zkconn.MaxPacket))
	if err != nil {
		t.end(err)
		return nil, fmt.Errorf("connecting to %s: %w", server, err)
	}
	return t, nil
}

// leave closes the session, so that the others see at once that we are gone. It takes up to a
// second if the server does not answer.
func (t *term) leave() {
	t.mu.Lock()
	session := t.session
	t.mu.Unlock()
	if session {
		t.conn.Close()
	}
}

// cut ends the term without notice to the server, which keeps the session until it times out.
// Closing the session would delete our ephemeral while we are still trusted.
func (t *term) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(errOver)
	t.state = cut
	if t.tcp != nil {
		t.tcp.Close()
	}
}

// unwind waits for everything that the term has started. The client gives up its queue within a
// second or two.
func (t *term) unwind() {
	t.conn.Close()
	for range t.done {
	}
	t.calls.Wait()
}

func (t *term) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	t.mu.Lock()
	first := t.state == undialled
	if first {
		t.state = dialled
	}
	t.mu.Unlock()
	if !first {
		return nil, errOver
	}
	tcp, err := t.z.cfg.dial(t.ctx, network, addr, t.pace())
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
// requested. It runs before ready is closed.
func (t *term) granted(timeout time.Duration) {
	if asked := t.z.cfg.SessionTimeout; timeout < asked {
		t.window = time.Duration(float64(t.window) * float64(timeout) / float64(asked))
		t.log.Warn("session timeout shortened by the server", zap.Duration("asked", asked), zap.Duration("granted", timeout))
	}
}

// event must not block: it runs on the client's receiving goroutine.
func (t *term) event(e zk.Event) {
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

func (t *term) setSession(granted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session = granted
}

// arm reports whether a read of path should set a watch: true unless one is set.
func (t *term) arm(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed[path] {
		return false
	}
	t.armed[path] = true
	return true
}

func (t *term) disarm(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.armed, path)
}

// pace is the pause between rounds, and the time limit of one call.
func (t *term) pace() time.Duration { return t.window / roundsPerWindow }

// call limits the time of a request, because the client has no timeouts: it blocks while cut off. A
// request that timed out may still take effect, so its term ends.
func call[T any](t *term, what string, request func(*zk.Conn) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1) // room for a late answer that nobody reads
	t.calls.Go(func() {
		value, err := request(t.conn)
		answers <- answer{value, err}
	})
	timeout := time.NewTimer(t.pace())
	defer timeout.Stop()
	var zero T
	select {
	case a := <-answers:
		if a.err != nil {
			return zero, fmt.Errorf("%s: %w", what, explain(a.err))
		}
		return a.value, nil
	case <-t.ctx.Done():
		return zero, fmt.Errorf("%s: %w", what, context.Cause(t.ctx))
	case <-timeout.C:
		return zero, fmt.Errorf("%s: no answer within %s", what, t.pace())
	}
}
