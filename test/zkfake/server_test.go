package zkfake_test

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/notyet/notyet/internal/election/zkconn"
	"github.com/notyet/notyet/test/zkfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = 10 * time.Second

// onBoth runs the same test against the fake and, if NOTYET_ZOOKEEPER_SERVERS is set, against a
// real server: the fake is worth only as much as it behaves alike. root is an empty znode of the
// test's own.
func onBoth(t *testing.T, test func(t *testing.T, server, root string)) {
	t.Run("fake", func(t *testing.T) {
		test(t, start(t, zkfake.Config{}).Addr(), newRoot())
	})
	t.Run("real", func(t *testing.T) {
		servers := os.Getenv("NOTYET_ZOOKEEPER_SERVERS")
		if servers == "" {
			t.Skip("NOTYET_ZOOKEEPER_SERVERS is not set")
		}
		test(t, strings.Split(servers, ",")[0], newRoot())
	})
}

func newRoot() string { return "/zkfake-test-" + uuid.NewString() }

func start(t *testing.T, cfg zkfake.Config) *zkfake.Server {
	s, err := zkfake.Start(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connect opens a session; it is closed, and the client has ended, before the test does.
func connect(t *testing.T, server string, session time.Duration) (*zk.Conn, <-chan zk.Event) {
	events := make(chan zk.Event, 1000)
	dial := func(network, addr string, timeout time.Duration) (net.Conn, error) {
		tcp, err := net.DialTimeout(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		return zkconn.New(tcp, func(time.Duration) {}), nil // without it the library races with itself
	}
	c, done, err := zk.Connect([]string{server}, session, zk.WithLogger(quiet{}), zk.WithDialer(dial), zk.WithEventCallback(func(e zk.Event) { events <- e }))
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		for range done {
		}
	})
	waitState(t, events, zk.StateHasSession)
	return c, events
}

func waitState(t *testing.T, events <-chan zk.Event, want zk.State) {
	t.Helper()
	deadline := time.After(timeout)
	for {
		select {
		case e := <-events:
			if e.Type == zk.EventSession && e.State == want {
				return
			}
		case <-deadline:
			require.Fail(t, "no such state", want.String())
		}
	}
}

func waitEvent(t *testing.T, ch <-chan zk.Event, kind zk.EventType, path string) {
	t.Helper()
	select {
	case e := <-ch:
		require.Equal(t, kind, e.Type)
		require.Equal(t, path, e.Path)
	case <-time.After(timeout):
		require.Fail(t, "no event", path)
	}
}

func mustCreate(t *testing.T, c *zk.Conn, path, data string, flags int32) string {
	t.Helper()
	made, err := c.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return made
}

// removeAll leaves a shared real server as it was.
func removeAll(t *testing.T, c *zk.Conn, path string) {
	names, _, err := c.Children(path)
	require.NoError(t, err)
	for _, name := range names {
		removeAll(t, c, path+"/"+name)
	}
	require.NoError(t, c.Delete(path, -1))
}

func TestReadsWritesAndTheirErrors(t *testing.T) {
	onBoth(t, func(t *testing.T, server, root string) {
		c, _ := connect(t, server, timeout)
		mustCreate(t, c, root, "", 0)
		defer removeAll(t, c, root)
		mustCreate(t, c, root+"/a", "1", 0)

		_, err := c.Create(root+"/a", nil, 0, zk.WorldACL(zk.PermAll))
		require.ErrorIs(t, err, zk.ErrNodeExists)
		_, err = c.Create(root+"/none/b", nil, 0, zk.WorldACL(zk.PermAll))
		require.ErrorIs(t, err, zk.ErrNoNode)
		_, err = c.Set(root+"/a", []byte("2"), 7)
		require.ErrorIs(t, err, zk.ErrBadVersion)
		stat, err := c.Set(root+"/a", []byte("2"), 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, stat.Version)
		data, stat, err := c.Get(root + "/a")
		require.NoError(t, err)
		require.Equal(t, "2", string(data))
		require.EqualValues(t, 1, stat.DataLength)
		require.Greater(t, stat.Mzxid, stat.Czxid)
		require.ErrorIs(t, c.Delete(root, -1), zk.ErrNotEmpty)
		require.ErrorIs(t, c.Delete(root+"/a", 0), zk.ErrBadVersion)
		there, _, err := c.Exists(root + "/b")
		require.NoError(t, err)
		require.False(t, there)
		path, err := c.Sync(root)
		require.NoError(t, err)
		require.Equal(t, root, path)
	})
}

func TestSequencesAndEphemerals(t *testing.T) {
	onBoth(t, func(t *testing.T, server, root string) {
		c, _ := connect(t, server, timeout)
		mustCreate(t, c, root, "", 0)
		defer removeAll(t, c, root)
		other, _ := connect(t, server, timeout)

		require.Equal(t, root+"/n-0000000000", mustCreate(t, other, root+"/n-", "", zk.FlagEphemeral|zk.FlagSequence))
		require.Equal(t, root+"/n-0000000001", mustCreate(t, c, root+"/n-", "", zk.FlagSequence))
		require.NoError(t, c.Delete(root+"/n-0000000001", -1))
		require.Equal(t, root+"/n-0000000002", mustCreate(t, c, root+"/n-", "", zk.FlagEphemeral|zk.FlagSequence))
		_, err := c.Create(root+"/n-0000000002/child", nil, 0, zk.WorldACL(zk.PermAll))
		require.ErrorIs(t, err, zk.ErrNoChildrenForEphemerals)

		names, stat, gone, err := c.ChildrenW(root)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"n-0000000000", "n-0000000002"}, names)
		require.EqualValues(t, 4, stat.Cversion, "three births and a death")
		_, stat, err = c.Get(root + "/n-0000000000")
		require.NoError(t, err)
		require.Equal(t, other.SessionID(), stat.EphemeralOwner)
		other.Close()
		waitEvent(t, gone, zk.EventNodeChildrenChanged, root)
		there, _, err := c.Exists(root + "/n-0000000000")
		require.NoError(t, err)
		require.False(t, there, "ephemerals go with their session")
	})
}

func TestWatchesFireOnceForTheirKind(t *testing.T) {
	onBoth(t, func(t *testing.T, server, root string) {
		c, _ := connect(t, server, timeout)
		mustCreate(t, c, root, "", 0)
		defer removeAll(t, c, root)
		_, _, appears, err := c.ExistsW(root + "/a")
		require.NoError(t, err)
		_, _, children, err := c.ChildrenW(root)
		require.NoError(t, err)
		mustCreate(t, c, root+"/a", "", 0)
		waitEvent(t, appears, zk.EventNodeCreated, root+"/a")
		waitEvent(t, children, zk.EventNodeChildrenChanged, root)

		_, _, changes, err := c.GetW(root + "/a")
		require.NoError(t, err)
		_, err = c.Set(root+"/a", []byte("1"), -1)
		require.NoError(t, err)
		waitEvent(t, changes, zk.EventNodeDataChanged, root+"/a")
		_, _, goes, err := c.GetW(root + "/a")
		require.NoError(t, err)
		require.NoError(t, c.Delete(root+"/a", 1))
		waitEvent(t, goes, zk.EventNodeDeleted, root+"/a")
		_, _, _, err = c.GetW(root + "/a")
		require.ErrorIs(t, err, zk.ErrNoNode)
	})
}

func TestMultiIsAllOrNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, server, root string) {
		c, _ := connect(t, server, timeout)
		mustCreate(t, c, root, "0", 0)
		defer removeAll(t, c, root)
		acl := zk.WorldACL(zk.PermAll)
		_, err := c.Multi(
			&zk.CreateRequest{Path: root + "/a", Acl: acl},
			&zk.SetDataRequest{Path: root, Data: []byte("1"), Version: 5})
		require.ErrorIs(t, err, zk.ErrBadVersion)
		there, _, err := c.Exists(root + "/a")
		require.NoError(t, err)
		require.False(t, there)
		_, err = c.Multi(
			&zk.CheckVersionRequest{Path: root + "/none", Version: -1},
			&zk.SetDataRequest{Path: root, Data: []byte("1"), Version: 0})
		require.ErrorIs(t, err, zk.ErrNoNode)
		answers, err := c.Multi(
			&zk.CheckVersionRequest{Path: root, Version: 0},
			&zk.CreateRequest{Path: root + "/a", Acl: acl},
			&zk.SetDataRequest{Path: root, Data: []byte("1"), Version: 0},
			&zk.DeleteRequest{Path: root + "/a", Version: 0})
		require.NoError(t, err)
		require.Equal(t, root+"/a", answers[1].String)
		require.EqualValues(t, 1, answers[2].Stat.Version)
	})
}

func TestSessionSurvivesItsConnection(t *testing.T) {
	s := start(t, zkfake.Config{})
	c, events := connect(t, s.Addr(), timeout)
	mustCreate(t, c, "/a", "", zk.FlagEphemeral)
	_, _, changed, err := c.GetW("/a")
	require.NoError(t, err)
	_, _, appears, err := c.ExistsW("/c")
	require.NoError(t, err)
	other, _ := connect(t, s.Addr(), timeout)
	id := c.SessionID()

	require.True(t, s.Disconnect(id))
	waitState(t, events, zk.StateDisconnected)
	_, err = other.Set("/a", nil, -1)
	require.NoError(t, err)
	mustCreate(t, other, "/c", "", 0)
	waitState(t, events, zk.StateHasSession)
	require.Equal(t, id, c.SessionID())
	waitEvent(t, changed, zk.EventNodeDataChanged, "/a")
	waitEvent(t, appears, zk.EventNodeCreated, "/c")
}

func TestSessionExpires(t *testing.T) {
	s := start(t, zkfake.Config{})
	c, events := connect(t, s.Addr(), timeout)
	mustCreate(t, c, "/a", "", zk.FlagEphemeral)
	watcher, _ := connect(t, s.Addr(), timeout)
	_, _, gone, err := watcher.ExistsW("/a")
	require.NoError(t, err)

	require.True(t, s.Expire(c.SessionID()))
	waitEvent(t, gone, zk.EventNodeDeleted, "/a")
	waitState(t, events, zk.StateExpired)
	waitState(t, events, zk.StateHasSession)
	require.False(t, s.Expire(1), "no such session")
	require.False(t, s.Disconnect(1), "no such session")
}

func TestOnlyASilentSessionTimesOut(t *testing.T) {
	s := start(t, zkfake.Config{MaxSessionTimeout: 4 * time.Second})
	lived := false
	for tries := 0; tries < 5 && !lived; tries++ { // on a machine that stands still, no session lives
		pinging, _ := connect(t, s.Addr(), 2*time.Second)
		id := pinging.SessionID()
		silence(t, s.Addr())
		_, _, err := pinging.Exists("/")
		lived = err == nil && id == pinging.SessionID()
	}
	require.True(t, lived, "twice its timeout has passed, and it has pinged")
}

// silence has a session time out after 4 s.
func silence(t *testing.T, server string) {
	silent, err := net.Dial("tcp", server)
	require.NoError(t, err)
	defer silent.Close()
	began := time.Now()
	hello := make([]byte, 4+44) // length, version, zxid, timeout, session, password: all 0 but these two
	binary.BigEndian.PutUint32(hello, 44)
	binary.BigEndian.PutUint32(hello[16:], uint32(time.Hour/time.Millisecond))
	binary.BigEndian.PutUint32(hello[28:], 16)
	_, err = silent.Write(hello)
	require.NoError(t, err)
	answer, err := io.ReadAll(silent) // until the server hangs up
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 4*time.Second)
	require.EqualValues(t, 4000, binary.BigEndian.Uint32(answer[8:]), "the granted timeout")
}
