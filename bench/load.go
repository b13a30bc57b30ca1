package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// Variant is what the tasks of a load ask for beyond a target and a due time.
type Variant struct {
	Report     bool // acknowledged by a consumer's report, which the bench sends
	IDs        bool // with ids of the caller's, so that final events are told
	Priorities bool // high, normal and low by turns
	tellStored bool // with a `scheduled` event
}

// Name is how the variant is called in results.
func (v Variant) Name() string {
	switch name := ""; {
	case v.Report:
		return name + "report"
	case v.IDs:
		return "ids"
	case v.Priorities:
		return "priorities"
	}
	return "plain"
}

// Each value begins with the task's number and its due time, so that a delivery tells what it is; the rest is random, for
// compression must not flatter the figures.
const (
	headBytes   = 16
	warmUpIndex = ^uint64(0)
)

// requests makes intake records.
type requests struct {
	topic   []byte
	size    int
	variant Variant
	random  *rand.ChaCha8
	run     string
}

func newRequests(topic string, size int, v Variant) *requests {
	return &requests{topic: []byte(topic), size: size, variant: v, random: rand.NewChaCha8([32]byte{1}), run: strconv.FormatInt(time.Now().UnixNano(), 36)}
}

var priorities = [...][]byte{[]byte(schemas.PriorityHigh.String()), []byte(schemas.PriorityNormal.String()), []byte(schemas.PriorityLow.String())}

// ackTimeout is longer than an overloaded installation takes to come to a report: what is measured is not redelivery.
var ackTimeout = []byte("10m")

// record is written by hand: making a checked schemas.Request of each would cost more than sending it.
func (q *requests) record(intake string, i uint64, due int64) *kgo.Record {
	value := make([]byte, q.size)
	binary.BigEndian.PutUint64(value, i)
	binary.BigEndian.PutUint64(value[8:], uint64(due))
	_, _ = q.random.Read(value[headBytes:])
	headers := make([]kgo.RecordHeader, 0, 4)
	add := func(name string, v []byte) { headers = append(headers, kgo.RecordHeader{Key: name, Value: v}) }
	add(schemas.HeaderTopic, q.topic)
	add(schemas.HeaderAt, strconv.AppendInt(nil, due, 10))
	if q.variant.Report {
		add(schemas.HeaderAck, []byte(schemas.AckReport.String()))
		add(schemas.HeaderAckTimeout, ackTimeout)
	}
	if q.variant.IDs {
		add(schemas.HeaderID, fmt.Appendf(nil, "%s-%d", q.run, i))
	}
	if q.variant.Priorities {
		add(schemas.HeaderPriority, priorities[i%3])
	}
	if q.variant.tellStored {
		add(schemas.HeaderEvents, []byte(schemas.EventsAll.String()))
	}
	return &kgo.Record{Topic: intake, Key: strconv.AppendUint(nil, q.random.Uint64(), 36), Value: value, Headers: headers}
}

// load is one stream of requests.
type load struct {
	b        *Bench
	requests *requests
	sent     uint64 // next number
	began    time.Time
	failed   atomic.Pointer[error]

	mu     sync.Mutex
	places offsets // behind the last acknowledged request of each intake partition
	first  offsets // the first one of each
}

func (b *Bench) newLoad(v Variant) *load {
	return &load{b: b, requests: newRequests(b.cfg.Topic, b.cfg.ValueBytes, v), began: time.Now(), places: offsets{}, first: offsets{}}
}

// send asks for the next task. It blocks while the client's buffer is full.
func (l *load) send(ctx context.Context, due int64) {
	l.sendAs(ctx, l.sent, due)
	l.sent++
}

func (l *load) sendAs(ctx context.Context, i uint64, due int64) {
	l.produce(ctx, l.requests.record(l.b.cfg.Intake, i, due))
}

func (l *load) produce(ctx context.Context, rec *kgo.Record) {
	l.b.intake.Produce(ctx, rec, func(r *kgo.Record, err error) {
		if err != nil {
			l.failed.CompareAndSwap(nil, &err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.places[r.Partition] = max(l.places[r.Partition], r.Offset+1)
		if at, ok := l.first[r.Partition]; !ok || r.Offset < at {
			l.first[r.Partition] = r.Offset
		}
	})
}

// flush waits until Kafka has all.
func (l *load) flush(ctx context.Context) error {
	if err := l.b.intake.Flush(ctx); err != nil {
		return fmt.Errorf("sending requests to %s: %w", l.b.cfg.Intake, err)
	}
	return l.err()
}

func (l *load) err() error {
	if err := l.failed.Load(); err != nil {
		return fmt.Errorf("sending requests to %s: %w", l.b.cfg.Intake, *err)
	}
	return nil
}

// paceTick is how often a paced load sends: what falls into one tick goes out together.
const paceTick = 2 * time.Millisecond

// pace calls send rate times a second until the time is up, and does not fall behind for good when the machine does.
func pace(ctx context.Context, rate int, last time.Duration, send func()) error {
	ticks := time.NewTicker(paceTick)
	defer ticks.Stop()
	began := time.Now()
	for sent := 0; ; {
		passed := min(time.Since(began), last)
		for due := int(passed.Seconds() * float64(rate)); sent < due; sent++ {
			send()
		}
		if passed == last {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
}
