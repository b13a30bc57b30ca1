package embedded

import (
	"encoding/binary"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// Whoever speaks another protocol is let go, and costs nothing: kfake would make room for as many
// bytes as the first four say.
func TestStrangersAreLetGo(t *testing.T) {
	k, err := StartKafka(Config{Addr: "127.0.0.1:0"}, zap.NewNop())
	require.NoError(t, err)
	defer k.Close()
	for name, greeting := range map[string]string{
		"HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "TLS": "\x16\x03\x01\x02\x00", "negative": "\xff\xff\xff\xff", "zero": "\x00\x00\x00\x00",
		"one beyond": string(binary.BigEndian.AppendUint32(nil, maxRequest+1)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			conn, err := net.Dial("tcp", k.Addr())
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write([]byte(greeting))
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 1)) // returns when the broker has closed
			require.Error(t, err)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(50<<20))
		})
	}
}

// The account of a stream does not depend on how it is cut.
func TestGuardFollowsRequests(t *testing.T) {
	var stream []byte
	for _, n := range []int{1, 3, 4, 5, 1000, maxRequest % 1000} {
		stream = append(binary.BigEndian.AppendUint32(stream, uint32(n)), make([]byte, n)...)
	}
	for _, size := range []int{1, 2, 3, 4, 5, 7, 64, len(stream)} {
		c := guarded{}
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			require.NoError(t, c.follow(rest[:n]))
			rest = rest[n:]
		}
		require.Zero(t, c.left)
		require.Zero(t, c.have)
		require.True(t, c.seen)
		require.NoError(t, c.follow(binary.BigEndian.AppendUint32(nil, maxRequest)))
		c.left = 0
		require.ErrorIs(t, c.follow([]byte("HEAD")), errNotKafka)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	g := &guard{Listener: l}
	g.open.Store(maxConnections - 1)
	first, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer first.Close()
	taken, err := g.Accept()
	require.NoError(t, err)

	second, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer second.Close()
	next := make(chan net.Conn)
	go func() {
		conn, _ := g.Accept()
		next <- conn
	}()
	_, err = second.Read(make([]byte, 1))
	require.Error(t, err, "one too many is closed")
	require.NoError(t, taken.Close())
	third, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer third.Close()
	conn := <-next
	require.NotNil(t, conn, "there is room again")
	require.NoError(t, conn.Close())
	_ = conn.Close()
	require.EqualValues(t, maxConnections-1, g.open.Load(), "closing twice counts once")
}
