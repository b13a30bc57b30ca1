package intake

import (
	"time"

	"github.com/notyet/notyet/schemas"
)

type option func(*schemas.Request)

func (f *fixture) request(op schemas.Op, id string, with []option) *schemas.Request {
	r := schemas.NewRequest(op, target, id)
	r.Accepted = f.now
	r.Settings.Events = schemas.EventsAll // so that every answer is seen
	for _, o := range with {
		o(&r)
	}
	return &r
}

// schedule asks for a delivery in one second, with the key and value "id", and to hear of everything.
func (f *fixture) schedule(id string, with ...option) *schemas.Request {
	base := []option{in(time.Second), key(id), value(id)}
	return f.request(schemas.OpSchedule, id, append(base, with...))
}

func (f *fixture) cancel(id string, with ...option) *schemas.Request {
	return f.request(schemas.OpCancel, id, with)
}

func (f *fixture) fire(id string, with ...option) *schemas.Request {
	return f.request(schemas.OpFire, id, with)
}

func (f *fixture) stop(id string, with ...option) *schemas.Request {
	return f.request(schemas.OpStop, id, with)
}

func in(d time.Duration) option {
	return func(r *schemas.Request) { r.Due = r.Accepted + d.Milliseconds() }
}
func key(k string) option           { return func(r *schemas.Request) { r.Key = []byte(k) } }
func value(v string) option         { return func(r *schemas.Request) { r.Value = []byte(v) } }
func version(v int64) option        { return func(r *schemas.Request) { r.Version = v } }
func tell(e schemas.Events) option  { return func(r *schemas.Request) { r.Settings.Events = e } }
func keep(r *schemas.Request)       { r.Settings.IfExists = schemas.Keep }
func once(r *schemas.Request)       { r.Settings.IfExists = schemas.Once }
func wantReport(r *schemas.Request) { r.Settings.Ack = schemas.AckReport }

func merge(m schemas.MergeMode) option {
	return func(r *schemas.Request) { r.Settings.IfExists, r.Settings.Merge = schemas.Merge, m }
}

func maxWait(d time.Duration) option { return func(r *schemas.Request) { r.Settings.MaxWait = d } }
func maxAttempts(n int) option       { return func(r *schemas.Request) { r.Settings.MaxAttempts = n } }

func fixedBackoff(d time.Duration) option {
	return func(r *schemas.Request) { r.Settings.Backoff = schemas.Backoff{First: d, Max: d} }
}

func says(id string, attempt int, status schemas.Status) schemas.Report {
	return schemas.Report{Topic: target, ID: id, Attempt: attempt, Status: status, RetryAfter: schemas.NoRetryAfter}
}

const ms = time.Millisecond
