package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Published is a request's position in the intake, and its meaning there.
type Published struct {
	Topic     string `json:"topic"     doc:"target topic, or the origin of an HTTP callback; default the intake's own target"`
	ID        string `json:"id"`
	Op        string `json:"op"`
	Due       int64  `json:"due"       doc:"Unix ms; 0 for cancel, stop and fire"`
	Intake    string `json:"intake"    doc:"intake topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Awaits    string `json:"awaits,omitempty" doc:"what it waits for, if the answer did not come in time"`
	Request   string `json:"request"   doc:"intake/partition/offset: the event that answers this request carries it"`
}

// tooLarge is the mistake of a record within the limits of the intake, but too large for Kafka.
const tooLarge = "is too large for the intake topic in Kafka: raise the topic's max.message.bytes, which counts what is sent after compression, or send less"

// Publisher sends requests to the intake.
type Publisher struct {
	client *kgo.Client
	alone  *kgo.Client
	turn   chan struct{} // a token for who uses alone
}

// NewPublisher makes a Publisher over two producing clients, closed by the caller. Records too
// large for a batch of client go through alone, one at a time. Both may be the same.
func NewPublisher(client, alone *kgo.Client) *Publisher {
	return &Publisher{client: client, alone: alone, turn: make(chan struct{}, 1)}
}

// Publish returns when Kafka has acknowledged the record, or when ctx ends. In the latter case the
// outcome is unknown. The record is still sent, because a cancel could fail other callers' records.
func (p *Publisher) Publish(ctx context.Context, r *kgo.Record) (Published, error) {
	err := produce(ctx, p.client, r, func() {})
	if errors.Is(err, kerr.MessageTooLarge) && p.alone != p.client {
		err = p.produceAlone(ctx, r)
	}
	switch {
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrBusy):
		return Published{}, err
	case errors.Is(err, kerr.MessageTooLarge):
		return Published{}, wrong("value", "", tooLarge)
	case err != nil:
		return Published{}, fmt.Errorf("publishing to %s: %w", r.Topic, err)
	}
	return ReadPublished(r)
}

func (p *Publisher) produceAlone(ctx context.Context, r *kgo.Record) error {
	select {
	case p.turn <- struct{}{}:
		return produce(ctx, p.alone, r, func() { <-p.turn })
	case <-ctx.Done():
		return ErrBusy
	}
}

// produce calls done when the client has finished with the record, maybe after the return.
func produce(ctx context.Context, client *kgo.Client, r *kgo.Record, done func()) error {
	acked := make(chan error, 1)
	client.TryProduce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) {
		done()
		acked <- err
	})
	select {
	case <-ctx.Done():
		return ErrUnknownOutcome
	case err := <-acked:
		if errors.Is(err, kgo.ErrMaxBuffered) {
			return ErrBusy
		}
		return err
	}
}

// anyLimits admit everything already admitted by an intake's own limits.
var anyLimits = schemas.Limits{MaxDelay: 1<<63 - 1, MaxValueBytes: schemas.MaxValueBytes, InternalTopics: []string{}}

// ReadPublished decodes a record again, with its position and its timestamp. A merely produced
// record has the client's timestamp, unlike maybe the topic's. The due time is that of a new task;
// with notyet-max-wait a pending one may be due earlier.
func ReadPublished(r *kgo.Record) (Published, error) {
	req, err := schemas.Decode(r, anyLimits)
	if err != nil {
		return Published{}, fmt.Errorf("reading back what was published: %w", err)
	}
	due := req.Due
	if wait := req.Settings.MaxWait; wait > 0 {
		due = min(due, r.Timestamp.UnixMilli()+wait.Milliseconds())
	}
	return Published{
		Topic: req.Topic, ID: req.ID, Op: req.Op.String(), Due: due, Intake: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Request: schemas.DefaultID(r.Topic, r.Partition, r.Offset),
	}, nil
}
