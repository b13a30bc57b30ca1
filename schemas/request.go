package schemas

import (
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Request is one decoded intake record.
type Request struct {
	Op    Op
	Topic string // target topic; of an HTTP callback (see Settings.Callback) its URL's origin

	// ID names the task together with its target. Default, in a schedule request: the DefaultID.
	ID      string
	GivenID bool

	// Due is the due time in Unix ms, from notyet-at or notyet-delay. It may be in the past, even
	// before 1970: deliver at once. It is 0 for every op but schedule.
	Due int64

	// Delay is only for callers. If not 0, Record writes notyet-delay, which counts from the intake
	// record's timestamp, instead of notyet-at. Decode leaves it 0.
	Delay time.Duration

	// Accepted is the intake record's timestamp in Unix ms.
	Accepted int64

	// Version orders requests about one task; NoVersion when absent.
	Version int64

	Settings Settings

	// MaxValue is the largest value in bytes that merging may produce (notyet-if-exists merge): the
	// accepting intake's limit. 0 means DefaultMaxValueBytes.
	MaxValue int

	// Key, Value and Headers are the business's own. They are delivered byte for byte, null as
	// null, headers in order. Decode lets them share the record's memory.
	Key, Value []byte
	Headers    []kgo.RecordHeader

	// Timer is set for OpTimer.
	Timer Timer
}

// NoVersion is the Version of a request without one.
const NoVersion int64 = -1

// NewRequest returns a request with the contract's defaults. For an empty id the scanner makes one.
func NewRequest(op Op, topic, id string) Request {
	r := Request{Op: op, Topic: topic, ID: id, GivenID: id != "", Version: NoVersion, Settings: DefaultSettings()}
	r.Settings.Events = DefaultEvents(r.GivenID)
	return r
}

// Record returns the request as a record for the given intake topic. It decodes the record again to
// find mistakes now and not as a rejection event: such an error is a *Rejection. It does not know
// the installation's Limits (horizon, size, allowed targets). The record's timestamp is Accepted,
// or unset for 0.
//
// Headers may hold the caller's own headers. Key, value and header values are shared, not copied.
func (r Request) Record(intake string) (*kgo.Record, error) {
	rec := &kgo.Record{Topic: intake, Key: r.Key, Value: r.Value, Headers: r.appendHeaders(nil)}
	check := *rec
	check.Timestamp = time.Now()
	if r.Accepted != 0 {
		rec.Timestamp = time.UnixMilli(r.Accepted)
		check.Timestamp = rec.Timestamp
	}
	anything := Limits{MaxDelay: math.MaxInt64, MaxValueBytes: MaxValueBytes, InternalTopics: []string{}}
	if _, err := Decode(&check, anything); err != nil {
		return nil, err
	}
	return rec, nil
}

// namedByURL: only the callback's URL names the target. Another topic is written too, and refused.
func (r Request) namedByURL() bool {
	if r.Settings.Callback.URL == "" || r.Op != OpSchedule && r.Op != OpTimer {
		return false
	}
	c, rej := ParseCallbackURL([]byte(r.Settings.Callback.URL))
	return r.Topic == "" || rej == nil && r.Topic == c.Origin
}

func (r Request) appendHeaders(dst []kgo.RecordHeader) []kgo.RecordHeader {
	dst = append(make([]kgo.RecordHeader, 0, len(dst)+len(r.Headers)+8), dst...)
	add := func(present bool, name, value string) {
		if present {
			dst = append(dst, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	add(r.Op != OpSchedule, HeaderOp, r.Op.String())
	add(!r.namedByURL(), HeaderTopic, r.Topic)
	add(r.GivenID, HeaderID, r.ID)
	if r.Op == OpSchedule {
		add(r.Delay == 0 || r.Due != 0, HeaderAt, string(appendAt(nil, r.Due)))
		add(r.Delay != 0, HeaderDelay, r.Delay.String())
	}
	add(r.Version != NoVersion, HeaderVersion, strconv.FormatInt(r.Version, 10))
	if r.Op == OpTimer {
		r.Timer.addHeaders(add)
	}
	if r.Op == OpSchedule || r.Op == OpTimer {
		dst = r.Settings.appendHeaders(dst, DefaultEvents(r.GivenID))
	}
	return append(dst, r.Headers...)
}
