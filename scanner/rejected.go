package scanner

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// maxReason is the most bytes of a dead letter's reason.
const maxReason = 4096

func rejectedRecord(seq int64, r *kgo.Record, topic, id string, err error) *task.DeadLetter {
	d := &task.DeadLetter{Seq: seq, Kind: schemas.KindRejected, Topic: schemas.CutUTF8(topic, schemas.MaxTopicLen), TaskID: schemas.CutUTF8(id, schemas.MaxIDLen), Body: schemas.EncodeRejected(r)}
	part := ""
	if kept, size := schemas.RejectedPart(r); kept < size {
		part = fmt.Sprintf(" (%d of its %d bytes are kept, the rest is in the intake: %s)", kept, size, schemas.DefaultID(r.Topic, r.Partition, r.Offset))
	}
	d.Reason = schemas.CutUTF8(err.Error(), maxReason-len(part)) + part
	return d
}

// atQuota rejects requests beyond the quota of requests. A request beyond another quota goes on
// with the quota's name. A request that ends something is never lost to a quota.
func atQuota(c task.Change, r *kgo.Record, quota string) task.Change {
	if quota == "" || c.Request == nil || c.Request.Op.Ends() {
		return c
	}
	if quota != quotaRequests {
		c.Beyond = quota
		return c
	}
	err := &schemas.Rejection{Topic: c.Request.Topic, ID: c.Request.ID, Header: "quota", Value: quota, Problem: "of the intake is used up", Fix: "send it again later, or ask the operator to raise the quota"}
	return task.Change{Seq: c.Seq, Rejected: rejected(c.Seq, r, err), NoLetter: c.NoLetter}
}

// bareRejection is the dead letter of a record of which nothing can be kept.
func bareRejection(seq int64, r *kgo.Record, reason string) *task.DeadLetter {
	id := schemas.DefaultID(r.Topic, r.Partition, r.Offset)
	return &task.DeadLetter{Seq: seq, Kind: schemas.KindRejected, TaskID: schemas.CutUTF8(id, schemas.MaxIDLen), Reason: schemas.CutUTF8(reason, maxReason)}
}

func rejected(seq int64, r *kgo.Record, err error) *task.DeadLetter {
	var rej *schemas.Rejection
	if !errors.As(err, &rej) {
		rej = &schemas.Rejection{}
	}
	return rejectedRecord(seq, r, rej.Topic, rej.ID, err)
}
