package schemas

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Alias is another scheduler whose records an intake topic understands beside notyet's own.
type Alias string

const (
	// AliasETF1 is github.com/etf1/kafka-message-scheduler. The record's key is the id, and a null
	// value cancels.
	AliasETF1 Alias = "etf1"

	// AliasNATS is NATS JetStream's message scheduler, with an instant: "@at <RFC 3339>".
	AliasNATS Alias = "nats"
)

// Aliases are all aliases.
var Aliases = []Alias{AliasETF1, AliasNATS}

// Headers of AliasETF1.
const (
	etf1Epoch  = "scheduler-epoch" // Unix seconds
	etf1Target = "scheduler-target-topic"
	etf1Key    = "scheduler-target-key"
)

// Headers of AliasNATS. Others that begin with natsAt change NATS's delivery, and are refused.
const (
	natsAt     = "Nats-Schedule"
	natsTarget = "Nats-Schedule-Target"
)

// of returns the alias's spelling of one of its headers, or "".
func (a Alias) of(key string) string {
	switch a {
	case AliasETF1:
		for _, name := range []string{etf1Epoch, etf1Target, etf1Key} {
			if strings.EqualFold(key, name) {
				return name
			}
		}
	case AliasNATS:
		if len(key) >= len(natsAt) && strings.EqualFold(key[:len(natsAt)], natsAt) {
			if strings.EqualFold(key, natsAt) {
				return natsAt
			}
			if strings.EqualFold(key, natsTarget) {
				return natsTarget
			}
			if key[len(natsAt)] == '-' {
				return key
			}
		}
	}
	return ""
}

// translated returns the record as a request in notyet's own headers, and their names in the
// record. A record without headers of an alias is returned unchanged.
func (l *Limits) translated(r *kgo.Record) (*kgo.Record, map[string]string, *Rejection) {
	var alias Alias
	theirs := map[string][]byte{}
	var own string // a header of notyet's
	var rest []kgo.RecordHeader
headers:
	for _, h := range r.Headers {
		for _, a := range l.Aliases {
			name := a.of(h.Key)
			if name == "" {
				continue
			}
			_, seen := theirs[name]
			switch {
			case alias != "" && alias != a:
				return r, nil, &Rejection{Header: h.Key, Value: shown(h.Value), Problem: "stands beside a header of " + string(alias), Fix: "use the headers of one of them"}
			case name != h.Key:
				return r, nil, &Rejection{Header: shownName(h.Key), Value: shown(h.Value), Problem: "is in another case than " + string(a) + "'s", Fix: "write " + name}
			case seen:
				return r, nil, &Rejection{Header: name, Value: shown(h.Value), Problem: "is repeated", Fix: "send it once"}
			}
			alias, theirs[name] = a, h.Value
			continue headers
		}
		if ours(h.Key) {
			own = shownName(h.Key)
		}
		rest = append(rest, h)
	}
	if len(r.Headers) == 0 && l.Target == "" && r.Key != nil && r.Value == nil && slices.Contains(l.Aliases, AliasETF1) {
		alias = AliasETF1 // its own way to cancel, which names no target
	}
	if alias == "" {
		return r, nil, nil
	}
	if own != "" {
		return r, nil, &Rejection{Header: own, Problem: "stands beside a header of " + string(alias), Fix: "use the headers of one of them"}
	}
	t := *r
	t.Headers = rest
	if alias == AliasETF1 {
		names, rej := l.fromETF1(&t, theirs)
		return &t, names, rej
	}
	names, rej := l.fromNATS(&t, theirs)
	return &t, names, rej
}

// fromETF1 writes notyet's headers into a record stripped of its own.
func (l *Limits) fromETF1(r *kgo.Record, theirs map[string][]byte) (map[string]string, *Rejection) {
	names := map[string]string{HeaderTopic: etf1Target, HeaderID: "record key", HeaderAt: etf1Epoch}
	if r.Key != nil { // first: a rejection is sent under the id
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderID, Value: r.Key})
	}
	if rej := l.addTarget(r, theirs, etf1Target); rej != nil {
		return names, rej
	}
	if r.Key == nil {
		return names, &Rejection{Header: "record key", Problem: "is missing", Fix: "send the schedule's id as the record's key"}
	}
	if r.Value == nil {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderOp, Value: []byte(OpCancel.String())})
		return names, nil
	}
	r.Key = theirs[etf1Key]
	v, given := theirs[etf1Epoch]
	if !given {
		return names, &Rejection{Header: etf1Epoch, Problem: "is missing", Fix: "send the due time in Unix seconds"}
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if at := time.Unix(n, 0).UTC(); err == nil && n >= 0 && at.Year() <= 9999 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderAt, Value: at.AppendFormat(nil, time.RFC3339)})
		return names, nil
	}
	return names, &Rejection{Header: etf1Epoch, Value: shown(v), Problem: "is not a time in Unix seconds", Fix: "write an integer such as 1767225600"}
}

func (l *Limits) fromNATS(r *kgo.Record, theirs map[string][]byte) (map[string]string, *Rejection) {
	names := map[string]string{HeaderTopic: natsTarget, HeaderAt: natsAt}
	if rej := l.addTarget(r, theirs, natsTarget); rej != nil {
		return names, rej
	}
	for name, v := range theirs {
		if name != natsAt && name != natsTarget {
			return names, &Rejection{Header: shownName(name), Value: shown(v), Problem: "is not supported", Fix: "leave it out, or use the headers that start with " + Prefix}
		}
	}
	v, given := theirs[natsAt]
	if !given {
		return names, &Rejection{Header: natsAt, Problem: "is missing", Fix: "write @at and an instant as of RFC 3339"}
	}
	at, isAt := strings.CutPrefix(string(v), "@at ")
	if _, offset, isTime := splitTime(bytes.ToUpper([]byte(at))); !isAt || !isTime || len(offset) == 0 {
		return names, &Rejection{Header: natsAt, Value: shown(v), Problem: "is not an instant", Fix: "write @at 2027-01-01T00:00:00Z; for what repeats, set a timer with " + HeaderOp}
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderAt, Value: []byte(at)})
	return names, nil
}

// addTarget writes the target's header. Without one, the record is for the intake's own target.
func (l *Limits) addTarget(r *kgo.Record, theirs map[string][]byte, name string) *Rejection {
	v, given := theirs[name]
	if !given && l.Target != "" {
		return nil
	}
	if !given {
		return &Rejection{Header: name, Problem: "is missing", Fix: "name the target topic"}
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderTopic, Value: v})
	return nil
}

// named replaces names of notyet's headers by the record's own names.
func (r *Rejection) named(names map[string]string) *Rejection {
	for ours, theirs := range names {
		if r.Header == ours {
			r.Header = theirs
		}
		r.Fix = strings.ReplaceAll(r.Fix, ours, theirs)
	}
	return r
}

// MayEnd tells, without decoding it, whether a record of an intake may end a task or a timer.
func MayEnd(r *kgo.Record) bool {
	return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == HeaderOp && Op(slices.Index(opNames, string(h.Value))).Ends() || strings.EqualFold(h.Key, etf1Target) && r.Value == nil
	})
}

// MaySchedule tells, without decoding it, whether a record of an intake may ask for a task, with a
// due time. Other requests, such as a cancel, do not.
func MaySchedule(r *kgo.Record) bool {
	return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == HeaderAt || h.Key == HeaderDelay || strings.EqualFold(h.Key, natsAt) || strings.EqualFold(h.Key, etf1Epoch) && r.Value != nil
	})
}
