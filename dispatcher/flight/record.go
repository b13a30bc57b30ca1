package flight

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// prepare makes the content of a task, with a record complete but for the instant of sending. No
// lock is needed: the content is not the task's yet, and only the fetch loop has a task without a
// body.
func (fl *machine) prepare(t *Task, c *content, row *task.Task, keys DeliveryKeys, tracer *tracing.Tracer) error {
	c.topic, c.id, c.due, c.attempt, c.replay, c.state = row.Topic, row.ID, row.Due, row.Attempt, row.Replay, row.State
	c.idle, c.snoozed = row.Idle || row.State != task.StateRetry, row.Snoozed
	c.tenant = fl.cfg.Tenants.of(row.Seq)
	c.body, c.size = row.Body, len(row.Body)+500
	body, err := schemas.DecodeBody(row.Body)
	if err != nil {
		return err
	}
	c.settings = body.Settings
	t.at = c.due
	if c.attempt > 0 {
		t.at = t.pos
	}
	if c.state == task.StateReport {
		t.at += fl.cfg.transit().Milliseconds()
		return nil // nothing to send: its report is missing
	}
	key, err := keys.DeliveryKey(row.Seq, int(c.sendNumber()))
	if err != nil {
		return err
	}
	d := schemas.Delivery{ID: row.ID, Due: row.Due, Attempt: c.attempt + 1, Key: key, Replay: row.Replay, Timer: body.Settings.Run.Timer, Tag: body.Settings.Tag}
	c.trace = newTraced(tracer.Caller(body.Headers), key)
	if cb := body.Settings.Callback; cb.URL != "" {
		c.record = &kgo.Record{Topic: row.Topic, Key: body.Key, Value: body.Value}
		c.call = &callback.Request{URL: cb.URL, Method: cb.Method, Body: body.Value, Headers: body.Headers, Delivery: d, Timeout: body.Settings.AckTimeout}
		return nil
	}
	headers := make([]kgo.RecordHeader, len(body.Headers), len(body.Headers)+6)
	copy(headers, body.Headers)
	c.record = &kgo.Record{Topic: row.Topic, Key: body.Key, Value: body.Value, Headers: schemas.AppendDelivery(headers, d)}
	return nil
}
