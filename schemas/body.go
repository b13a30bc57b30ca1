package schemas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// bodyVersion is the first byte of a body.
const bodyVersion = 1

var errBody = errors.New("malformed body")

// Body is a store's memory of a task for the delivery.
type Body struct {
	Key, Value []byte // null and empty stay different
	Headers    []kgo.RecordHeader
	Settings   Settings
}

// EncodeBody appends the body to dst: one version byte, and a record in Kafka's own encoding
// (record batch v2: length, attributes, both deltas 0, key, value, headers). Its first headers are
// the settings other than DefaultSettings, so default settings take no space. The steps of a
// backoff are in HeaderRetryAfter.
//
// No header may start with Prefix; Decode accepts none.
func EncodeBody(dst, key, value []byte, headers []kgo.RecordHeader, s Settings) []byte {
	var space [8]kgo.RecordHeader
	settings := space[:0]
	if s != defaults {
		steps := s.Backoff.Steps
		s.Backoff.Steps = "" // a program of the version before can make no record of a body with a backoff that it does not know
		settings = s.appendHeaders(settings, defaults.Events)
		if steps != "" {
			settings = append(settings, kgo.RecordHeader{Key: HeaderRetryAfter, Value: []byte(steps)})
		}
	}
	n := 3 + bytesLen(key) + bytesLen(value) + varintLen(len(settings)+len(headers)) // 3: attributes and deltas
	n += headersLen(settings) + headersLen(headers)
	if free := cap(dst) - len(dst); free < 1+varintLen(n)+n {
		dst = append(make([]byte, 0, len(dst)+1+varintLen(n)+n), dst...)
	}
	dst = append(dst, bodyVersion)
	dst = binary.AppendVarint(dst, int64(n))
	dst = append(dst, 0, 0, 0)
	dst = appendBytes(dst, key)
	dst = appendBytes(dst, value)
	dst = binary.AppendVarint(dst, int64(len(settings)+len(headers)))
	dst = appendHeaders(dst, settings)
	return appendHeaders(dst, headers)
}

// DecodeBody reads what EncodeBody wrote. Key, value and header values share b's memory. It ignores
// settings of a newer version. Another version byte or trailing bytes are an error.
func DecodeBody(b []byte) (Body, error) {
	if len(b) == 0 {
		return Body{}, fmt.Errorf("decoding body: %w: no bytes", errBody)
	}
	if b[0] != bodyVersion {
		return Body{}, fmt.Errorf("decoding body: unknown version %d", b[0])
	}
	r := bodyReader{rest: b[1:]}
	if length := r.varint(); r.failed || length != int64(len(r.rest)) {
		return Body{}, fmt.Errorf("decoding body: %w: wrong length", errBody)
	}
	r.take(1) // attributes
	r.varint()
	r.varint()
	body := Body{Key: r.bytes(), Value: r.bytes(), Settings: defaults}
	if err := r.headers(&body); err != nil {
		return Body{}, err
	}
	if r.failed || len(r.rest) != 0 {
		return Body{}, fmt.Errorf("decoding body: %w: cut or too long", errBody)
	}
	body.Settings.clamp()
	return body, nil
}

// BodyKey reads the key alone, from the beginning of a body. False: it is too short, or none.
func BodyKey(b []byte) (key []byte, ok bool) {
	if len(b) == 0 || b[0] != bodyVersion {
		return nil, false
	}
	r := bodyReader{rest: b[1:]}
	r.varint() // length
	r.take(1)  // attributes
	r.varint()
	r.varint()
	key = r.bytes()
	return key, !r.failed
}

// headers splits the leading settings from the business's headers.
func (r *bodyReader) headers(body *Body) error {
	count := r.varint()
	if count < 0 || count > int64(len(r.rest)/2) { // a header takes at least two bytes
		r.failed = true
		return nil
	}
	leading := true
	for left := count; left > 0 && !r.failed; left-- {
		key, v := r.bytes(), r.bytes()
		if key == nil {
			r.failed = true // a header's name is never null
			return nil
		}
		if leading && strings.HasPrefix(string(key), Prefix) {
			if rej := body.Settings.set(lookup(string(key)), v); rej != nil {
				return fmt.Errorf("decoding body: %w", rej)
			}
			continue
		}
		if leading {
			leading = false
			body.Headers = make([]kgo.RecordHeader, 0, left)
		}
		body.Headers = append(body.Headers, kgo.RecordHeader{Key: string(key), Value: v})
	}
	return nil
}

// bodyReader remembers its first failure, so callers check once at the end.
type bodyReader struct {
	rest   []byte
	failed bool
}

func (r *bodyReader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 || v > math.MaxInt32 || v < -1 {
		r.failed = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *bodyReader) take(n int64) []byte {
	if r.failed || n > int64(len(r.rest)) {
		r.failed = true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// bytes returns nil for null and an empty slice for empty.
func (r *bodyReader) bytes() []byte {
	n := r.varint()
	if n < 0 {
		return nil
	}
	return r.take(n)
}

// appendBytes writes the length as a zigzag varint, like Go's signed varints and Kafka's, and then
// the bytes. A length of -1 is null.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func appendHeaders(dst []byte, headers []kgo.RecordHeader) []byte {
	for i := range headers {
		dst = binary.AppendVarint(dst, int64(len(headers[i].Key)))
		dst = append(dst, headers[i].Key...)
		dst = appendBytes(dst, headers[i].Value)
	}
	return dst
}

func bytesLen(b []byte) int { return varintLen(len(b)) + len(b) } // null and empty both take one byte

func headersLen(headers []kgo.RecordHeader) int {
	n := 0
	for i := range headers {
		n += varintLen(len(headers[i].Key)) + len(headers[i].Key) + bytesLen(headers[i].Value)
	}
	return n
}

// varintLen returns the size of n ≥ 0 as a zigzag varint: seven bits a byte, one for the sign.
func varintLen(n int) int {
	size := 1
	for u := uint64(n) << 1; u >= 0x80; u >>= 7 {
		size++
	}
	return size
}
