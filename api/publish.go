package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
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

// Partitioner uses the partition of Kafka's default partitioner (murmur2) for a record with a key.
// For a request without a key, the task's id takes the key's place. So this program's requests
// about one task stay in order even then.
func Partitioner() kgo.Partitioner { return partitioner{kgo.StickyKeyPartitioner(nil)} }

type partitioner struct{ usual kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{p.usual.ForTopic(topic)}
}

type topicPartitioner struct{ kgo.TopicPartitioner }

func (p topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return p.TopicPartitioner.RequiresConsistency(byTask(r))
}

func (p topicPartitioner) Partition(r *kgo.Record, n int) int {
	return p.TopicPartitioner.Partition(byTask(r), n)
}

// byTask returns the record, or one with the id as its key.
func byTask(r *kgo.Record) *kgo.Record {
	if r.Key != nil {
		return r
	}
	for _, h := range r.Headers {
		if h.Key == schemas.HeaderID {
			return &kgo.Record{Topic: r.Topic, Key: h.Value}
		}
	}
	return r
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

// Limits of the waiting entries, and how long a caller waits for its own.
const (
	auditWaiting = 5000
	auditPiece   = 500
	auditTimeout = 5 * time.Second
)

// auditor writes the entries about requests through Kafka, before the sending. Callers that come
// while one statement runs share the next one. So all callers use one connection to the database.
type auditor struct {
	audit func(context.Context, []admin.AuditEntry) error

	mu      sync.Mutex
	waiting []*auditWrite
	writing bool
}

type auditWrite struct {
	entry admin.AuditEntry
	done  chan error // has room for one
}

// write returns once the entry is stored. After an error the entry may be stored or not.
func (a *auditor) write(ctx context.Context, e admin.AuditEntry) error {
	w := &auditWrite{e, make(chan error, 1)}
	a.mu.Lock()
	if len(a.waiting) >= auditWaiting {
		a.mu.Unlock()
		return fmt.Errorf("%w (%d others wait for it)", ErrAudit, auditWaiting)
	}
	a.waiting = append(a.waiting, w)
	if !a.writing {
		a.writing = true
		go a.run()
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w (the database has not answered in %s)", ErrAudit, auditTimeout)
	}
}

func (a *auditor) run() {
	for {
		a.mu.Lock()
		part := a.waiting[:min(len(a.waiting), auditPiece)]
		a.waiting = a.waiting[len(part):]
		if len(part) == 0 {
			a.waiting, a.writing = nil, false
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		entries := make([]admin.AuditEntry, len(part))
		for i, w := range part {
			entries[i] = w.entry
		}
		ctx, cancel := context.WithTimeout(context.Background(), auditTimeout)
		err := a.audit(ctx, entries)
		cancel()
		if err != nil {
			err = fmt.Errorf("%w (%w)", ErrAudit, err)
		}
		for _, w := range part {
			w.done <- err
		}
	}
}

func (a *auditor) request(ctx context.Context, r *kgo.Record) error {
	actor, _ := admin.ActorFrom(ctx)
	e, err := Requested(r)
	if err != nil {
		return err
	}
	e.Actor = actor
	return a.write(ctx, e)
}

// Requested returns the entry about a record for an intake topic, without its actor.
func Requested(r *kgo.Record) (admin.AuditEntry, error) {
	req, err := schemas.Decode(r, anyLimits)
	if err != nil {
		return admin.AuditEntry{}, fmt.Errorf("reading what is to be published: %w", err)
	}
	e := admin.AuditEntry{What: req.Op.String(), Topic: req.Topic, TaskID: req.ID, Count: 1}
	if !req.GivenID {
		e.TaskID = "" // made of the position that it has once Kafka has it
	}
	detail := map[string]any{"due": req.Due, "intake": r.Topic}
	if req.Version >= 0 {
		detail["version"] = fmt.Sprint(req.Version)
	}
	e.Detail = admin.AuditDetail(detail)
	return e, nil
}
