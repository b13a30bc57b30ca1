package election

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/test/zkfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// sessionTimeout is what a real server with ticks of 500 ms grants, and long enough for a busy
	// machine.
	sessionTimeout = 3 * time.Second
	patience       = time.Minute
)

// ensemble is what a test runs against: an empty root on a server, and a session of the test's own
// to look at it.
type ensemble struct {
	t      *testing.T
	server string
	own    bool           // the test's alone: a shared one may be slow for all of its clients
	fake   *zkfake.Server // nil: a real one
	paths  paths
	root   string
	admin  *zk.Conn
	slots  atomic.Int64
	epochs *countingEpochs
	table  *testTable // not nil: the election goes through a database
}

// onAll runs a test against ZooKeeper, as onBoth, and against databases: SQLite always, and the server that NOTYET_MYSQL_DSN names.
func onAll(t *testing.T, test func(e *ensemble)) {
	onBoth(t, test)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		e := onTable(t, embedded(t))
		e.own = true
		test(e)
	})
	t.Run("mysql", func(t *testing.T) {
		if os.Getenv("NOTYET_MYSQL_DSN") == "" {
			t.Skip("NOTYET_MYSQL_DSN is not set")
		}
		t.Parallel()
		test(onTable(t, onServer(t)))
	})
}

// onBoth runs a test against the fake always, and against real servers when
// NOTYET_ZOOKEEPER_SERVERS names them.
func onBoth(t *testing.T, test func(e *ensemble)) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(newEnsemble(t, startFake(t, zkfake.Config{})))
	})
	t.Run("real", func(t *testing.T) {
		servers := os.Getenv("NOTYET_ZOOKEEPER_SERVERS")
		if servers == "" {
			t.Skip("NOTYET_ZOOKEEPER_SERVERS is not set")
		}
		t.Parallel()
		e := &ensemble{t: t, server: strings.Split(servers, ",")[0]}
		e.open()
		test(e)
	})
}

func startFake(t *testing.T, cfg zkfake.Config) *zkfake.Server {
	s, err := zkfake.Start(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func newEnsemble(t *testing.T, fake *zkfake.Server) *ensemble {
	e := &ensemble{t: t, server: fake.Addr(), own: true, fake: fake}
	e.open()
	return e
}

func (e *ensemble) open() {
	e.root = "/notyet-test-" + uuid.NewString() + "/deep"
	e.paths = pathsUnder(e.root)
	e.epochs = &countingEpochs{}
	e.slots.Store(10)
	admin, done, err := zk.Connect([]string{e.server}, time.Minute, zk.WithLogger(clientLog{zap.NewNop()}))
	require.NoError(e.t, err)
	e.admin = admin
	e.t.Cleanup(func() {
		if e.fake == nil { // leave a shared server as it was
			eventually(e.t, "wiped", e.wipe)
			require.NoError(e.t, admin.Delete(path.Dir(e.root), -1))
		}
		admin.Close()
		for range done {
		}
	})
}

// nobodyLapsed checks that the members have heard from their server all the time.
func (e *ensemble) nobodyLapsed(members ...*member) {
	e.t.Helper()
	for _, m := range members {
		require.True(e.t, !e.own || m.lapsed() == 0)
	}
}

// wipe deletes everything below root at once; false: something has changed meanwhile.
func (e *ensemble) wipe() bool {
	if e.table != nil {
		return e.table.wipe()
	}
	ops := []any{}
	for _, c := range e.candidates() {
		ops = append(ops, &zk.DeleteRequest{Path: e.paths.members + "/" + c.name, Version: -1})
	}
	for _, p := range []string{e.paths.installation, e.paths.members, e.paths.assignment, e.root} {
		if there, _, err := e.admin.Exists(p); err == nil && there {
			ops = append(ops, &zk.DeleteRequest{Path: p, Version: -1})
		}
	}
	_, err := e.admin.Multi(ops...)
	return err == nil
}

// candidates reads who is there, oldest first.
func (e *ensemble) candidates() []candidate {
	if e.table != nil {
		return e.table.candidates(e.t)
	}
	names, _, err := e.admin.Children(e.paths.members)
	if err != nil {
		return nil
	}
	var all []candidate
	for _, name := range names {
		data, stat, err := e.admin.Get(e.paths.members + "/" + name)
		if err != nil {
			continue
		}
		c := candidate{name: name, owner: stat.EphemeralOwner}
		c.seq, _ = sequence(name)
		require.NoError(e.t, json.Unmarshal(data, &c.memberData))
		all = append(all, c)
	}
	slices.SortFunc(all, bySequence)
	return all
}

func (e *ensemble) published() sharing {
	if e.table != nil {
		return e.table.published(e.t)
	}
	data, _, err := e.admin.Get(e.paths.assignment)
	if err != nil {
		return sharing{}
	}
	s, err := decodeSharing(data)
	require.NoError(e.t, err)
	return s
}

// spoil overwrites the assignment.
func (e *ensemble) spoil(text string) {
	if e.table != nil {
		e.table.exec(e.t, "UPDATE assignment SET data = ?", []byte(text))
		return
	}
	_, err := e.admin.Set(e.paths.assignment, []byte(text), -1)
	require.NoError(e.t, err)
}

// line stands between one member and the ensemble, or the database.
type line interface {
	addr() string
	sever(cut bool)
	freeze(directions int)
}

func (e *ensemble) line() line {
	if e.table != nil {
		return e.table.line(e.t)
	}
	return startProxy(e.t, e.server)
}

// countingEpochs is the database's part.
type countingEpochs struct {
	last atomic.Int64
	away atomic.Bool
}

func (c *countingEpochs) NextEpoch(context.Context) (int64, error) {
	if c.away.Load() {
		return 0, errors.New("the database is away")
	}
	return c.last.Add(1), nil
}

// member is a running Member whose history is checked: its epochs never fall.
type member struct {
	*Member
	leave  func() // cancels and waits for Run
	mu     sync.Mutex
	epochs []int64
	lapses int // times that trust was found lost after it had been there
}

// member makes one that does not run yet.
func (e *ensemble) member(id string, change ...func(*Config)) *Member {
	cfg := Config{Servers: []string{e.server}, Root: e.root, MemberID: id, SessionTimeout: sessionTimeout, Slots: func(context.Context) (int, error) { return int(e.slots.Load()), nil }}
	for _, c := range change {
		c(&cfg)
	}
	if e.table != nil {
		return e.table.member(e, cfg)
	}
	z, err := NewZooKeeper(cfg, e.epochs, zaptest.NewLogger(e.t, zaptest.Level(zap.InfoLevel)))
	require.NoError(e.t, err)
	return z
}

// start runs one until it is told to leave or the test ends.
func (e *ensemble) start(id string, change ...func(*Config)) *member {
	z := e.member(id, change...)
	m := &member{Member: z}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	ended := make(chan struct{})
	var result error
	running.Go(func() { defer close(ended); result = z.Run(ctx) })
	running.Go(func() { m.record(ended) })
	m.leave = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		require.NoError(e.t, result)
		require.False(e.t, z.Trusted())
		require.True(e.t, slices.IsSorted(m.epochs), "epochs fell: %v", m.epochs)
	})
	e.t.Cleanup(m.leave)
	return m
}

func (m *member) record(ended <-chan struct{}) {
	trusted := false
	for {
		select {
		case <-ended:
			return
		case <-m.Watch():
		}
		m.mu.Lock()
		m.epochs = append(m.epochs, m.Current().Epoch)
		now := m.Trusted()
		if trusted && !now {
			m.lapses++
		}
		trusted = now
		m.mu.Unlock()
	}
}

func (m *member) lapsed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lapses
}

// trustedUntil is when the trust of the latest answer ends.
func (m *member) trustedUntil() time.Time {
	m.view.mu.Lock()
	defer m.view.mu.Unlock()
	return m.view.heard.Time.Add(m.view.window)
}

func through(p line) func(*Config) { return func(c *Config) { c.Servers = []string{p.addr()} } }

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, 2*time.Millisecond, what)
}

// shared reports whether the trusted members hold all slots once, in even shares, under one epoch.
func (e *ensemble) shared(members ...*member) bool {
	var all []int
	least := int(e.slots.Load()) / len(members)
	for _, m := range members {
		a := m.Current()
		if !m.Trusted() || a.Epoch != members[0].Current().Epoch || len(a.Members) != len(members) || len(a.Slots) < least || len(a.Slots) > least+1 {
			return false
		}
		all = append(all, a.Slots...)
	}
	slices.Sort(all)
	return slices.Equal(all, firstSlots(int(e.slots.Load())))
}

// settle waits until the members share everything.
func (e *ensemble) settle(members ...*member) {
	e.t.Helper()
	eventually(e.t, "all slots shared evenly", func() bool { return e.shared(members...) })
}
