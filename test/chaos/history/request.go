package history

import (
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Headers returns the headers of the record that requests the op.
func (o *Op) Headers() (out []kgo.RecordHeader) {
	add := func(name, value string) {
		if value != "" {
			out = append(out, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	millis := func(name string, n int64) {
		if n > 0 {
			add(name, strconv.FormatInt(n, 10)+"ms")
		}
	}
	add(schemas.HeaderTopic, o.Topic)
	add(schemas.HeaderID, o.ID)
	if o.Version >= 0 {
		add(schemas.HeaderVersion, strconv.FormatInt(o.Version, 10))
	}
	if o.Kind != Schedule {
		add(schemas.HeaderOp, o.Kind)
		return out
	}
	switch {
	case o.Invalid && o.Hostile == "":
		add(schemas.HeaderAt, "tomorrow")
	case o.Due == 0:
		add(schemas.HeaderDelay, strconv.FormatInt(o.Delay, 10)+"ms")
	default:
		add(schemas.HeaderAt, strconv.FormatInt(o.Due, 10))
	}
	add(schemas.HeaderIfExists, o.IfExists)
	add(schemas.HeaderMerge, o.Merge)
	millis(schemas.HeaderMaxWait, o.MaxWait)
	if o.High {
		add(schemas.HeaderPriority, "high")
	}
	if o.AllEvents {
		add(schemas.HeaderEvents, "all")
	}
	millis(schemas.HeaderMaxLateness, o.MaxLateness)
	if o.AckTimeout > 0 {
		add(schemas.HeaderAck, "report")
		millis(schemas.HeaderAckTimeout, o.AckTimeout)
		add(schemas.HeaderMaxAttempts, strconv.Itoa(o.MaxAttempts))
		backoff := "fixed:" + strconv.FormatInt(o.Backoff, 10) + "ms"
		for i, step := range o.Steps {
			if i == 0 {
				backoff = "steps:"
			} else {
				backoff += ","
			}
			backoff += strconv.FormatInt(step, 10) + "ms"
		}
		add(schemas.HeaderBackoff, backoff)
	}
	return out
}

// Pause is how long, ms, after an attempt that was not snoozed the next one is due.
func (o *Op) Pause(attempt int) int64 {
	if n := len(o.Steps); n > 0 {
		return o.Steps[min(attempt, n)-1]
	}
	return o.Backoff
}

// numberPrefix begins a value, before the number of its op.
const numberPrefix = "op="

// Value returns the beginning of the op's value, which names it.
func (o *Op) Value() []byte {
	return []byte(numberPrefix + strconv.FormatInt(o.N, 10) + " ")
}

// Number returns the number of the op that a value begins with, or 0.
func Number(value []byte) int64 {
	text, ok := strings.CutPrefix(string(value[:min(len(value), 32)]), numberPrefix)
	if !ok {
		return 0
	}
	text, _, _ = strings.Cut(text, " ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// BodyHash identifies what is delivered: key, value and the caller's headers.
func BodyHash(key, value []byte, headers []kgo.RecordHeader) uint64 {
	var parts [][]byte
	for _, h := range headers {
		parts = append(parts, []byte(h.Key), h.Value)
	}
	return Hash(key, value, parts...)
}
