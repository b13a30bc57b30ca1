package schemas

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// rawName keeps a rejected record's headers, notyet-* ones among them, apart from the settings of a body.
const rawName = "raw:"

// EncodeRejected is the body of a dead letter for a request that could not be taken: the intake record's key, value and
// all its headers, just as they came.
func EncodeRejected(r *kgo.Record) []byte {
	headers := make([]kgo.RecordHeader, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = kgo.RecordHeader{Key: rawName + h.Key, Value: h.Value}
	}
	return EncodeBody(nil, r.Key, r.Value, headers, defaults)
}

// DecodeRejected reads what EncodeRejected wrote; the settings mean nothing.
func DecodeRejected(b []byte) (Body, error) {
	body, err := DecodeBody(b)
	for i := range body.Headers {
		body.Headers[i].Key = strings.TrimPrefix(body.Headers[i].Key, rawName)
	}
	return body, err
}
