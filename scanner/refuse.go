package scanner

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// maxReason is the most that a dead letter keeps of its reason.
const maxReason = 4096

// rejectedRecord is the dead letter of a record that was rejected for err.
func rejectedRecord(seq int64, r *kgo.Record, topic, id string, err error) *task.DeadLetter {
	d := &task.DeadLetter{Seq: seq, Kind: schemas.KindRejected, Topic: schemas.CutUTF8(topic, schemas.MaxTopicLen), TaskID: schemas.CutUTF8(id, schemas.MaxIDLen)}
	if d.Body = schemas.EncodeRejected(r); faultpoint.Without(faultpoint.RefusedAlone) {
		d.Body = schemas.EncodeBody(nil, r.Key, r.Value, r.Headers, schemas.Settings{})
	}
	part := ""
	if kept, size := schemas.RejectedPart(r); kept < size {
		part = fmt.Sprintf(" (%d of its %d bytes are kept, the rest is in the intake: %s)", kept, size, schemas.DefaultID(r.Topic, r.Partition, r.Offset))
	}
	d.Reason = schemas.CutUTF8(err.Error(), maxReason-len(part)) + part
	return d
}

// bareRejection is the dead letter of a record of which nothing can be kept.
func bareRejection(seq int64, r *kgo.Record, reason string) *task.DeadLetter {
	id := schemas.DefaultID(r.Topic, r.Partition, r.Offset)
	return &task.DeadLetter{Seq: seq, Kind: schemas.KindRejected, TaskID: schemas.CutUTF8(id, schemas.MaxIDLen), Reason: schemas.CutUTF8(reason, maxReason)}
}

// refusedRecords holds the records that the database has refused, by seq. Each was alone in its batch then.
type refusedRecords map[int64]*refusedRecord

type refusedRecord struct {
	reason string
	bare   bool // the database refused the dead letter too: keep nothing of the record in it
}

// add notes that the database refused a record, with err. False: it refuses even a dead letter without a body.
func (m refusedRecords) add(seq int64, err error) bool {
	switch r := m[seq]; {
	case r == nil:
		m[seq] = &refusedRecord{reason: fmt.Sprintf("the database refuses this request: %v", err)}
	case !r.bare:
		r.bare = true
	default:
		return false
	}
	return true
}

// decode makes a change of an intake record. For a record that was refused, the change is a rejection.
func (m refusedRecords) decode(d *decoder, of stretch) func(source int, r *kgo.Record) (task.Change, bool) {
	return func(source int, r *kgo.Record) (task.Change, bool) {
		seq := task.Seq(source, r.Offset)
		refused := m[seq]
		switch {
		case r.Attrs.IsControl(): // a marker of a transaction
			return task.Change{Seq: seq}, false
		case of.unreadable != nil:
			reason := fmt.Sprintf("the batch of records, or batches, at the offsets %d to %d cannot be read: %s; send smaller batches, as Kafka's own clients make them", r.Offset, of.to-1, of.unreadable.Reason)
			return task.Change{Seq: seq, Rejected: bareRejection(seq, r, reason)}, true
		}
		if refused == nil {
			return d.decode(source, r)
		}
		c := task.Change{Seq: seq, Rejected: bareRejection(seq, r, refused.reason)}
		if !refused.bare {
			c.Rejected.Body = schemas.EncodeRejected(r)
		}
		return c, true
	}
}
