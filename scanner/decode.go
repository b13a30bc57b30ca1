package scanner

import (
	"errors"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

type decoder struct {
	reports string // the topic with reports
	cancels string // that with cancels of many; the others have requests
	limits  schemas.Limits
	byTopic atomic.Pointer[map[string]schemas.Limits] // replace limits; SetLimits writes it
	metrics *metrics
	log     *zap.Logger
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
	limits, ok := (*d.byTopic.Load())[r.Topic]
	if !ok {
		limits = d.limits
	}
	if limits.Callbacks == nil {
		limits.Callbacks = noCallbacks
	}
	request, err := schemas.Decode(r, limits)
	if err != nil {
		c.Rejected = rejected(c.Seq, r, err)
		return c, true
	}
	c.Request = &request
	return c, true
}

func noCallbacks(c schemas.CallbackURL) *schemas.Rejection {
	return &schemas.Rejection{Header: schemas.HeaderURL, Value: c.Origin, Problem: "is an HTTP callback, and this installation makes none", Fix: "name a topic in " + schemas.HeaderTopic + ", or ask the operator to set callback.enabled"}
}
