package schemas

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// rawName prefixes a rejected record's headers, to distinguish its notyet-* headers from the
// settings of a body.
const rawName = "raw:"

// perRecord is the size of a body in bytes without key, value and headers, rounded up.
const perRecord = 32

// perHeader is the size of a header in a body without name and value: rawName and lengths, rounded
// up. It also limits the number of headers.
const perHeader = 16

// EncodeRejected returns the body of a dead letter for a rejected request: the intake record's key,
// value and all headers, unchanged. Of a record above MaxRejectedBytes only a part is kept;
// RejectedPart returns how much.
func EncodeRejected(r *kgo.Record) []byte {
	key, value, headers := rejectedPart(r)
	raw := make([]kgo.RecordHeader, len(headers))
	for i, h := range headers {
		raw[i] = kgo.RecordHeader{Key: rawName + h.Key, Value: h.Value}
	}
	return EncodeBody(nil, key, value, raw, defaults)
}

// EncodeRejected does the same for a request that was valid and is rejected later.
func (r Request) EncodeRejected() []byte {
	return EncodeRejected(&kgo.Record{Key: r.Key, Value: r.Value, Headers: r.appendHeaders(nil)})
}

// RejectedPart returns how many bytes of the record EncodeRejected keeps, and how many it has. Each
// header counts 16 bytes in addition to its name and value, and the record 32.
func RejectedPart(r *kgo.Record) (kept, size int) {
	key, value, headers := rejectedPart(r)
	return contentLen(key, value, headers), contentLen(r.Key, r.Value, r.Headers)
}

// rejectedPart cuts a record that is too large. Headers get half of the room, the key gets half of
// the rest, and the value gets what is left.
func rejectedPart(r *kgo.Record) (key, value []byte, headers []kgo.RecordHeader) {
	if contentLen(r.Key, r.Value, r.Headers) <= MaxRejectedBytes {
		return r.Key, r.Value, r.Headers
	}
	headers, room := firstHeaders(r.Headers, MaxRejectedBytes/2)
	room += MaxRejectedBytes/2 - perRecord
	key = CutUTF8(r.Key, room/2)
	return key, CutUTF8(r.Value, room-len(key)), headers
}

// firstHeaders returns the headers that fit into room, the last one possibly cut, and the rest of
// it.
func firstHeaders(all []kgo.RecordHeader, room int) ([]kgo.RecordHeader, int) {
	for i, h := range all {
		need := perHeader + len(h.Key) + len(h.Value)
		if need <= room {
			room -= need
			continue
		}
		first := all[:i:i]
		if room -= perHeader + len(h.Key); room > 0 { // a cut name would be another header
			h.Value = CutUTF8(h.Value, room)
			return append(first, h), room - len(h.Value)
		}
		return first, 0
	}
	return all, room
}

func contentLen(key, value []byte, headers []kgo.RecordHeader) int {
	n := perRecord + len(key) + len(value) + perHeader*len(headers)
	for i := range headers {
		n += len(headers[i].Key) + len(headers[i].Value)
	}
	return n
}

// DecodeRejected reads what EncodeRejected wrote. Its settings have no meaning.
func DecodeRejected(b []byte) (Body, error) {
	body, err := DecodeBody(b)
	for i := range body.Headers {
		body.Headers[i].Key = strings.TrimPrefix(body.Headers[i].Key, rawName)
	}
	return body, err
}
