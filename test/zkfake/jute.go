package zkfake

import (
	"encoding/binary"
	"errors"
	"io"
)

// maxPacket is ZooKeeper's own limit for a request (jute.maxbuffer), 1 MiB.
const maxPacket = 1 << 20

var errShort = errors.New("packet too short")

// readPacket reads one packet: its length in 4 bytes, then as many bytes.
func readPacket(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxPacket {
		return nil, errors.New("packet too long")
	}
	p := make([]byte, n)
	_, err := io.ReadFull(r, p)
	return p, err
}

// decoder reads the fields of a packet. It remembers the first lack of bytes; everything after it
// reads as zero.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.err, d.rest = errShort, nil
		return make([]byte, max(0, min(n, 16)))
	}
	p := d.rest[:n]
	d.rest = d.rest[n:]
	return p
}

func (d *decoder) int() int32     { return int32(binary.BigEndian.Uint32(d.take(4))) }
func (d *decoder) long() int64    { return int64(binary.BigEndian.Uint64(d.take(8))) }
func (d *decoder) bool() bool     { return d.take(1)[0] != 0 }
func (d *decoder) string() string { return string(d.buffer()) }

// buffer reads a byte string; length -1 is null.
func (d *decoder) buffer() []byte {
	n := int(d.int())
	if n <= 0 {
		return nil
	}
	return append([]byte(nil), d.take(n)...)
}

func (d *decoder) strings() []string {
	var all []string
	for n := d.int(); n > 0 && d.err == nil; n-- {
		all = append(all, d.string())
	}
	return all
}

// acl skips an access list: the fake enforces none.
func (d *decoder) acl() {
	for n := d.int(); n > 0 && d.err == nil; n-- {
		d.int()
		d.string()
		d.string()
	}
}

// encoder builds a packet. Its first 4 bytes are the length.
type encoder struct{ p []byte }

func newPacket() *encoder { return &encoder{p: make([]byte, 4, 128)} }

func (e *encoder) int(v int32)  { e.p = binary.BigEndian.AppendUint32(e.p, uint32(v)) }
func (e *encoder) long(v int64) { e.p = binary.BigEndian.AppendUint64(e.p, uint64(v)) }

func (e *encoder) bool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	e.p = append(e.p, b)
}

func (e *encoder) buffer(v []byte) {
	if v == nil {
		e.int(-1)
		return
	}
	e.int(int32(len(v)))
	e.p = append(e.p, v...)
}

func (e *encoder) string(v string) {
	e.int(int32(len(v)))
	e.p = append(e.p, v...)
}

func (e *encoder) packet() []byte {
	binary.BigEndian.PutUint32(e.p, uint32(len(e.p)-4))
	return e.p
}
