package zkconn_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/election/zkconn"
)

// stream is a net.Conn that only reads.
type stream struct {
	net.Conn
	io.Reader
}

func (s stream) Read(p []byte) (int, error) { return s.Reader.Read(p) }

func packet(body ...[]byte) []byte {
	all := bytes.Join(body, nil)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(all))), all...)
}

func number[T uint32 | uint64](n T) []byte {
	if n, ok := any(n).(uint64); ok {
		return binary.BigEndian.AppendUint64(nil, n)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(n))
}

func TestAnswersShowNoZxid(t *testing.T) {
	const full = ^uint64(0)
	handshake := packet(number[uint32](0), number[uint32](2500), number(full), number[uint32](2), []byte("pw"))
	answer := func(zxid uint64, body string) []byte {
		return packet(number[uint32](7), number(zxid), number[uint32](9), []byte(body))
	}
	short := packet([]byte{1, 2}) // no server sends it; what follows must still be read right
	empty := packet()
	sent := bytes.Join([][]byte{handshake, answer(full, "a body of any length"), answer(full, ""), short, empty, answer(1, "x")}, nil)
	want := bytes.Join([][]byte{handshake, answer(0, "a body of any length"), answer(0, ""), short, empty, answer(0, "x")}, nil)
	for name, pieces := range map[string]func(io.Reader) io.Reader{
		"at once":        func(r io.Reader) io.Reader { return r },
		"byte by byte":   iotest.OneByteReader,
		"in halves":      iotest.HalfReader,
		"end with bytes": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			var granted []time.Duration
			c := zkconn.New(stream{Reader: pieces(bytes.NewReader(sent))}, func(d time.Duration) { granted = append(granted, d) })
			got, err := io.ReadAll(c)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, []time.Duration{2500 * time.Millisecond}, granted)
		})
	}
}

// The answer of a server that wants TLS, read as a packet, would be one of 352 MB.
func TestPacketsAreBounded(t *testing.T) {
	alert := []byte{21, 3, 1, 0, 2, 2, 70}
	for name, r := range map[string]io.Reader{"at once": bytes.NewReader(alert), "byte by byte": iotest.OneByteReader(bytes.NewReader(alert))} {
		_, err := io.ReadFull(zkconn.New(stream{Reader: r}, func(time.Duration) {}), make([]byte, 4))
		require.ErrorContains(t, err, "not a ZooKeeper server", name)
	}
	allowed := binary.BigEndian.AppendUint32(nil, zkconn.MaxPacket)
	_, err := io.ReadFull(zkconn.New(stream{Reader: bytes.NewReader(allowed)}, func(time.Duration) {}), make([]byte, 4))
	require.NoError(t, err)
}

// A client that is closed ends, also if a write fails while requests come.
func TestTheClientEnds(t *testing.T) {
	for range 20 { // which requests it still takes is random
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			c, done, err := zk.Connect([]string{"server"}, time.Hour, zk.WithLogInfo(false), zk.WithHostProvider(anyHost{}),
				zk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
					return zkconn.New(client, func(time.Duration) {}), nil
				}))
			require.NoError(t, err)
			read := func() (opcode int32) { // of the next packet, the rest of which is left of an exists
				head := make([]byte, 12)
				_, err := io.ReadFull(server, head)
				require.NoError(t, err)
				if opcode = int32(binary.BigEndian.Uint32(head[8:])); opcode != exists {
					_, err = io.ReadFull(server, make([]byte, binary.BigEndian.Uint32(head)-8))
					require.NoError(t, err)
				}
				return opcode
			}
			read()
			_, err = server.Write(packet(number[uint32](0), number[uint32](3_600_000), number(uint64(7)), number[uint32](16), make([]byte, 16)))
			require.NoError(t, err)
			go func() { _, _, _ = c.Get("/a") }() // its write waits for the server
			synctest.Wait()
			go c.Close()
			synctest.Wait()
			for range 12 {
				_, _, err := c.Exists("/b")
				require.ErrorIs(t, err, zk.ErrConnectionClosed)
			}
			for op := read(); op != exists && op != ping; op = read() {
			}
			server.Close()
			for range done {
			}
		})
	}
}

const exists, ping = 3, 11 // opcodes; after a ping no more requests wait

// anyHost is a list of servers with one that has no address.
type anyHost struct{}

func (anyHost) Init([]string) error  { return nil }
func (anyHost) Len() int             { return 1 }
func (anyHost) Next() (string, bool) { return "server", false }
func (anyHost) Connected()           {}

func FuzzPacketsComeThrough(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0})
	f.Add(bytes.Repeat([]byte{255}, 40))
	f.Fuzz(func(t *testing.T, sent []byte) {
		whole, err := io.ReadAll(zkconn.New(stream{Reader: bytes.NewReader(sent)}, func(time.Duration) {}))
		split, splitErr := io.ReadAll(zkconn.New(stream{Reader: iotest.OneByteReader(bytes.NewReader(sent))}, func(time.Duration) {}))
		require.Equal(t, err, splitErr)
		if err == nil {
			require.Len(t, whole, len(sent))
			require.Equal(t, whole, split)
		}
	})
}
