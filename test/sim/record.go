package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// record writes a request as an intake record, and its hash into the op.
func record(p *planned) *kgo.Record {
	op := &p.op
	r := &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(op.Key), Value: op.Value(), Headers: op.Headers()}
	if p.value != nil {
		copy(p.value, r.Value)
		r.Value = p.value
	}
	if p.fine > 0 {
		r.Headers = slices.DeleteFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == schemas.HeaderAt || h.Key == schemas.HeaderDelay })
		exact := kgo.RecordHeader{Key: schemas.HeaderDelay, Value: []byte((time.Duration(op.Delay)*time.Millisecond - p.fine).String())}
		if op.Due != 0 {
			exact = kgo.RecordHeader{Key: schemas.HeaderAt, Value: []byte(time.UnixMilli(op.Due).Add(-p.fine).UTC().Format(time.RFC3339Nano))}
		}
		r.Headers = append(r.Headers, exact)
	}
	combined := op.Merge != ""
	if combined {
		r.Value = update(op)
	}
	if op.Kind != history.Schedule {
		return r
	}
	own := append([]kgo.RecordHeader{{Key: "app", Value: []byte("sim")}, {Key: "n", Value: []byte{0, byte(op.N), 0xff}}, {Key: "app", Value: nil}}, p.extra...)
	r.Headers = append(r.Headers, own...)
	tag(r, op)
	op.Hash = hashOf(r, own, combined)
	return r
}

// hashOf identifies a record's body. Of a value that is combined with others, its number is looked for instead.
func hashOf(r *kgo.Record, headers []kgo.RecordHeader, combined bool) uint64 {
	if combined {
		return history.BodyHash(r.Key, nil, headers)
	}
	return history.BodyHash(r.Key, r.Value, headers)
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
	if n := history.Number(value); n != 0 {
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
