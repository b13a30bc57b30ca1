package scanner

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// refusedRecords holds records that the database has refused alone in their batch, by seq.
type refusedRecords map[int64]*refusedRecord

type refusedRecord struct {
	reason string
	bare   bool // the database refused the dead letter too: keep nothing of the record in it
}

// isolate says how to go on after the database refused a batch of at most limit records because of
// one: with fewer, until the record is alone; then as a dead letter. False: it cannot be stored.
func (m refusedRecords) isolate(changes []task.Change, limit int, err error) (smaller int, ok bool) {
	if len(changes) > 1 {
		return max(1, min(limit, len(changes))/2), true
	}
	return limit, len(changes) == 1 && m.add(changes[0].Seq, err)
}

// add notes a refused record. False: the database refuses even a dead letter without a body.
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

// decode makes a change of an intake record. A refused record becomes a rejection.
func (m refusedRecords) decode(d *decoder, of stretch) func(source int, r *kgo.Record) (task.Change, bool) {
	first := int64(0)
	if len(of.records) > 0 {
		first = of.records[0].Offset
	}
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
			c, ok := d.decode(source, r)
			c.NoLetter = of.beyond != "" && r.Offset-first >= int64(of.letters)
			return atQuota(c, r, of.beyond), ok
		}
		c := task.Change{Seq: seq, Rejected: bareRejection(seq, r, refused.reason)}
		if !refused.bare {
			c.Rejected.Body = schemas.EncodeRejected(r)
		}
		return c, true
	}
}
