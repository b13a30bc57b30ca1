package consumer

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/schemas"
)

// batch is what one poll gave: each message is handled (and its report acknowledged) or not.
type batch struct {
	*Consumer
	handle  Handler
	records []*kgo.Record
	reports sync.WaitGroup

	mu      sync.Mutex // reports may be answered after the batch has been given up
	handled []bool
	failure error // the first
	stop    context.CancelFunc
}

func newBatch(c *Consumer, handle Handler, records []*kgo.Record) *batch {
	return &batch{Consumer: c, handle: handle, records: records, handled: make([]bool, len(records)), stop: func() {}}
}

// run handles the messages until ctx ends or one of them fails for good, and returns that failure. What has started is
// waited for; reports no longer than work lasts.
func (b *batch) run(ctx, work context.Context) error {
	ctx, b.stop = context.WithCancel(ctx)
	defer b.stop()
	var group errgroup.Group
	group.SetLimit(b.Concurrency)
	for _, chain := range chains(b.records) {
		group.Go(func() error {
			for _, i := range chain {
				if ctx.Err() == nil {
					b.one(work, i)
				}
			}
			return nil
		})
	}
	_ = group.Wait() // failures go through fail
	reported := make(chan struct{})
	go func() { b.reports.Wait(); close(reported) }()
	select {
	case <-reported:
	case <-work.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// fail stops the batch.
func (b *batch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		b.failure = err
	}
	b.stop()
}

func (b *batch) done(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handled[i] = true
}

// chains groups the places of messages that must keep their order: same partition, same key. Messages without a key
// have no order among them.
func chains(records []*kgo.Record) [][]int {
	type line struct {
		topic     string
		partition int32
		key       string
	}
	at := make(map[line]int, len(records))
	var out [][]int
	for i, r := range records {
		l := line{r.Topic, r.Partition, string(r.Key)}
		n, ok := at[l]
		if !ok || r.Key == nil {
			n = len(out)
			out = append(out, nil)
		}
		if r.Key != nil {
			at[l] = n
		}
		out[n] = append(out[n], i)
	}
	return out
}

// one handles one message and sends its report. work outlives Run's context.
func (b *batch) one(work context.Context, i int) {
	m := message(b.records[i])
	err := b.contained(work, m)
	if err != nil {
		b.OnError(m, err)
	}
	switch {
	case err != nil && work.Err() != nil: // most likely because of that: it comes again, as the same attempt
	case m.Delivery != nil:
		b.report(work, i, m, outcome(err))
	case err != nil:
		b.fail(fmt.Errorf("handling %s/%d at offset %d: %w", m.Record.Topic, m.Record.Partition, m.Record.Offset, err))
	default:
		b.done(i)
	}
}

// report sends the report; only with it is the message handled. The promise does nothing but note the outcome.
func (b *batch) report(work context.Context, i int, m Message, r schemas.Report) {
	r.Topic, r.ID, r.Attempt = m.Record.Topic, m.Delivery.ID, m.Delivery.Attempt
	b.reports.Add(1)
	b.Reporter.Produce(work, schemas.EncodeReport(b.ReportsTopic, r), func(_ *kgo.Record, err error) {
		defer b.reports.Done()
		switch {
		case err == nil:
			b.done(i)
		case work.Err() == nil:
			b.fail(fmt.Errorf("reporting %s of %s: %w", r.Status, r.ID, err))
		}
	})
}

// contained turns a panic of the handler or the guard into an error.
func (b *batch) contained(work context.Context, m Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return b.guarded(work, m)
}

// guarded calls the handler unless the guard has seen the delivery.
func (b *batch) guarded(work context.Context, m Message) error {
	if b.Guard == nil || m.Delivery == nil || m.Delivery.Key == "" {
		return b.handle(work, m)
	}
	seen, err := b.Guard.Seen(work, m.Delivery.Key)
	if err != nil {
		return fmt.Errorf("asking the guard: %w", err)
	}
	if seen {
		return nil
	}
	if err := b.handle(work, m); err != nil {
		return err
	}
	if err := b.Guard.Done(work, m.Delivery.Key); err != nil {
		b.OnError(m, fmt.Errorf("telling the guard: %w", err))
	}
	return nil
}

// message takes a record apart. One whose notyet headers are damaged is none of notyet's: it is handled as it is.
func message(r *kgo.Record) Message {
	d, rest, err := schemas.ParseDelivery(r)
	if err != nil {
		return Message{Record: r, Headers: r.Headers}
	}
	return Message{Record: r, Headers: rest, Delivery: &d}
}

// prefix is, for each partition, the last message before the first unhandled one: what may be committed.
func (b *batch) prefix() []*kgo.Record {
	type partition struct {
		topic string
		n     int32
	}
	last := map[partition]*kgo.Record{}
	closed := map[partition]bool{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range b.records {
		p := partition{r.Topic, r.Partition}
		if !b.handled[i] {
			closed[p] = true
		} else if !closed[p] {
			last[p] = r
		}
	}
	out := make([]*kgo.Record, 0, len(last))
	for _, r := range last {
		out = append(out, r)
	}
	return out
}
