// Package producer sends requests to notyet. A Task goes in; a record on the intake topic comes
// out, and a Ref that names the task for a later Cancel, Stop or Fire.
//
// It works over the caller's own kgo.Client and leaves its settings (acks, idempotence,
// compression, transactions) alone; only a client without acks is refused (ErrNoAck). Once Schedule
// has returned without an error the task is accepted and is never lost. In a transaction of the
// caller's (see Records) this holds once the transaction is committed.
package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// ErrUnknownOutcome means that the context ended before Kafka answered. The request may still be
// accepted. Sending it again is harmless if the caller gave the task an ID.
var ErrUnknownOutcome = errors.New("outcome unknown")

// ErrNoAck means that the client does not wait for Kafka's acknowledgement (kgo.NoAck). So it would
// call every request accepted, and know no offset to name a task without an ID. Nothing was sent.
var ErrNoAck = errors.New("the client must let Kafka acknowledge records: use kgo.AllISRAcks")

// Config of a Producer. The zero value works.
type Config struct {
	// Intake is the intake topic. One with its own target takes tasks for that topic alone. Default
	// schemas.TopicIntake.
	Intake string
}

// Producer sends requests. It is safe for concurrent use and needs no closing.
type Producer struct {
	client *kgo.Client
	intake string
}

// New makes a Producer over the caller's client, which the caller closes.
//
// Requests about one task carry the same record key, to keep their order. Leave the client's
// partitioner as it is (StickyKeyPartitioner), or use another that goes by the key.
func New(client *kgo.Client, c Config) *Producer {
	c.Intake = cmp.Or(c.Intake, schemas.TopicIntake)
	return &Producer{client: client, intake: c.Intake}
}

// Schedule sends one task and waits until Kafka has acknowledged it. For a mistake in the task it
// returns a *schemas.Rejection and sends nothing. It does not know the installation's limits
// (horizon, size, allowed topics): a request beyond them gets a "rejected" event.
func (p *Producer) Schedule(ctx context.Context, t Task) (Ref, error) {
	refs, err := p.ScheduleBatch(ctx, t)
	if err != nil {
		return Ref{}, err
	}
	return refs[0], nil
}

// ScheduleBatch sends tasks together and waits for all of them. If any task has a mistake, nothing
// is sent. If sending fails for some tasks, their refs are zero and the others are set.
func (p *Producer) ScheduleBatch(ctx context.Context, tasks ...Task) ([]Ref, error) {
	records, err := p.Records(tasks...)
	if err != nil {
		return nil, err
	}
	errs := p.send(ctx, records)
	refs := make([]Ref, len(tasks))
	for i, t := range tasks {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("scheduling task %d for %s: %w", i, t.target(), errs[i])
			continue
		}
		refs[i] = Ref{Topic: t.target(), ID: t.ID, Key: t.Key}
		if t.ID == "" {
			refs[i].ID = schemas.DefaultID(records[i].Topic, records[i].Partition, records[i].Offset)
		}
	}
	return refs, errors.Join(errs...)
}

// Records returns the records of tasks, in order, without sending them: for the caller's own
// transaction, outbox or batch. In a Kafka transaction they count once it is committed; a delay
// counts from the records' timestamps, which are earlier.
func (p *Producer) Records(tasks ...Task) ([]*kgo.Record, error) {
	records := make([]*kgo.Record, len(tasks))
	for i, t := range tasks {
		request, err := t.request()
		if err != nil {
			return nil, fmt.Errorf("making task %d: %w", i, err)
		}
		if records[i], err = request.Record(p.intake); err != nil {
			return nil, fmt.Errorf("making task %d: %w", i, err)
		}
	}
	return records, nil
}

// CancelRecords returns the records of cancels, in order, without sending them.
func (p *Producer) CancelRecords(refs ...Ref) ([]*kgo.Record, error) {
	return p.about(schemas.OpCancel, refs...)
}

// StopRecords returns the records of stops, in order, without sending them.
func (p *Producer) StopRecords(refs ...Ref) ([]*kgo.Record, error) {
	return p.about(schemas.OpStop, refs...)
}

// FireRecords returns the records of fires, in order, without sending them.
func (p *Producer) FireRecords(refs ...Ref) ([]*kgo.Record, error) {
	return p.about(schemas.OpFire, refs...)
}

// Cancel asks notyet not to deliver the task. A nil error means that the request is accepted.
// Whether it came in time is an event on the results topic: cancelled, too_late or not_found.
func (p *Producer) Cancel(ctx context.Context, ref Ref) error {
	return p.ask(ctx, schemas.OpCancel, ref)
}

// Stop is a Cancel that also ends the attempts of a task that waits for a report or a retry. The
// event is then stopped: no further delivery follows, and a later report changes nothing.
func (p *Producer) Stop(ctx context.Context, ref Ref) error { return p.ask(ctx, schemas.OpStop, ref) }

// Fire asks notyet to deliver the task now, or to make the next attempt of a waiting retry now. The
// event on the results topic is fired, too_late or not_found.
func (p *Producer) Fire(ctx context.Context, ref Ref) error { return p.ask(ctx, schemas.OpFire, ref) }

func (p *Producer) ask(ctx context.Context, op schemas.Op, ref Ref) error {
	records, err := p.about(op, ref)
	if err != nil {
		return err
	}
	if err := p.send(ctx, records)[0]; err != nil {
		return fmt.Errorf("asking to %s %s: %w", op, ref.ID, err)
	}
	return nil
}

func (p *Producer) about(op schemas.Op, refs ...Ref) ([]*kgo.Record, error) {
	records := make([]*kgo.Record, len(refs))
	for i, ref := range refs {
		request := schemas.NewRequest(op, ref.Topic, ref.ID)
		request.Key = ref.Key
		if ref.Version != nil {
			request.Version = explicit(*ref.Version)
		}
		var err error
		if records[i], err = request.Record(p.intake); err != nil {
			return nil, fmt.Errorf("asking to %s task %d: %w", op, i, err)
		}
	}
	return records, nil
}

// send waits for the acknowledgements of all records or the end of ctx, and returns an error or nil
// for each record.
//
// The client does not get ctx: a cancelled record takes everything buffered for its partition with
// it, including other callers' requests. Abandoned records are still sent in the background.
func (p *Producer) send(ctx context.Context, records []*kgo.Record) []error {
	errs := make([]error, len(records))
	refused := ctx.Err()
	if refused == nil && p.client.OptValue(kgo.RequiredAcks) == kgo.NoAck() {
		refused = ErrNoAck
	}
	if refused != nil {
		for i := range errs {
			errs[i] = refused
		}
		return errs
	}
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, len(records)) // room for all: a promise must never block
	go func() {                                // Produce blocks while the client's buffer is full
		for i, r := range records {
			p.client.Produce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) { answers <- answer{i, err} })
		}
	}()
	waiting := make(map[int]struct{}, len(records))
	for i := range records {
		waiting[i] = struct{}{}
	}
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			errs[a.i] = a.err
			delete(waiting, a.i)
		case <-ctx.Done():
			for i := range waiting {
				errs[i] = fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
			}
			return errs
		}
	}
	return errs
}
