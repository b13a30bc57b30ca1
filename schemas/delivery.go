package schemas

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Delivery is what notyet adds to a delivered record.
type Delivery struct {
	ID      string
	Due     int64  // Unix ms
	Attempt int    // from 1
	Key     string // idempotency key: equal for all copies of one attempt, different for all others
	Replay  int    // n-th replay from the dead letters; 0: none
	Timer   string `json:",omitempty"` // id of the timer of which this is a run; "": of none
	Tag     string `json:",omitempty"` // the task's tags, comma-separated; "": none
}

// ErrNotDelivery means that a record has no delivery headers: notyet did not send it.
var ErrNotDelivery = errors.New("not a delivery of notyet")

// AppendDelivery adds a delivery's headers after the caller's own. The values share an allocation.
func AppendDelivery(h []kgo.RecordHeader, d Delivery) []kgo.RecordHeader {
	b := make([]byte, 0, len(d.ID)+len(d.Key)+len(d.Timer)+len(d.Tag)+48) // three numbers of at most 20, 10 and 10 digits
	from := 0
	add := func(name string) {
		h = append(h, kgo.RecordHeader{Key: name, Value: b[from:len(b):len(b)]})
		from = len(b)
	}
	b = append(b, d.ID...)
	add(HeaderID)
	b = strconv.AppendInt(b, d.Due, 10)
	add(HeaderDue)
	b = strconv.AppendInt(b, int64(d.Attempt), 10)
	add(HeaderAttempt)
	b = append(b, d.Key...)
	add(HeaderDelivery)
	if d.Replay > 0 {
		b = strconv.AppendInt(b, int64(d.Replay), 10)
		add(HeaderReplay)
	}
	if d.Timer != "" {
		b = append(b, d.Timer...)
		add(HeaderTimer)
	}
	if d.Tag != "" {
		b = append(b, d.Tag...)
		add(HeaderTag)
	}
	return h
}

// DeliveryKey returns the idempotency key of an attempt of the task that the intake record at
// (topic, partition, offset) requested. The attempt is counted over all replays, so each replay has
// its own key. The topic is identified by Kafka's topic id, so a recreated topic yields different
// keys. The key is 43 characters of base64url; no other code may rely on its contents.
func DeliveryKey(topicID [16]byte, partition int32, offset int64, attempt int) string {
	var b [32]byte
	copy(b[:], topicID[:])
	binary.BigEndian.PutUint32(b[16:], uint32(partition))
	binary.BigEndian.PutUint64(b[20:], uint64(offset))
	binary.BigEndian.PutUint32(b[28:], uint32(attempt)) // attempts are at most 2^31-1, see setMaxAttempts
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// ParseDelivery reads the headers of a delivered record. It also returns the business's own
// headers, in order, without those of newer versions. ErrNotDelivery: id or attempt is missing.
func ParseDelivery(r *kgo.Record) (Delivery, []kgo.RecordHeader, error) {
	var d Delivery
	var seen header
	rest := make([]kgo.RecordHeader, 0, len(r.Headers))
	for i := range r.Headers {
		h := &r.Headers[i]
		if !strings.HasPrefix(h.Key, Prefix) {
			rest = append(rest, *h)
			continue
		}
		name := lookup(h.Key)
		if name != 0 && seen&name != 0 {
			return Delivery{}, nil, fmt.Errorf("parsing delivery: %s is repeated", h.Key)
		}
		seen |= name
		if rej := d.set(name, h.Value); rej != nil {
			return Delivery{}, nil, fmt.Errorf("parsing delivery: %w", rej)
		}
	}
	if seen&hID == 0 || seen&hAttempt == 0 {
		return Delivery{}, nil, ErrNotDelivery
	}
	if len(rest) == 0 {
		rest = nil
	}
	return d, rest, nil
}

func (d *Delivery) set(name header, v []byte) *Rejection {
	switch name {
	case hID:
		if problem := idProblem(v); problem != "" {
			return bad(name, v, problem, "expected 1 to 255 bytes of UTF-8")
		}
		d.ID = string(v)
	case hDelivery:
		d.Key = string(v)
	case hTimer:
		d.Timer = string(v)
	case hTag:
		d.Tag = string(v)
	case hDue:
		n, isInt, fits := parseInt(v)
		if !isInt || !fits {
			return bad(name, v, "is not a time", "expected Unix milliseconds")
		}
		d.Due = n
	case hAttempt:
		return countProblem(name, v, &d.Attempt)
	case hReplay:
		return countProblem(name, v, &d.Replay)
	}
	return nil
}

// countProblem reads a number of at least 1, or returns what is wrong.
func countProblem(name header, v []byte, into *int) *Rejection {
	n, isInt, fits := parseInt(v)
	if !isInt || !fits || n < 1 || n > math.MaxInt32 {
		return bad(name, v, "is not a count", "expected an integer from 1 to 2147483647")
	}
	*into = int(n)
	return nil
}
