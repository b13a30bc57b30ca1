package scanner

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// The most that the dead letter of a rejected record keeps of it, and of the texts about it. The intake has all of it.
const (
	maxKept   = 64 << 10
	maxReason = 4096
	maxTopic  = 249
)

// rejectedRecord is the dead letter of a record that was rejected for err.
func rejectedRecord(seq int64, r *kgo.Record, topic, id string, err error) *store.DeadLetter {
	d := &store.DeadLetter{Seq: seq, Kind: store.KindRejected, Topic: cut(topic, maxTopic), TaskID: cut(id, schemas.MaxIDLen), Reason: cut(err.Error(), maxReason)}
	d.Body = schemas.EncodeRejected(kept(r))
	return d
}

// bareRejection is the dead letter of a record of which nothing can be kept.
func bareRejection(seq int64, r *kgo.Record, reason string) *store.DeadLetter {
	id := schemas.DefaultID(r.Topic, r.Partition, r.Offset)
	return &store.DeadLetter{Seq: seq, Kind: store.KindRejected, TaskID: cut(id, schemas.MaxIDLen), Reason: cut(reason, maxReason)}
}

// kept cuts a record to what a dead letter keeps: first of its key, then of its headers, then of its value.
func kept(r *kgo.Record) *kgo.Record {
	const field = 32 // what the form adds to a field, at most
	room := maxKept - 1024
	take := func(b []byte) []byte {
		n := max(min(len(b), room), 0)
		room -= n + field
		return b[:n:n]
	}
	out := *r
	out.Key, out.Headers = take(r.Key), nil
	for _, h := range r.Headers {
		if room < len(h.Key)+field {
			break
		}
		room -= len(h.Key) + field
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: take(h.Value)})
	}
	out.Value = take(r.Value)
	return &out
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// refusals are the records that the database refuses, by seq, each alone in its batch by then.
type refusals map[int64]*refusal

type refusal struct {
	reason string
	bare   bool // it refused the dead letter too: keep nothing of the record
}

// add notes that the database refused a record for err; false: it refuses even the barest dead letter.
func (m refusals) add(seq int64, err error) bool {
	switch r := m[seq]; {
	case r == nil:
		m[seq] = &refusal{reason: fmt.Sprintf("the database refuses this request: %v", err)}
	case !r.bare:
		r.bare = true
	default:
		return false
	}
	return true
}

// decode makes a change of an intake record, the rejection of one that is refused.
func (m refusals) decode(s *Scanner, of run) func(source int, r *kgo.Record) (store.Change, bool) {
	return func(source int, r *kgo.Record) (store.Change, bool) {
		seq := store.Seq(source, r.Offset)
		refused := m[seq]
		if of.tooLarge != nil {
			reason := fmt.Sprintf("the batch of records at the offsets %d to %d is larger than 64 MiB when it is decompressed: send less in one batch (%v)", r.Offset, of.to-1, of.tooLarge)
			return store.Change{Seq: seq, Rejected: bareRejection(seq, r, reason)}, true
		}
		if refused == nil {
			return s.decode(source, r)
		}
		c := store.Change{Seq: seq, Rejected: bareRejection(seq, r, refused.reason)}
		if !refused.bare {
			c.Rejected.Body = schemas.EncodeRejected(kept(r))
		}
		return c, true
	}
}
