// Package producer sends requests to notyet: a Task goes in, a record on the intake topic comes out, and a Ref that names
// the task for a later Cancel or Fire.
//
// It works over the caller's own kgo.Client, whose settings (acks, idempotence, compression, transactions) it leaves
// alone. A task counts as accepted, and is never lost from then on, once Schedule has returned without an error; in a
// transaction of the caller's (see Records) once that is committed.
package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// ErrUnknownOutcome says that the context ended before Kafka answered: the request may still be accepted. Sending it
// again is harmless if the task has an ID of the caller's.
var ErrUnknownOutcome = errors.New("outcome unknown")

// Config of a Producer; the zero value works.
type Config struct {
	// Intake is the intake topic. Default schemas.TopicIntake.
	Intake string
}

// Producer sends requests. It is safe for concurrent use and holds nothing to close.
type Producer struct {
	client *kgo.Client
	intake string
}

// New makes a Producer over the caller's client, which stays the caller's to close.
//
// Requests about one task should keep their order, for which they carry the same record key: leave the client's
// partitioner as it is (StickyKeyPartitioner), or take another that goes by key.
func New(client *kgo.Client, c Config) *Producer {
	if c.Intake == "" {
		c.Intake = schemas.TopicIntake
	}
	return &Producer{client: client, intake: c.Intake}
}

// Schedule sends one task and waits until Kafka has acknowledged it. A mistake in the task is a *schemas.Rejection and
// nothing is sent; limits of the installation (horizon, size, allowed topics) are answered by a "rejected" event only.
func (p *Producer) Schedule(ctx context.Context, t Task) (Ref, error) {
	refs, err := p.ScheduleBatch(ctx, t)
	if err != nil {
		return Ref{}, err
	}
	return refs[0], nil
}

// ScheduleBatch sends tasks together and waits for all. If any task has a mistake, nothing is sent. If sending fails for
// some, the refs of the others are set and those of the failed are zero.
func (p *Producer) ScheduleBatch(ctx context.Context, tasks ...Task) ([]Ref, error) {
	records, err := p.Records(tasks...)
	if err != nil {
		return nil, err
	}
	errs := p.send(ctx, records)
	refs := make([]Ref, len(tasks))
	for i, t := range tasks {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("scheduling task %d for %s: %w", i, t.Topic, errs[i])
			continue
		}
		refs[i] = Ref{Topic: t.Topic, ID: t.ID, Key: t.Key}
		if t.ID == "" {
			refs[i].ID = schemas.DefaultID(records[i].Topic, records[i].Partition, records[i].Offset)
		}
	}
	return refs, errors.Join(errs...)
}

// Records makes the records of tasks without sending them, in order: for a caller's own transaction, outbox or batch. In
// a Kafka transaction they are requests only if it commits, and a delay counts from before that.
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

// CancelRecords makes the records of cancels without sending them, in order: what Records is to Schedule.
func (p *Producer) CancelRecords(refs ...Ref) ([]*kgo.Record, error) {
	return p.about(schemas.OpCancel, refs...)
}

// FireRecords makes the records of fires without sending them, in order.
func (p *Producer) FireRecords(refs ...Ref) ([]*kgo.Record, error) {
	return p.about(schemas.OpFire, refs...)
}

// Cancel asks that the task be not delivered. No error means that the request is accepted; whether it came in time is
// answered on the results topic: cancelled, too_late or not_found.
func (p *Producer) Cancel(ctx context.Context, ref Ref) error {
	return p.ask(ctx, schemas.OpCancel, ref)
}

// Fire asks that the task be delivered now. The answer on the results topic is fired, too_late or not_found.
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

// about makes requests about tasks that are there.
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

// send waits for the acknowledgements of all records or the end of ctx, and returns an error or nil for each.
//
// The client does not get ctx: a record that is given up takes with it all that is buffered for its partition, other
// callers' requests too. What is sent is answered in the background even if nobody waits any more.
func (p *Producer) send(ctx context.Context, records []*kgo.Record) []error {
	errs := make([]error, len(records))
	if err := ctx.Err(); err != nil {
		for i := range errs {
			errs[i] = err
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
