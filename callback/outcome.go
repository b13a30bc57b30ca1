package callback

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/notyet/notyet/schemas"
)

// Verdict is an attempt's effect on the task.
type Verdict uint8

const (
	// NotSent: no attempt was made.
	NotSent Verdict = iota

	// Delivered: the receiver answered 2xx. The task is done, or waits for a report.
	Delivered

	// Retry: the attempt failed, and a later one may succeed. The next one is due after
	// Outcome.Pause. If the task has none left, it is dead with kind schemas.KindDead.
	Retry

	// Dead: no attempt can succeed. The task becomes a dead letter of kind Outcome.Kind.
	Dead

	// Interrupted: the context ended first. Whether the receiver has the request is unknown. The
	// task is in doubt, and is sent again with the same attempt.
	Interrupted
)

// String returns the verdict's name for logs.
func (v Verdict) String() string {
	return [...]string{"not sent", "delivered", "retry", "dead", "interrupted"}[v]
}

// Outcome is the result of a Request.
type Outcome struct {
	Verdict Verdict

	// Status is the HTTP status of the answer; 0 if there was none.
	Status int

	// After is how long to wait at least: the receiver's Retry-After, at most an hour.
	After time.Duration

	// Kind of the dead letter: schemas.KindCallback with Dead, otherwise "".
	Kind schemas.Kind

	// Reason describes the failure, for events and dead letters, in at most 4096 bytes of valid
	// UTF-8: status and first KiB of the answer. Reason is "" with Delivered.
	Reason string

	// Failure is the kind of a failure below HTTP, one of few words; "" if there was an answer.
	Failure string

	// Sent is false if certainly no byte has reached the receiver. Then a cancel may still win.
	Sent bool

	// Hasty: the request had too little time for its end to say anything about the origin.
	Hasty bool
}

// Pause returns how long after a failed attempt the next one is due: the longer of the task's
// backoff and the receiver's wish.
func (o Outcome) Pause(backoff time.Duration) time.Duration { return max(backoff, o.After) }

const (
	// maxRetryAfter limits for how long a receiver can put off tasks.
	maxRetryAfter = time.Hour

	// reasonBytes is how much of an answer a reason has.
	reasonBytes = 1 << 10

	// locationBytes is how much of a redirect's Location a reason has.
	locationBytes = 256
)

// judge returns the outcome of an answer. start is the beginning of the body.
func judge(origin string, status int, header http.Header, start []byte, now time.Time) Outcome {
	o := Outcome{Status: status, Sent: true}
	switch {
	case status >= 200 && status < 300:
		o.Verdict = Delivered
		return o
	case retryable(status):
		o.Verdict, o.After = Retry, retryAfter(header.Get("Retry-After"), now)
	default:
		o.Verdict, o.Kind = Dead, schemas.KindCallback
	}
	o.Reason = origin + " answered " + strconv.Itoa(status)
	if location := header.Get("Location"); location != "" && status >= 300 && status < 400 {
		o.Reason += ", a redirect to " + printable([]byte(location)[:min(len(location), locationBytes)]) + ": redirects are not followed, schedule with the right URL"
	}
	if len(start) > 0 {
		o.Reason += ": " + printable(start)
	}
	return o
}

func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 && status < 600
}

// retryAfter reads seconds or an HTTP date, and returns 0 for anything else.
func retryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) { // err: out of range
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return min(max(date.Sub(now), 0), maxRetryAfter)
}

// printable makes text of an answer for events, dead letters and terminals: valid UTF-8 without
// control characters. Each byte becomes at most three, so a reason stays below 4096 bytes.
func printable(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 && !utf8.FullRune(b) {
			break // the last character is cut
		}
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			r = utf8.RuneError
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}
