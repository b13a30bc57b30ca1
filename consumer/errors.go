package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/notyet/notyet/schemas"
)

// RetryAfter makes an error that asks for the next attempt after d instead of the task's backoff. d
// is at least 0 and is rounded up to a millisecond.
func RetryAfter(d time.Duration, err error) error {
	return &retryAfter{orDefault(err, "retry"), max(d, 0)}
}

// Snooze makes an error that asks for the task again after d, without counting the attempt against
// notyet-max-attempts: the work cannot be done yet. d is at least 0 and is rounded up to a
// millisecond. A task can be snoozed schemas.MaxSnoozes times. For a Retrier it is a RetryAfter.
func Snooze(d time.Duration, err error) error {
	return &snooze{orDefault(err, "snoozed"), max(d, 0)}
}

// Fail makes an error that ends the task: it becomes a dead letter without another attempt.
func Fail(err error) error { return &permanent{orDefault(err, "failed")} }

// Stop makes an error that ends Run with the message uncommitted and unreported, no matter who
// delivered it. Use it when neither another attempt nor another message could succeed, for example
// when a database is down. The message comes again when the consumer is started again.
func Stop(err error) error { return &stopError{orDefault(err, "stopped")} }

// PanicError is the error of a handler's panic. Its text goes into the report, without the stack.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

type retryAfter struct {
	cause
	after time.Duration
}

type snooze struct {
	cause
	after time.Duration
}

type permanent struct{ cause }

type stopError struct{ cause }

type cause struct{ error }

func (c cause) Unwrap() error { return c.error }

func orDefault(err error, text string) cause {
	if err == nil {
		err = errors.New(text)
	}
	return cause{err}
}

// outcome translates a handler's error into a report. Fail precedes Snooze, Snooze RetryAfter.
func outcome(err error) schemas.Report {
	r := schemas.Report{Status: schemas.StatusOK, RetryAfter: schemas.NoRetryAfter}
	if err == nil {
		return r
	}
	r.Status, r.Error = schemas.StatusRetry, err.Error()
	if _, last := errors.AsType[*permanent](err); last {
		r.Status = schemas.StatusFail
	} else if later, ok := errors.AsType[*snooze](err); ok {
		r.Status, r.RetryAfter = schemas.StatusSnooze, later.after
	} else if later, ok := errors.AsType[*retryAfter](err); ok {
		r.RetryAfter = later.after
	}
	return r
}
