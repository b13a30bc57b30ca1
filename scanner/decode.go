package scanner

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

type decoder struct {
	reports   string // the topic with reports
	cancels   string // that with cancels of many; the others have requests
	limits    schemas.Limits
	byTopic   atomic.Pointer[map[string]schemas.Limits] // replace limits; SetLimits writes it
	placement placement
	metrics   *metrics
	log       *zap.Logger
}

func newDecoder(cfg Config, metrics *metrics, log *zap.Logger) *decoder {
	d := &decoder{reports: cfg.Reports, cancels: cfg.Cancels, limits: cfg.Limits, metrics: metrics, log: log}
	d.byTopic.Store(&cfg.IntakeLimits)
	return d
}

// decode makes a change of an intake record. A bad request becomes a rejection. A bad report with a
// task's name becomes a word about the task; any other bad report becomes nothing (false).
func (d *decoder) decode(source int, r *kgo.Record) (task.Change, bool) {
	c := task.Change{Seq: task.Seq(source, r.Offset)}
	if r.Topic == d.reports {
		_ = faultpoint.At(faultpoint.ScannerReport)
		report, err := schemas.DecodeReport(r)
		c.Report = &report
		if rej, bad := errors.AsType[*schemas.Rejection](err); bad {
			d.metrics.badReports.WithLabelValues(rej.ReportCause()).Inc()
			d.log.Debug("ignoring a bad report", zap.Int32("partition", r.Partition), zap.Int64("offset", r.Offset), zap.Error(err))
			c.Unread = rej.Error()
		}
		return c, err == nil || report.ID != ""
	}
	if r.Topic == d.cancels {
		many, err := task.DecodeCancels(r.Value)
		if c.Cancels = &many; err != nil {
			d.log.Error("ignoring a record that is none of notyet's cancels: see who may write the topic", zap.String("topic", r.Topic), zap.Int32("partition", r.Partition), zap.Int64("offset", r.Offset), zap.Error(err))
		}
		return c, err == nil
	}
	limits := d.limitsOf(r.Topic)
	if limits.Callbacks == nil {
		limits.Callbacks = noCallbacks
	}
	request, err := schemas.Decode(r, limits)
	if err != nil {
		c.Rejected = rejected(c.Seq, r, err)
		return c, true
	}
	if d.placement.look(r) {
		d.metrics.elsewhere.WithLabelValues(r.Topic).Inc()
	}
	c.Request, c.Unordered = &request, request.Op != schemas.OpSchedule && d.placement.unordered(r.Topic)
	return c, true
}

func (d *decoder) limitsOf(intake string) schemas.Limits {
	limits, ok := (*d.byTopic.Load())[intake]
	if !ok {
		limits = d.limits
	}
	return limits
}

// target returns an intake's own target; "": it has none.
func (d *decoder) target(intake string) string {
	if intake == d.reports || intake == d.cancels {
		return ""
	}
	return d.limitsOf(intake).Target
}

func noCallbacks(c schemas.CallbackURL) *schemas.Rejection {
	return &schemas.Rejection{Header: schemas.HeaderURL, Value: c.Origin, Problem: "is an HTTP callback, and this installation makes none", Fix: "name a topic in " + schemas.HeaderTopic + ", or ask the operator to set callback.enabled"}
}

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
