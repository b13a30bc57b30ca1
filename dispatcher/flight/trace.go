package flight

import (
	"cmp"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
)

// traced is what the spans of an attempt need to know. Whoever has the task writes it: the fetch loop, then whoever sends. A nil *traced is
// of a caller that is not traced; its methods do nothing.
type traced struct {
	caller  *tracing.Caller
	key     string // of the delivery
	fetched time.Time
	began   time.Time // when it was handed to the client
}

// newTraced returns nil for a caller that is not traced.
func newTraced(caller *tracing.Caller, key string) *traced {
	if caller == nil {
		return nil
	}
	now := time.Now()
	return &traced{caller: caller, key: key, fetched: now, began: now}
}

// begins notes that the task is handed to the client now.
func (d *traced) begins() {
	if d != nil {
		d.began = time.Now()
	}
}

// sent takes the producer's answer. It must come before the outcome is passed on: then the task is another loop's.
func (d *traced) sent(t *Task, now time.Time, r *kgo.Record, err error) {
	if d != nil {
		d.caller.Sent(d.delivery(t, now, tracing.Failure(err)), r.Partition, r.Offset)
	}
}

// called takes what came of a callback, likewise. A request that was never made is no attempt.
func (d *traced) called(t *Task, method string, now time.Time, o callback.Outcome) {
	if d == nil || o.Verdict == callback.NotSent {
		return
	}
	failure := ""
	switch {
	case o.Verdict == callback.Delivered:
	case o.Status != 0:
		failure = strconv.Itoa(o.Status)
	default:
		failure = o.Failure
	}
	d.caller.Called(d.delivery(t, now, failure), cmp.Or(method, schemas.DefaultMethod), o.Status)
}

// delivery describes the attempt; now is the database's time, as lateness has it.
func (d *traced) delivery(t *Task, now time.Time, failure string) tracing.Delivery {
	return tracing.Delivery{
		Target: t.topic, ID: t.id, Key: d.key, Due: t.due, Lateness: max(now.UnixMilli()-t.at, 0), Attempt: t.attempt + 1, Replay: t.replay,
		Fetched: d.fetched, Sent: d.began, Answered: time.Now(), Failure: failure,
	}
}
