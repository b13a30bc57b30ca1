package consumer

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// message takes a record apart. A record with damaged notyet headers is handled as any other one.
func message(r *kgo.Record) Message {
	d, rest, err := schemas.ParseDelivery(r)
	if err != nil {
		return Message{Record: r, Headers: r.Headers}
	}
	return Message{Record: r, Headers: rest, Delivery: &d}
}

func (w *window) handleOne(e *entry) {
	m := message(e.record)
	returned := false
	defer func() {
		if !returned { // runtime.Goexit, for example by a test's FailNow: the effects are unknown
			w.fail(fmt.Errorf("handling %s: its goroutine was ended", position(e.record)))
			w.finish(e, false)
		}
	}()
	err := recoverPanic(func() error { return w.callHandler(m) })
	returned = true
	if err != nil {
		w.OnError(m, err)
	}
	var stop *stopError
	switch {
	case err != nil && w.work.Err() != nil: // probably cut off by the deadline: it comes again, as the same attempt
		w.finish(e, false)
	case m.Delivery != nil && !errors.As(err, &stop):
		w.report(e, m, outcome(err))
	case err != nil:
		w.fail(fmt.Errorf("handling %s: %w", position(e.record), err))
		w.finish(e, false)
	default:
		w.finish(e, true)
	}
}

// report sends the report. Only the acknowledged report makes the message handled. The promise must
// not block: it only notes the outcome.
func (w *window) report(e *entry, m Message, r schemas.Report) {
	r.Topic, r.ID, r.Attempt, r.Delivery = m.Record.Topic, m.Delivery.ID, m.Delivery.Attempt, m.Delivery.Key
	w.Reporter.Produce(w.work, schemas.EncodeReport(w.ReportsTopic, r), func(_ *kgo.Record, err error) {
		if err != nil && w.work.Err() == nil {
			w.fail(fmt.Errorf("reporting %s of %s: %w", r.Status, r.ID, err))
		}
		w.finish(e, err == nil)
	})
}

// callHandler calls the handler unless the guard has seen the delivery.
func (w *window) callHandler(m Message) error {
	if w.Guard == nil || m.Delivery == nil || m.Delivery.Key == "" {
		return w.handle(w.work, m)
	}
	seen, err := w.Guard.Seen(w.work, m.Delivery.Key)
	if err != nil {
		return fmt.Errorf("asking the guard: %w", err)
	}
	if seen {
		return nil
	}
	if err := w.handle(w.work, m); err != nil {
		return err
	}
	if err := w.Guard.Done(w.work, m.Delivery.Key); err != nil {
		w.OnError(m, fmt.Errorf("marking in the guard: %w", err))
	}
	return nil
}

func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return f()
}

func position(r *kgo.Record) string {
	return fmt.Sprintf("%s/%d at offset %d", r.Topic, r.Partition, r.Offset)
}
