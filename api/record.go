package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Intake is a topic for requests.
type Intake struct {
	Topic  string
	Limits schemas.Limits
	// Now is the clock for checks and stamps of requests. Default this machine's.
	Now func() time.Time
}

func (in Intake) now() time.Time {
	if in.Now == nil {
		return time.Now()
	}
	return in.Now()
}

// Pick returns the intake of that name. Without a name, Pick prefers the intake whose own target is
// the topic, so that requests about one task go one way; otherwise the first without a target of
// its own; otherwise the first.
func Pick(intakes []Intake, name, topic string) (Intake, bool) {
	if name != "" {
		return pick(intakes, name)
	}
	for _, target := range []string{topic, ""} {
		i := slices.IndexFunc(intakes, func(in Intake) bool { return in.Limits.Target == target })
		if i >= 0 {
			return intakes[i], true
		}
	}
	if len(intakes) == 0 {
		return Intake{}, false
	}
	return intakes[0], true
}

func pick(intakes []Intake, name string) (Intake, bool) {
	i := slices.IndexFunc(intakes, func(in Intake) bool { return in.Topic == name })
	if i < 0 {
		return Intake{}, false
	}
	return intakes[i], true
}

type builder struct{ headers []kgo.RecordHeader }

// target names the target. A request without one is for the intake's own.
func (b *builder) target(in Intake, topic, url string) {
	if url == "" {
		topic = cmp.Or(topic, in.Limits.Target)
	}
	b.text(schemas.HeaderTopic, topic)
	b.text(schemas.HeaderURL, url)
}

func (b *builder) text(name, value string) {
	if value != "" {
		b.headers = append(b.headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
}

func (b *builder) number(name string, value *int64) {
	if value != nil {
		b.text(name, strconv.FormatInt(*value, 10))
	}
}

// own adds the business's headers. One with notyet's prefix would be taken for a setting.
func (b *builder) own(headers []kgo.RecordHeader) error {
	for i, h := range headers {
		if strings.HasPrefix(strings.ToLower(h.Key), schemas.Prefix) {
			return wrong(fmt.Sprintf("headers[%d].key", i), h.Key, "starts with "+schemas.Prefix+": those are fields of their own")
		}
	}
	b.headers = append(b.headers, headers...)
	return nil
}

func (b *builder) record(in Intake, key, value []byte) (*kgo.Record, error) {
	r := &kgo.Record{Topic: in.Topic, Key: key, Value: value, Headers: b.headers, Timestamp: in.now()}
	if _, err := schemas.Decode(r, in.Limits); err != nil {
		return nil, err
	}
	return r, nil
}

// DeliverySettings are the settings of a task's delivery and events.
type DeliverySettings struct {
	Priority    string `json:"priority,omitempty"     doc:"high, normal or low" minLength:"1"`
	Ack         string `json:"ack,omitempty"          doc:"none or report" minLength:"1"`
	AckTimeout  string `json:"ack_timeout,omitempty"  doc:"duration, at least 100ms" minLength:"1"`
	MaxAttempts *int64 `json:"max_attempts,omitempty" doc:"1 to 10000"`
	Backoff     string `json:"backoff,omitempty"      doc:"fixed:5s, exponential:1s:10m or steps:5s,5m,30m,2h" minLength:"1"`
	MaxLateness string `json:"max_lateness,omitempty" doc:"duration" minLength:"1"`
	Tag         string `json:"tag,omitempty"          doc:"up to 4 tags with commas between" minLength:"1"`
	Events      string `json:"events,omitempty"       doc:"none, final or all; default final where an id is given, otherwise none; all with wait" minLength:"1"`
}

func (d *DeliverySettings) headers(b *builder) {
	b.text(schemas.HeaderPriority, d.Priority)
	b.text(schemas.HeaderAck, d.Ack)
	b.text(schemas.HeaderAckTimeout, d.AckTimeout)
	b.number(schemas.HeaderMaxAttempts, d.MaxAttempts)
	b.text(schemas.HeaderBackoff, d.Backoff)
	b.text(schemas.HeaderMaxLateness, d.MaxLateness)
	b.text(schemas.HeaderTag, d.Tag)
	b.text(schemas.HeaderEvents, d.Events)
}

// TimeText is a time as text or as a number.
type TimeText string

// UnmarshalJSON accepts a string or an integer.
func (t *TimeText) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		err := json.Unmarshal(b, &s)
		if err == nil && s == "" {
			return errors.New("is empty: write RFC 3339 or Unix ms, or leave it out")
		}
		*t = TimeText(s)
		return err
	}
	if text := string(b); text != "null" {
		if strings.ContainsAny(text, ".eE{[tf") {
			return errors.New("write RFC 3339 in quotes, or Unix ms")
		}
		*t = TimeText(text)
	}
	return nil
}

// Schema describes the type to huma.
func (TimeText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeInteger, Format: "int64"}}}
}

// Instant is an instant in a request, in the forms of TimeText. The zero value is none.
type Instant struct{ ms int64 }

// At returns the instant of Unix ms. 0 is none.
func At(ms int64) Instant { return Instant{ms} }

// Millis returns Unix ms, or 0 for none.
func (i Instant) Millis() int64 { return i.ms }

// String returns Unix ms.
func (i Instant) String() string { return strconv.FormatInt(i.ms, 10) }

// MarshalText writes Unix ms, and RFC 3339 where UnmarshalText would take those for seconds.
func (i Instant) MarshalText() ([]byte, error) {
	if i.ms != 0 && i.ms < schemas.FirstMillis {
		return []byte(instant(i.ms)), nil
	}
	return []byte(i.String()), nil
}

// UnmarshalText reads RFC 3339 or Unix ms. An instant before 1970 would be taken for none.
func (i *Instant) UnmarshalText(text []byte) error {
	ms, rejection := schemas.ParseTime(string(text))
	switch {
	case rejection != nil:
		return errors.New(rejection.Problem + ": " + rejection.Fix)
	case ms <= 0:
		return errors.New("is not after 1970-01-01T00:00:00Z: write a later time")
	}
	i.ms = ms
	return nil
}

// UnmarshalJSON accepts a string or an integer.
func (i *Instant) UnmarshalJSON(b []byte) error {
	var text TimeText
	if err := text.UnmarshalJSON(b); err != nil {
		return err
	}
	return i.UnmarshalText([]byte(text))
}

// Schema describes the type to huma.
func (Instant) Schema(r huma.Registry) *huma.Schema { return TimeText("").Schema(r) }

func checkTag(tag string) error {
	if tag == "" || schemas.ValidTag(tag) {
		return nil
	}
	return wrong("tag", tag, "is not a tag: write one of 1 to 64 letters, digits or -_.:")
}
