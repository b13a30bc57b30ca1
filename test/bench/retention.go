package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
)

// Retention schedules rate tasks a second, each due 3 to 5 s later. Half of them are cancelled a
// second after they were sent, a quarter is reported ok by a consumer, and a quarter is plain.
// Meanwhile it counts the rows of the task table. The installation must keep ended tasks for `kept`
// (dispatcher.retention), and its table should be empty at the start.
//
// Lateness is measured for tasks due after two retentions, when as many rows are deleted as are
// added. The figures before_… are from the first retention, when nothing is deleted yet.
func (b *Bench) Retention(ctx context.Context, rate int, kept, last time.Duration) (*Result, error) {
	if b.db == nil {
		return nil, errNoDatabase
	}
	if last < 3*kept {
		return nil, fmt.Errorf("%s is too short to see what is deleted after %s: measure for %s or longer", last, kept, 3*kept)
	}
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	reports, err := b.report(ctx, from, reportsOdd)
	if err != nil {
		return nil, err
	}
	defer reports.close()
	begin := time.Now()
	full, end := begin.Add(2*kept), begin.Add(last)
	counts := b.countRows(ctx, full, end)
	use := b.watch(ctx, full, end)
	b.cfg.Say("sending %d tasks a second until %s; measuring from %s", rate, end.Format(time.TimeOnly), full.Format(time.TimeOnly))
	m := &mixture{load: b.newLoad(Variant{IDs: true}), lag: rate / 2}
	if err := pace(ctx, rate, last, func() { m.send(ctx) }); err != nil {
		return nil, err
	}
	if err := m.flush(ctx); err != nil {
		return nil, err
	}
	t := (&tally{from: full.UnixMilli(), to: end.UnixMilli(), calmTo: begin.Add(kept).UnixMilli()}).expect(int(m.sent))
	if err := b.gather(ctx, t, from, end.Add(longestDelay)); err != nil {
		return nil, err
	}
	r := newResult("retention", m.asked)
	r.load = m.load
	r.figure("asked_per_s", float64(rate))
	r.figure("cancels", float64(m.cancelled))
	r.delivered(t)
	r.quantiles("before_late", "ms", t.calm)
	if err := counts.into(r, 2*float64(rate)*kept.Seconds()); err != nil {
		return nil, err
	}
	return r, use.into(r, b, t.dueIn)
}

// mixture is the load of Retention. Only the tasks that will be delivered are numbered.
type mixture struct {
	*load
	asked, cancelled int
	lag              int           // how many cancels are held back
	waiting          []*kgo.Record // cancels, the oldest first
}

func (m *mixture) send(ctx context.Context) {
	m.asked++
	due := time.Now().Add(shortestDelay).UnixMilli() + rand.Int64N((longestDelay - shortestDelay).Milliseconds())
	if m.asked%2 == 0 {
		odd := reportsOdd(m.load.sent)
		m.requests.variant = Variant{IDs: odd, Report: odd}
		m.load.send(ctx, due)
		return
	}
	m.requests.variant = Variant{IDs: true}
	rec := m.requests.record(m.b.cfg.Intake, warmUpIndex-uint64(m.asked), due)
	m.produce(ctx, rec)
	m.waiting = append(m.waiting, cancelOf(rec))
	if len(m.waiting) > m.lag {
		m.produce(ctx, m.waiting[0])
		m.waiting = m.waiting[1:]
		m.cancelled++
	}
}

// flush also sends the remaining cancels.
func (m *mixture) flush(ctx context.Context) error {
	for _, rec := range m.waiting {
		m.produce(ctx, rec)
	}
	m.cancelled += len(m.waiting)
	m.waiting = nil
	return m.load.flush(ctx)
}

func reportsOdd(i uint64) bool { return i%2 == 1 }

// number returns the number of the task in a delivery's value.
func number(delivery *kgo.Record) uint64 {
	if len(delivery.Value) < headBytes {
		return warmUpIndex
	}
	return binary.BigEndian.Uint64(delivery.Value)
}

// cancelOf returns the cancel of a schedule request.
func cancelOf(request *kgo.Record) *kgo.Record {
	c := &kgo.Record{Topic: request.Topic, Key: request.Key, Headers: []kgo.RecordHeader{{Key: schemas.HeaderOp, Value: []byte(schemas.OpCancel.String())}}}
	for _, h := range request.Headers {
		if h.Key == schemas.HeaderTopic || h.Key == schemas.HeaderID {
			c.Headers = append(c.Headers, h)
		}
	}
	return c
}

// countEvery is the pause between two counts, each of which reads an index of the whole table.
const countEvery = 10 * time.Second

// rowCounts are counts of the task table between two instants.
type rowCounts struct {
	most, last int
	err        error
	done       chan struct{}
}

func (b *Bench) countRows(ctx context.Context, from, to time.Time) *rowCounts {
	c := &rowCounts{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for c.err = loop.Rest(ctx, time.Until(from)); c.err == nil && time.Now().Before(to); c.err = loop.Rest(ctx, countEvery) {
			if c.last, c.err = b.db.rows(ctx); c.err != nil {
				return
			}
			b.cfg.Say("%s rows", strconv.Itoa(c.last))
			c.most = max(c.most, c.last)
		}
	}()
	return c
}

// into adds the counts, and what is wrong with them.
func (c *rowCounts) into(r *Result, allowed float64) error {
	<-c.done
	if c.err != nil {
		return c.err
	}
	r.figure("rows_most", float64(c.most))
	r.figure("rows_last", float64(c.last))
	r.figure("rows_allowed", allowed)
	if float64(c.most) >= allowed {
		r.Wrong = append(r.Wrong, fmt.Sprintf("the table had %d rows, and twice the rate times the retention is %.0f", c.most, allowed))
	}
	return nil
}
