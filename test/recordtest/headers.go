// Package recordtest makes and reads headers of Kafka's records, for tests.
package recordtest

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers are made of names and values by turns.
func Headers(pairs ...string) (out []kgo.RecordHeader) {
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
	}
	return out
}

// Header returns the value of the first header with a name, "" if there is none.
func Header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
