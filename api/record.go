package api

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
)

// Record returns the request as a record for the intake topic in. It decodes the record like the
// scanner, so that a mistake is found now: a *deadletter.FieldError or a *schemas.Rejection.
func (r *Schedule) Record(in Intake) (*kgo.Record, error) {
	key, value, own, err := r.Bytes()
	if err != nil {
		return nil, err
	}
	b := builder{}
	b.target(in, r.Topic, r.URL)
	b.text(schemas.HeaderMethod, r.Method)
	b.text(schemas.HeaderID, r.ID)
	b.text(schemas.HeaderAt, string(r.At))
	b.text(schemas.HeaderDelay, r.Delay)
	b.text(schemas.HeaderIfExists, r.IfExists)
	b.text(schemas.HeaderMerge, r.Merge)
	b.text(schemas.HeaderMaxWait, r.MaxWait)
	b.number(schemas.HeaderVersion, r.Version)
	r.headers(&b)
	if err := b.own(own); err != nil {
		return nil, err
	}
	return b.record(in, key, value)
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

// Record returns a cancel or a fire as a record, as Schedule.Record does.
func (t *Target) Record(op schemas.Op, in Intake) (*kgo.Record, error) {
	content := deadletter.Content{Key: t.Key, KeyBase64: t.KeyBase64}
	key, _, _, err := content.Bytes()
	if err != nil {
		return nil, err
	}
	b := builder{}
	b.text(schemas.HeaderOp, op.String())
	b.target(in, t.Topic, t.URL)
	b.text(schemas.HeaderID, t.ID)
	b.number(schemas.HeaderVersion, t.Version)
	return b.record(in, key, nil)
}

type builder struct{ headers []kgo.RecordHeader }

// target names the target. A request that names none is for the intake's own.
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
			return &deadletter.FieldError{Field: fmt.Sprintf("headers[%d].key", i), Value: h.Key, Problem: "starts with " + schemas.Prefix + ": those are fields of their own"}
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

// field returns the JSON name of a header.
func field(header string) string {
	if part, ok := strings.CutPrefix(header, "record "); ok {
		return part // key, headers, value, timestamp
	}
	return strings.ReplaceAll(strings.TrimPrefix(header, schemas.Prefix), "-", "_")
}
