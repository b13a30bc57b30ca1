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

// Variant is what the tasks of a load have besides a target and a due time.
type Variant struct {
	Report          bool // completed by a consumer's report, which the bench sends
	IDs             bool // with ids, so that they have final events
	Priorities      bool // high, normal and low in turn
	scheduledEvents bool // with a `scheduled` event
	tag             string
}

// Name is the variant's name in results.
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

// Each value begins with the task's number and its due time, which identify a delivery. The rest is
// random, because compression would improve the figures.
const (
	headBytes   = 16
	warmUpIndex = ^uint64(0)
)

// requests makes intake records.
type requests struct {
	topic   []byte
	url     string // instead of the topic; empty: none
	size    int
	variant Variant
	random  *rand.ChaCha8
	run     string
	jitter  time.Duration // of timers
}

func newRequests(topic string, size int, v Variant) *requests {
	return &requests{topic: []byte(topic), size: size, variant: v, random: rand.NewChaCha8([32]byte{1}), run: strconv.FormatInt(time.Now().UnixNano(), 36)}
}

var priorities = [...][]byte{[]byte(schemas.PriorityHigh.String()), []byte(schemas.PriorityNormal.String()), []byte(schemas.PriorityLow.String())}

// ackTimeout is longer than an overloaded installation takes to process a report, because
// redelivery is not to be measured.
var ackTimeout = []byte("10m")

// record builds the record directly: making a checked schemas.Request of each would cost more than
// sending it.
func (q *requests) record(intake string, i uint64, due int64) *kgo.Record {
	value := make([]byte, q.size)
	binary.BigEndian.PutUint64(value, i)
	binary.BigEndian.PutUint64(value[8:], uint64(due))
	_, _ = q.random.Read(value[headBytes:])
	headers := make([]kgo.RecordHeader, 0, 4)
	add := func(name string, v []byte) { headers = append(headers, kgo.RecordHeader{Key: name, Value: v}) }
	if q.url == "" {
		add(schemas.HeaderTopic, q.topic)
	} else {
		add(schemas.HeaderURL, []byte(q.url))
	}
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
	if q.variant.tag != "" {
		add(schemas.HeaderTag, []byte(q.variant.tag))
	}
	if q.variant.scheduledEvents {
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

	mu    sync.Mutex
	ends  offsets // after the last acknowledged request of each intake partition
	first offsets // the first one of each
}

func (b *Bench) newLoad(v Variant) *load {
	return &load{b: b, requests: newRequests(b.cfg.Topic, b.cfg.ValueBytes, v), began: time.Now(), ends: offsets{}, first: offsets{}}
}

// send requests the next task. It blocks while the client's buffer is full.
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
		l.ends[r.Partition] = max(l.ends[r.Partition], r.Offset+1)
		if at, ok := l.first[r.Partition]; !ok || r.Offset < at {
			l.first[r.Partition] = r.Offset
		}
	})
}

// flush waits until Kafka has acknowledged all requests.
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

// paceTick is how often a paced load sends; it sends the requests of one tick together.
const paceTick = 2 * time.Millisecond

// pace calls send rate times a second until the time is up. After a stall of the machine it catches
// up.
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
