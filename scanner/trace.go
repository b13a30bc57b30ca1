package scanner

import (
	"slices"
	"time"

	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// trace makes the spans of a stored batch's records, of those whose senders are traced.
func (w *worker) trace(stretches []stretch, batch intake.Batch, covered []coverage) {
	if w.tracer == nil {
		return
	}
	stored := time.Now()
	var changes map[int64]*task.Change // made when there is somebody who is traced
	for _, r := range stretches {
		i := slices.IndexFunc(covered, func(c coverage) bool { return c.reading == r.reading })
		if i < 0 {
			continue
		}
		for _, rec := range r.records {
			if rec.Offset < covered[i].first || rec.Offset >= covered[i].src.Next {
				continue
			}
			caller := w.tracer.Caller(rec.Headers)
			if caller == nil {
				continue
			}
			if changes == nil {
				changes = bySeq(batch.Changes)
			}
			s := tracing.Stored{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Read: r.read, Stored: stored}
			caller.Stored(spanOf(s, changes[task.Seq(covered[i].src.ID, rec.Offset)]))
		}
	}
}

func bySeq(changes []task.Change) map[int64]*task.Change {
	out := make(map[int64]*task.Change, len(changes))
	for i := range changes {
		out[changes[i].Seq] = &changes[i]
	}
	return out
}

// spanOf adds what the record asked for. nil: a report that was ignored.
func spanOf(s tracing.Stored, c *task.Change) tracing.Stored {
	switch {
	case c == nil:
		s.Rejected = true
	case c.Rejected != nil:
		s.Rejected, s.Target, s.ID = true, c.Rejected.Topic, c.Rejected.TaskID
	case c.Report != nil:
		s.Op, s.Target, s.ID = "report", c.Report.Topic, c.Report.ID
	case c.Request != nil:
		s.Op, s.Target, s.ID, s.Due = c.Request.Op.String(), c.Request.Topic, c.Request.ID, c.Request.Due
	}
	return s
}
