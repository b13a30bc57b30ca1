package schemas

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// MaxReportError is how much of a report's error text is kept, in bytes of UTF-8.
const MaxReportError = 4 << 10

// NoRetryAfter is the RetryAfter of a report that leaves the pause to the task's backoff.
const NoRetryAfter time.Duration = -1

// maxDeliveryKey is far above the length of a DeliveryKey. It keeps out values of no delivery.
const maxDeliveryKey = 255

// Status is a delivery's outcome at its consumer. The zero value is invalid: no forgotten "ok".
type Status uint8

const (
	StatusOK     Status = iota + 1 // done
	StatusRetry                    // deliver again later
	StatusFail                     // never deliver again
	StatusSnooze                   // deliver again after RetryAfter; the attempt does not count
)

var statusNames = []string{"ok", "retry", "fail", "snooze"}

// MaxSnoozes is how many attempts of a task can be snoozed. Beyond it, a snooze is a retry.
const MaxSnoozes = 1000

// String gives the contract's word, as in the header.
func (s Status) String() string { return nameOf(statusNames, uint8(s)-1) }

// Report is a consumer's report about one attempt.
type Report struct {
	Topic      string // the topic that the task was delivered to, or the origin that was called
	ID         string
	Attempt    int
	Status     Status
	RetryAfter time.Duration // pause before the next attempt, instead of the backoff; required by StatusSnooze; NoRetryAfter: none given
	Error      string        // at most MaxReportError bytes

	// Delivery is the idempotency key of the delivery. With it, the report is about exactly one
	// delivery. Without it, a late report on an earlier task may be applied to a newer one.
	Delivery string
}

// EncodeReport returns a report as a record for the given reports topic. Its key is the task's id.
func EncodeReport(topic string, r Report) *kgo.Record {
	headers := make([]kgo.RecordHeader, 0, 6)
	headers = append(headers,
		kgo.RecordHeader{Key: HeaderTopic, Value: []byte(r.Topic)},
		kgo.RecordHeader{Key: HeaderID, Value: []byte(r.ID)},
		kgo.RecordHeader{Key: HeaderAttempt, Value: strconv.AppendInt(nil, int64(r.Attempt), 10)},
		kgo.RecordHeader{Key: HeaderStatus, Value: []byte(r.Status.String())},
	)
	if r.Delivery != "" {
		headers = append(headers, kgo.RecordHeader{Key: HeaderDelivery, Value: []byte(r.Delivery)})
	}
	if r.RetryAfter >= 0 {
		headers = append(headers, kgo.RecordHeader{Key: HeaderRetryAfter, Value: []byte(r.RetryAfter.String())})
	}
	rec := &kgo.Record{Topic: topic, Key: []byte(r.ID), Headers: headers}
	if text := errorText([]byte(r.Error)); text != "" {
		rec.Value = []byte(text)
	}
	return rec
}

// DecodeReport reads a report record. It accepts the headers of the delivery, so a consumer can
// send back all headers. Any other notyet- header that is no part of a report is an error, as in a
// request. RetryAfter is rounded up to a millisecond. With an error, which wraps a *Rejection, the
// report has a readable topic and id.
func DecodeReport(rec *kgo.Record) (Report, error) {
	r, rej := decodeReport(rec)
	if rej == nil {
		return r, nil
	}
	r = Report{RetryAfter: NoRetryAfter}
	topic, _ := only(rec.Headers, HeaderTopic)
	if id, ok := only(rec.Headers, HeaderID); ok && idProblem(id) == "" {
		if r.Topic, _ = ParseTarget(topic); r.Topic != "" {
			r.ID = string(id)
		}
	}
	return r, fmt.Errorf("decoding report: %w", rej)
}

func decodeReport(rec *kgo.Record) (Report, *Rejection) {
	r := Report{RetryAfter: NoRetryAfter}
	var seen header
	for i := range rec.Headers {
		h := &rec.Headers[i]
		if !ours(h.Key) {
			continue
		}
		name := lookup(h.Key)
		if name == 0 {
			return Report{}, unknown(h.Key, h.Value)
		}
		if seen&name != 0 {
			return Report{}, bad(name, h.Value, isRepeated, "send it once")
		}
		seen |= name
		if rej := r.set(name, h.Value); rej != nil {
			return Report{}, rej
		}
	}
	const needed = hTopic | hID | hAttempt | hStatus
	if lacking := needed &^ seen; lacking != 0 {
		return Report{}, missing(lacking, "a report needs it")
	}
	if r.Status == StatusSnooze && r.RetryAfter < 0 {
		return Report{}, missing(hRetryAfter, HeaderStatus+" snooze needs it")
	}
	r.Error = errorText(rec.Value)
	return r, nil
}

func (r *Report) set(name header, v []byte) *Rejection {
	switch name {
	case hTopic:
		target, rej := ParseTarget(v)
		if rej != nil {
			return bad(name, v, "is not a topic name", "write the topic of the delivered record, or the origin that was called")
		}
		r.Topic = target
	case hID:
		if problem := idProblem(v); problem != "" {
			return bad(name, v, problem, "write the id of the delivered record")
		}
		r.ID = string(v)
	case hAttempt:
		return countProblem(name, v, &r.Attempt)
	case hStatus:
		if rej := parseEnum(name, statusNames, v, &r.Status); rej != nil {
			return rej
		}
		r.Status++ // the constants start at 1
	case hRetryAfter:
		return setFromZero(hRetryAfter, v, &r.RetryAfter)
	case hDelivery:
		if len(v) == 0 || len(v) > maxDeliveryKey {
			return bad(name, v, "is not a delivery's key", "write the notyet-delivery of the delivered record, or leave it out")
		}
		r.Delivery = string(v)
	case hDue, hReplay, hTimer, hTag: // of the delivery
	default:
		return bad(name, v, "is not part of a report", "leave it out")
	}
	return nil
}

// ReportCauses are the results of ReportCause: for metrics.
func ReportCauses() []string {
	return []string{"unknown header", "misplaced header", "missing header", "repeated header", HeaderTopic, HeaderID, HeaderAttempt, HeaderStatus, HeaderRetryAfter, HeaderDelivery}
}

// ReportCause names what is wrong with a report: the header with a wrong value, or a header's
// fault.
func (r *Rejection) ReportCause() string {
	switch {
	case lookup(r.Header) == 0:
		return "unknown header"
	case r.Problem == isMissing:
		return "missing header"
	case r.Problem == isRepeated:
		return "repeated header"
	case slices.Contains(ReportCauses(), r.Header):
		return r.Header
	}
	return "misplaced header"
}

// errorText returns the text as valid UTF-8 of at most MaxReportError bytes. Repairing can make a
// text longer, so it is cut again.
func errorText(v []byte) string {
	v = bytes.ToValidUTF8(CutUTF8(v, MaxReportError), []byte("\uFFFD"))
	return string(CutUTF8(v, MaxReportError))
}
