package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/notyet/notyet/schemas"
)

// RetryAfter makes an error that asks for the next attempt after d (at least 0, rounded up to a millisecond), instead of
// the task's backoff.
func RetryAfter(d time.Duration, err error) error {
	return &retryAfter{max(d, 0), orDefault(err, "retry")}
}

// Fail makes an error that ends the task: it goes to the dead letters without another attempt.
func Fail(err error) error { return &permanent{orDefault(err, "failed")} }

// Stop makes an error that ends Run with the message uncommitted and unreported, whoever delivered it: for what no other
// attempt and no other message would fare better with, such as a database that is gone. The message comes again when
// the consumer is started again.
func Stop(err error) error { return &stopError{orDefault(err, "stopped")} }

// PanicError is the error that a panic of a handler becomes. Its text, which goes into the report, is without the stack.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

type retryAfter struct {
	after time.Duration
	cause error
}

func (e *retryAfter) Error() string { return e.cause.Error() }
func (e *retryAfter) Unwrap() error { return e.cause }

type permanent struct{ cause error }

func (e *permanent) Error() string { return e.cause.Error() }
func (e *permanent) Unwrap() error { return e.cause }

type stopError struct{ cause error }

func (e *stopError) Error() string { return e.cause.Error() }
func (e *stopError) Unwrap() error { return e.cause }

func orDefault(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// outcome is what a handler's error says to notyet. Fail counts before RetryAfter.
func outcome(err error) schemas.Report {
	r := schemas.Report{Status: schemas.StatusOK, RetryAfter: schemas.NoRetryAfter}
	if err == nil {
		return r
	}
	r.Status, r.Error = schemas.StatusRetry, err.Error()
	var last *permanent
	var later *retryAfter
	if errors.As(err, &last) {
		r.Status = schemas.StatusFail
	} else if errors.As(err, &later) {
		r.RetryAfter = later.after
	}
	return r
}
