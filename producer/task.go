package producer

import (
	"cmp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Task says what to deliver, where and when.
type Task struct {
	// Topic is the target topic. Set exactly one of Topic and URL.
	Topic string

	// URL is called by an HTTP request when the task is due, instead of a record on a topic. The
	// installation must make callbacks. The task's target is then the URL's origin: see Ref.
	URL string

	// Method is that of the request: POST, PUT, PATCH, DELETE or GET. Only with URL. Default POST.
	Method string

	// ID names the task together with Topic. With an ID the task can be replaced, merged,
	// cancelled, stopped and fired, and sending it again creates no second one while the first is
	// pending. 1 to 255 bytes of UTF-8. Default: made from the intake record's position, see Ref.
	ID string

	// At is the due time, rounded up to a millisecond. A time in the past means delivery at once.
	// schemas.LocalTime makes it of a local time in a time zone. Set exactly one of At and Delay.
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

	// Settings replace the defaults; start from schemas.DefaultSettings, or with a URL from
	// schemas.CallbackSettings. nil: the defaults, with events only for a task with an ID.
	Settings *schemas.Settings
}

// Ref names a task, for Cancel, Stop and Fire.
type Ref struct {
	// Topic is the target topic. Of a task with a URL it is the URL's origin, such as
	// https://shop.example.
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
	r.Settings, r.Topic = called(r.Settings, t.Settings == nil, t.Topic, t.URL, t.Method)
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

// target returns the topic, or the origin of the URL.
func (t Task) target() string {
	var s schemas.Settings
	if t.Settings != nil {
		s = *t.Settings
	}
	_, target := called(s, false, t.Topic, t.URL, t.Method)
	return target
}

// called adds a callback to settings and returns the target. The request's check finds mistakes.
func called(s schemas.Settings, defaults bool, topic, url, method string) (schemas.Settings, string) {
	if url == "" {
		url, method = s.Callback.URL, cmp.Or(method, s.Callback.Method)
	}
	if url == "" {
		s.Callback.Method = method
		return s, topic
	}
	c := schemas.CallbackSettings(url, method)
	s.Callback = c.Callback
	if defaults {
		s.AckTimeout = c.AckTimeout
	}
	if topic == "" {
		if u, rej := schemas.ParseCallbackURL([]byte(url)); rej == nil {
			topic = u.Origin
		}
	}
	return s, topic
}

// explicit makes a negative version one that is refused, instead of passing for an absent one.
func explicit(version int64) int64 {
	if version == schemas.NoVersion {
		return schemas.NoVersion - 1
	}
	return version
}
