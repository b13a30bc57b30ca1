package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// StartKafka is Start for brokers. It rewrites the brokers' addresses in answers to the proxy's, so
// that clients come through the proxy. The targets must be all brokers there are.
func StartKafka(targets ...string) (*Proxy, error) {
	return start(targets, func(p *Proxy) rewriter { return &kafka{proxy: p, asked: map[int32]request{}} })
}

type request struct{ key, version int16 }

// kafka is one connection to a broker.
type kafka struct {
	proxy *Proxy

	mu    sync.Mutex
	asked map[int32]request // by correlation id; only those whose answers are rewritten
}

// maxFrame is far above the size of any request or answer.
const maxFrame = 256 << 20

func (k *kafka) forward(d Direction, from, to net.Conn, gate func(int) bool) error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(from, size[:]); err != nil {
			gate(0)
			return err
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > maxFrame {
			return fmt.Errorf("a frame of %d bytes", n)
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(from, frame); err != nil {
			return err
		}
		if d == ToServer {
			k.note(frame)
		} else {
			var err error
			if frame, err = k.rewrite(frame); err != nil {
				return err
			}
		}
		if !gate(len(frame)) {
			continue
		}
		if _, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			return err
		}
	}
}

// note remembers a request whose answer names brokers. A request begins with key, version and
// correlation id.
func (k *kafka) note(frame []byte) {
	if len(frame) < 8 {
		return
	}
	r := request{int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))}
	if answer(r.key) == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked[int32(binary.BigEndian.Uint32(frame[4:]))] = r
}

// answer returns an empty answer of a kind that names brokers, or nil.
func answer(key int16) kmsg.Response {
	switch kmsg.Key(key) {
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster:
		return kmsg.ResponseForKey(key)
	}
	return nil
}

// rewrite replaces every broker's address in an answer by the proxy's. An answer begins with the
// correlation id and, in flexible versions, with tags, of which there are none.
func (k *kafka) rewrite(frame []byte) ([]byte, error) {
	if len(frame) < 4 {
		return frame, nil
	}
	id := int32(binary.BigEndian.Uint32(frame))
	k.mu.Lock()
	r, known := k.asked[id]
	delete(k.asked, id)
	k.mu.Unlock()
	if !known {
		return frame, nil
	}
	resp := answer(r.key)
	resp.SetVersion(r.version)
	head := frame[:4]
	if resp.IsFlexible() {
		head = frame[:5]
	}
	if err := resp.ReadFrom(frame[len(head):]); err != nil {
		return nil, fmt.Errorf("reading an answer to request %d: %w", r.key, err)
	}
	k.replace(resp)
	return resp.AppendTo(bytes.Clone(head)), nil
}

// through replaces a broker's address by the proxy's.
func (k *kafka) through(host *string, port *int32) {
	addr := k.proxy.Via(net.JoinHostPort(*host, strconv.Itoa(int(*port))))
	if h, n, err := net.SplitHostPort(addr); err == nil {
		number, _ := strconv.Atoi(n)
		*host, *port = h, int32(number)
	}
}

func (k *kafka) replace(resp kmsg.Response) {
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range resp.Brokers {
			k.through(&resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		k.through(&resp.Host, &resp.Port)
		for i := range resp.Coordinators {
			k.through(&resp.Coordinators[i].Host, &resp.Coordinators[i].Port)
		}
	case *kmsg.DescribeClusterResponse:
		for i := range resp.Brokers {
			k.through(&resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	}
}
