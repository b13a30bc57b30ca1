package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// record writes a request as an intake record, and its hash into the op.
func record(p *planned) *kgo.Record {
	op := &p.op
	prefix := "op=" + strconv.FormatInt(op.N, 10) + " "
	r := &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(op.Key), Value: []byte(prefix)}
	if p.value != nil {
		r.Value = p.value
		copy(r.Value, prefix)
	}
	combined := op.Merge != ""
	if combined {
		r.Value = update(op)
	}
	add := func(name, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	add(schemas.HeaderTopic, op.Topic)
	if op.ID != "" {
		add(schemas.HeaderID, op.ID)
	}
	if op.Version >= 0 {
		add(schemas.HeaderVersion, strconv.FormatInt(op.Version, 10))
	}
	if op.Kind != history.Schedule {
		add(schemas.HeaderOp, op.Kind)
		return r
	}
	switch {
	case op.Invalid && len(p.extra) == 0 && p.value == nil:
		add(schemas.HeaderAt, "tomorrow")
	case op.Due == 0:
		add(schemas.HeaderDelay, strconv.FormatInt(op.Delay, 10)+"ms")
	default:
		add(schemas.HeaderAt, strconv.FormatInt(op.Due, 10))
	}
	addModes(op, add)
	if op.High {
		add(schemas.HeaderPriority, "high")
	}
	if op.AllEvents {
		add(schemas.HeaderEvents, "all")
	}
	if op.MaxLateness > 0 {
		add(schemas.HeaderMaxLateness, strconv.FormatInt(op.MaxLateness, 10)+"ms")
	}
	if op.AckTimeout > 0 {
		add(schemas.HeaderAck, "report")
		add(schemas.HeaderAckTimeout, strconv.FormatInt(op.AckTimeout, 10)+"ms")
		add(schemas.HeaderMaxAttempts, strconv.Itoa(op.MaxAttempts))
		add(schemas.HeaderBackoff, "fixed:"+strconv.FormatInt(op.Backoff, 10)+"ms")
	}
	own := append([]kgo.RecordHeader{{Key: "app", Value: []byte("sim")}, {Key: "n", Value: []byte{0, byte(op.N), 0xff}}, {Key: "app", Value: nil}}, p.extra...)
	r.Headers = append(r.Headers, own...)
	op.Hash = hashOf(r, own, combined)
	return r
}

// hashOf identifies a record's body. Of a value that is combined with others, its number is looked for instead.
func hashOf(r *kgo.Record, headers []kgo.RecordHeader, combined bool) uint64 {
	key, value := r.Key, r.Value
	if combined {
		value = nil
	}
	var parts [][]byte
	for _, h := range headers {
		parts = append(parts, []byte(h.Key), h.Value)
	}
	return history.Hash(key, value, parts...)
}

// number is the number that a value begins with, 0 when it does not.
func number(value []byte) int64 {
	text, ok := strings.CutPrefix(string(value[:min(len(value), 32)]), "op=")
	if !ok {
		return 0
	}
	text, _, _ = strings.Cut(text, " ")
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// update is a value that can be found again in what it is combined with.
func update(op *history.Op) []byte {
	if op.Merge == history.Append {
		return strconv.AppendInt(nil, op.N, 10)
	}
	return fmt.Appendf(nil, `{"n%d":1,"all":1,"in":{"all":1}}`, op.N)
}

// requestsIn returns the numbers of the requests whose values are in a value, in their order; combined says that they were combined.
// A sum that does not come to their number holds another one, of nobody.
func requestsIn(value []byte) (all []int64, combined bool) {
	if n := number(value); n != 0 {
		return []int64{n}, false
	}
	if len(value) > 64<<10 {
		return nil, false
	}
	var list []int64
	var sum struct {
		All int64
		In  struct{ All int64 }
	}
	fields := map[string]json.RawMessage{}
	switch {
	case json.Unmarshal(value, &list) == nil:
		return list, true
	case json.Unmarshal(value, &fields) != nil || json.Unmarshal(value, &sum) != nil:
		return nil, false
	}
	for name, times := range fields {
		n, err := strconv.ParseInt(strings.TrimPrefix(name, "n"), 10, 64)
		for k, _ := strconv.Atoi(string(times)); err == nil && k > 0; k-- {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	if n := int64(len(all)); sum.All != n || sum.In.All != n {
		all = append(all, -1)
	}
	return all, true
}

// requestOf returns the number of the request whose value it is, 0 when it is nobody's.
func requestOf(value []byte) int64 {
	if n, err := strconv.ParseInt(string(value[:min(len(value), 20)]), 10, 64); err == nil {
		return n // to be appended
	}
	all, _ := requestsIn(value)
	if len(all) != 1 {
		return 0
	}
	return all[0]
}

// lastRequestOf returns the number of the last request whose value is in a delivered value, 0 when there is none.
func lastRequestOf(value []byte) int64 {
	all, _ := requestsIn(value)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1]
}

// addModes writes what a request says about a task that is there.
func addModes(op *history.Op, add func(name, value string)) {
	if op.IfExists != "" {
		add(schemas.HeaderIfExists, op.IfExists)
	}
	if op.Merge != "" {
		add(schemas.HeaderMerge, op.Merge)
	}
	if op.MaxWait > 0 {
		add(schemas.HeaderMaxWait, strconv.FormatInt(op.MaxWait, 10)+"ms")
	}
}
