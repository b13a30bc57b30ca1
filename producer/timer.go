package producer

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Timer says what to deliver again and again, where and when.
type Timer struct {
	// Topic is the target topic. Set exactly one of Topic and URL.
	Topic string

	// URL and Method are those of each run, as in a Task.
	URL, Method string

	// ID names the timer together with Topic. Timers have a name space of their own beside tasks. 1
	// to 241 bytes of UTF-8. Required.
	ID string

	// When is the timer's definition. Set exactly one of its Cron and Every.
	When schemas.Timer

	// Key, Value and Headers are those of each run, delivered byte for byte; nil stays null. No
	// header may start with "notyet-".
	Key, Value []byte
	Headers    []kgo.RecordHeader

	// Version orders requests about one timer where Kafka cannot. It is at least 0; a lower version
	// than the timer's is ignored. nil: no version.
	Version *int64

	// Settings replace each run's defaults; start from schemas.DefaultSettings. nil: the defaults.
	Settings *schemas.Settings
}

func (t Timer) request() schemas.Request {
	r := schemas.NewRequest(schemas.OpTimer, t.Topic, t.ID)
	r.Key, r.Value, r.Headers, r.Timer = t.Key, t.Value, t.Headers, t.When
	if t.Version != nil {
		r.Version = explicit(*t.Version)
	}
	if t.Settings != nil {
		r.Settings = *t.Settings
	}
	r.Settings, r.Topic = called(r.Settings, t.Settings == nil, t.Topic, t.URL, t.Method)
	return r
}

// TimerRecords returns the records that set timers, in order, without sending them.
func (p *Producer) TimerRecords(timers ...Timer) ([]*kgo.Record, error) {
	records := make([]*kgo.Record, len(timers))
	for i, t := range timers {
		var err error
		if records[i], err = t.request().Record(p.intake); err != nil {
			return nil, fmt.Errorf("making timer %d: %w", i, err)
		}
	}
	return records, nil
}

// SetTimer makes a timer, or replaces it, and waits until Kafka has acknowledged the request. For a
// mistake it returns a *schemas.Rejection and sends nothing. The answer is an event on the results
// topic: timer_set, stale or rejected. Only the answer judges a cron expression.
func (p *Producer) SetTimer(ctx context.Context, t Timer) (Ref, error) {
	records, err := p.TimerRecords(t)
	if err != nil {
		return Ref{}, err
	}
	if err := p.send(ctx, records)[0]; err != nil {
		return Ref{}, fmt.Errorf("setting timer %s: %w", t.ID, err)
	}
	return Ref{Topic: t.request().Topic, ID: t.ID, Key: t.Key}, nil
}

// EnableTimer asks notyet to run a timer again. Runs that passed while it was disabled are never
// made. The answer is timer_enabled or not_found.
func (p *Producer) EnableTimer(ctx context.Context, ref Ref) error {
	return p.ask(ctx, schemas.OpTimerEnable, ref)
}

// DisableTimer asks notyet to stop a timer until it is enabled. The answer is timer_disabled or
// not_found. After it, no run is delivered but those already claimed.
func (p *Producer) DisableTimer(ctx context.Context, ref Ref) error {
	return p.ask(ctx, schemas.OpTimerDisable, ref)
}

// DeleteTimer asks notyet to delete a timer. The answer is timer_deleted or not_found. After it, no
// run is delivered but those already claimed.
func (p *Producer) DeleteTimer(ctx context.Context, ref Ref) error {
	return p.ask(ctx, schemas.OpTimerDelete, ref)
}
