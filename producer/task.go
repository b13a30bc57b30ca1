package producer

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Task says what to deliver, where and when.
type Task struct {
	// Topic is the target topic. Required.
	Topic string

	// ID names the task together with Topic. With an ID the task can be replaced, merged, cancelled
	// and fired, and sending it again creates no second one while the first is pending. 1 to 255
	// bytes of UTF-8. Default: an id made from the intake record's position, see Ref.
	ID string

	// At is the due time, rounded up to a millisecond. A time in the past means delivery at once.
	// Set exactly one of At and Delay.
	At time.Time

	// Delay is the due time counted from the intake record's timestamp.
	Delay time.Duration

	// Key, Value and Headers are delivered byte for byte; nil stays null. No header may start with
	// "notyet-".
	Key, Value []byte
	Headers    []kgo.RecordHeader

	// Version orders requests about one task where Kafka cannot. It is at least 0; a request with a
	// lower version than the task's is ignored. nil: no version.
	Version *int64

	// Settings replace the defaults; start from schemas.DefaultSettings. nil: the defaults, with
	// events only for a task with an ID.
	Settings *schemas.Settings
}

// Ref names a task, for Cancel and Fire.
type Ref struct {
	Topic string
	ID    string

	// Key is the task's record key, which keeps requests about it in order. A task without a key
	// has no such order: use Version, or wait for its "scheduled" event.
	Key []byte

	// Version of the next request about the task. nil: none.
	Version *int64
}

func (t Task) request() (schemas.Request, error) {
	r := schemas.NewRequest(schemas.OpSchedule, t.Topic, t.ID)
	r.Key, r.Value, r.Headers = t.Key, t.Value, t.Headers
	if t.Version != nil {
		r.Version = explicit(*t.Version)
	}
	if t.Settings != nil {
		r.Settings = *t.Settings
	}
	switch {
	case t.At.IsZero() == (t.Delay == 0):
		return r, &schemas.Rejection{
			ID: t.ID, Topic: t.Topic, Header: schemas.HeaderAt,
			Problem: "needs exactly one of At and Delay", Fix: "set one; At: time.Now() delivers at once",
		}
	case t.Delay != 0:
		r.Delay = t.Delay
	default:
		r.Due = t.At.UnixMilli()
		if t.At.After(time.UnixMilli(r.Due)) {
			r.Due++ // late by less than a millisecond rather than early
		}
	}
	return r, nil
}

// explicit turns a negative version into one that is refused; otherwise it would pass for an absent
// one.
func explicit(version int64) int64 {
	if version == schemas.NoVersion {
		return schemas.NoVersion - 1
	}
	return version
}
