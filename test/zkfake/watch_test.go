package zkfake

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rawClient speaks the protocol by hand: the library is not told the zxid that setting watches
// again goes by.
type rawClient struct {
	t   *testing.T
	tcp net.Conn
}

func dialRaw(t *testing.T, s *Server) *rawClient {
	tcp, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { tcp.Close() })
	require.NoError(t, tcp.SetDeadline(time.Now().Add(time.Minute)))
	c := &rawClient{t, tcp}
	hello := newPacket()
	hello.int(0)
	hello.long(0)
	hello.int(60_000)
	hello.long(0)
	hello.buffer(nil)
	c.exchange(hello)
	return c
}

func (c *rawClient) exchange(e *encoder) *decoder {
	_, err := c.tcp.Write(e.packet())
	require.NoError(c.t, err)
	return c.next()
}

func (c *rawClient) next() *decoder {
	p, err := readPacket(c.tcp)
	require.NoError(c.t, err)
	return &decoder{rest: p}
}

// ask sends a request, whose arguments args appends, and returns the zxid of its answer.
func (c *rawClient) ask(op int32, args func(e *encoder)) int64 {
	e := newPacket()
	e.int(5)
	e.int(op)
	args(e)
	return c.answer(c.exchange(e))
}

func (c *rawClient) answer(d *decoder) int64 {
	require.EqualValues(c.t, 5, d.int())
	zxid := d.long()
	require.Zero(c.t, d.int(), "error code")
	return zxid
}

func (c *rawClient) create(path string) int64 {
	return c.ask(opCreate, func(e *encoder) { e.string(path); e.buffer(nil); e.int(0); e.int(0) })
}

func (c *rawClient) event() (kind int32, path string) {
	d := c.next()
	require.EqualValues(c.t, -1, d.int())
	d.long()
	d.int()
	kind = d.int()
	d.int()
	return kind, d.string()
}

func TestWatchesSetAgainTellOnlyWhatWasMissed(t *testing.T) {
	s, err := Start(Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := dialRaw(t, s)
	c.create("/a")
	seen := c.create("/b")
	c.ask(opSetData, func(e *encoder) { e.string("/a"); e.buffer([]byte("1")); e.int(-1) })

	again := newPacket()
	again.int(5)
	again.int(opSetWatches)
	again.long(seen)
	again.int(2)
	again.string("/a")
	again.string("/b")
	again.int(0)
	again.int(1)
	again.string("/b")
	_, err = c.tcp.Write(again.packet())
	require.NoError(t, err)
	kind, path := c.event()
	require.EqualValues(t, dataChanged, kind)
	require.Equal(t, "/a", path)
	c.answer(c.next())

	other := dialRaw(t, s)
	other.create("/b/c")
	kind, path = c.event()
	require.EqualValues(t, childrenChanged, kind)
	require.Equal(t, "/b", path, "it had changed nothing by then, so its watch was set")
}
