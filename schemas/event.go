package schemas

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// State is a task's state, or the outcome of a request.
type State string

const (
	StateScheduled  State = "scheduled"
	StateMerged     State = "merged"
	StateStale      State = "stale"
	StateRejected   State = "rejected"
	StateCancelled  State = "cancelled"
	StateTooLate    State = "too_late"
	StateNotFound   State = "not_found"
	StateDispatched State = "dispatched"
	StateRetrying   State = "retrying"
	StateFired      State = "fired"
	StateKept       State = "kept"
	StateStopped    State = "stopped"
	StateSucceeded  State = "succeeded"
	StateDead       State = "dead"

	// Answers to requests about timers.
	StateTimerSet      State = "timer_set"
	StateTimerEnabled  State = "timer_enabled"
	StateTimerDisabled State = "timer_disabled"
	StateTimerDeleted  State = "timer_deleted"
)

// States returns all states of the contract.
func States() []State {
	return []State{
		StateScheduled, StateMerged, StateStale, StateRejected, StateCancelled, StateTooLate, StateNotFound,
		StateDispatched, StateRetrying, StateFired, StateKept, StateStopped, StateSucceeded, StateDead,
		StateTimerSet, StateTimerEnabled, StateTimerDisabled, StateTimerDeleted,
	}
}

// Final: the state ends a task, and no other event follows. StateRejected ends a request only.
func (s State) Final() bool {
	switch s {
	case StateSucceeded, StateCancelled, StateStopped, StateStale, StateDead:
		return true
	}
	return false
}

// Kind is why a task is dead or a request was rejected: the same in the event and the dead letter.
type Kind = string

const (
	KindDead          Kind = "dead"          // its attempts are used up, or a consumer reported fail
	KindUndeliverable Kind = "undeliverable" // the target refused it permanently
	KindExpired       Kind = "expired"       // its notyet-max-lateness passed
	KindRejected      Kind = "rejected"      // the request is invalid or cannot be accepted
	KindCallback      Kind = "callback"      // an HTTP callback that cannot succeed
	KindMissed        Kind = "missed"        // a timer's run that was dropped; it has no dead letter
	KindReport        Kind = "report"        // a report that could not be read; it changes nothing, and has no dead letter
)

// LetterKinds returns the kinds of dead letters.
func LetterKinds() []Kind {
	return []Kind{KindDead, KindUndeliverable, KindExpired, KindRejected, KindCallback}
}

// Kinds returns all kinds of the contract.
func Kinds() []Kind { return append(LetterKinds(), KindMissed, KindReport) }

// eventSchema is the value of an event's "schema" field.
const eventSchema = 1

// Event is one step in a task's life, or the answer to a request.
//
// Its JSON always has schema, id, state and at. Unknown fields are left out: topic, reason, kind
// and request if "", due and attempt if 0 (nothing was delivered yet), and lateness_ms if
// LatenessUnknown, or if 0 with attempt 0. A delivery on time therefore has lateness_ms 0, and a
// task that was never delivered has no lateness_ms.
type Event struct {
	Topic    string // target topic; "" of a rejected request whose intake may not speak for its target
	ID       string
	State    State
	Due, At  int64 // Unix ms: due time, and when this happened
	Attempt  int
	Lateness int64 // ms between the instant of the attempt and its delivery; LatenessUnknown
	Reason   string
	Kind     Kind `json:",omitempty"` // of dead and rejected: why
	// Request is the intake position of the answered request, in the form of DefaultID. The record
	// has it as a header too. "": the event answers no request.
	Request string `json:",omitempty"`
}

// EncodeEvent returns an event as a record for the given results topic: key = id, value = JSON,
// state and request as headers.
func EncodeEvent(resultsTopic string, e Event) *kgo.Record {
	r := &kgo.Record{
		Topic:   resultsTopic,
		Key:     []byte(e.ID),
		Value:   e.appendJSON(make([]byte, 0, 160+len(e.ID)+len(e.Topic)+len(e.Reason))),
		Headers: []kgo.RecordHeader{{Key: HeaderState, Value: []byte(e.State)}},
	}
	if e.Request != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderRequest, Value: []byte(e.Request)})
	}
	return r
}

// LatenessUnknown is the lateness of an event about an attempt delivered at an unknown time.
const LatenessUnknown = -1

// KnowsLateness tells whether Lateness is a delivery's.
func (e *Event) KnowsLateness() bool {
	return e.Lateness > 0 || e.Lateness == 0 && e.Attempt > 0
}

func (e Event) appendJSON(b []byte) []byte {
	b = append(b, `{"schema":`...)
	b = strconv.AppendInt(b, eventSchema, 10)
	text := func(name, v string) {
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = appendString(b, v)
	}
	number := func(name string, v int64) {
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = strconv.AppendInt(b, v, 10)
	}
	if e.Topic != "" {
		text("topic", e.Topic)
	}
	text("id", e.ID)
	text("state", string(e.State))
	if e.Due != 0 {
		number("due", e.Due)
	}
	number("at", e.At)
	if e.Attempt != 0 {
		number("attempt", int64(e.Attempt))
	}
	if e.KnowsLateness() {
		number("lateness_ms", e.Lateness)
	}
	if e.Kind != "" {
		text("kind", e.Kind)
	}
	if e.Reason != "" {
		text("reason", e.Reason)
	}
	if e.Request != "" {
		text("request", e.Request)
	}
	return append(b, '}')
}

// appendString writes a JSON string. Text that needs no escaping is copied.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(s) // a string always has a JSON form; invalid UTF-8 becomes U+FFFD
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// DecodeEvent reads a result record. It keeps states of a newer version; they are not Final.
func DecodeEvent(r *kgo.Record) (Event, error) {
	var j struct {
		Schema   int    `json:"schema"`
		Topic    string `json:"topic"`
		ID       string `json:"id"`
		State    State  `json:"state"`
		Due      int64  `json:"due"`
		At       int64  `json:"at"`
		Attempt  int    `json:"attempt"`
		Lateness *int64 `json:"lateness_ms"`
		Reason   string `json:"reason"`
		Kind     Kind   `json:"kind"`
		Request  string `json:"request"`
	}
	if err := json.Unmarshal(r.Value, &j); err != nil {
		return Event{}, fmt.Errorf("decoding event: %w", err)
	}
	if j.Schema != eventSchema {
		return Event{}, fmt.Errorf("decoding event: unknown schema %d", j.Schema)
	}
	if j.ID == "" || j.State == "" {
		return Event{}, errors.New("decoding event: without id or state")
	}
	e := Event{
		Topic: j.Topic, ID: j.ID, State: j.State, Due: j.Due, At: j.At,
		Attempt: j.Attempt, Reason: j.Reason, Kind: j.Kind, Request: cmp.Or(j.Request, AnsweredRequest(r)),
	}
	switch {
	case j.Lateness != nil:
		e.Lateness = *j.Lateness
	case e.Attempt > 0:
		e.Lateness = LatenessUnknown
	}
	return e, nil
}

// AnsweredRequest returns the intake position of the request that a result record answers, or "".
func AnsweredRequest(r *kgo.Record) string {
	request, _ := only(r.Headers, HeaderRequest)
	return string(request)
}
