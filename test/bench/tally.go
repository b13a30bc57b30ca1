package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
)

// tally sums up the deliveries of a load. Lateness counts first copies of tasks due from `from`
// until before `to`; everything else counts all tasks.
type tally struct {
	from, to int64 // Unix ms; 0 and 0: all
	calmTo   int64 // Unix ms; tasks due before it count as calm

	copies   []uint8 // of each task
	lateness *hdrhistogram.Histogram
	calm     *hdrhistogram.Histogram // of tasks due before calmTo
	early    int
	extra    int // second and later copies of a first attempt
	again    int // later attempts
	inWindow int // deliveries within the window
	dueIn    int // tasks that were due within the window

	first, last int64 // Unix ms of arrivals
	byBroker    bool  // arrivals are the broker's LogAppendTime, not the sender's clock
	timeline    map[int64]*moment

	// The first and the last delivery since killed (Unix ms; 0: no kill) that is late by
	// takeoverLateness.
	killed, firstLate, lastLate int64
}

// moment is a tenth of a second on the time axis.
type moment struct {
	delivered  int
	worst, sum int64
}

const tenth = 100 // ms

// takeoverLateness, in ms, distinguishes a lost owner from a long pause of a garbage collector, a
// disk or a neighbour, which is at most half as long.
const takeoverLateness = 500

// newLateness holds milliseconds up to a day with three digits.
func newLateness() *hdrhistogram.Histogram { return hdrhistogram.New(1, 86_400_000, 3) }

// expect prepares for tasks with the numbers below n.
func (t *tally) expect(n int) *tally {
	t.copies, t.lateness, t.calm, t.timeline = make([]uint8, n), newLateness(), newLateness(), map[int64]*moment{}
	return t
}

// add takes one record of the target topic.
func (t *tally) add(r *kgo.Record) {
	i := number(r)
	if i >= uint64(len(t.copies)) {
		return // from the warm-up
	}
	t.byBroker = r.Attrs.TimestampType() == 1
	for _, h := range r.Headers {
		if h.Key == schemas.HeaderAttempt && string(h.Value) != "1" {
			t.again++
			return
		}
	}
	t.arrived(int(i), int64(binary.BigEndian.Uint64(r.Value[8:])), r.Timestamp.UnixMilli())
}

func (t *tally) arrived(i int, due, at int64) {
	if t.copies[i] < 255 {
		t.copies[i]++
	}
	if t.copies[i] > 1 {
		t.extra++
		return
	}
	if t.first == 0 || at < t.first {
		t.first = at
	}
	t.last = max(t.last, at)
	late := at - due
	if late < 0 {
		t.early++
	}
	if t.within(at) {
		t.inWindow++
	}
	if t.killed > 0 && at >= t.killed && late >= takeoverLateness {
		if t.firstLate == 0 || at < t.firstLate {
			t.firstLate = at
		}
		t.lastLate = max(t.lastLate, at)
	}
	m := t.timeline[at/tenth]
	if m == nil {
		m = &moment{}
		t.timeline[at/tenth] = m
	}
	m.delivered++
	m.worst = max(m.worst, late)
	m.sum += late
	if t.within(due) {
		t.dueIn++
		record(t.lateness, late)
	}
	if due < t.calmTo {
		record(t.calm, late)
	}
}

func record(h *hdrhistogram.Histogram, late int64) {
	_ = h.RecordValue(min(max(late, 0), h.HighestTrackableValue()))
}

// records returns the number of all deliveries.
func (t *tally) records() int { return len(t.copies) - t.lost() + t.extra + t.again }

func (t *tally) within(ms int64) bool { return t.to == 0 || ms >= t.from && ms < t.to }

func (t *tally) lost() int {
	n := 0
	for _, c := range t.copies {
		if c == 0 {
			n++
		}
	}
	return n
}

// gather reads the target topic from a position on until every task of the tally has arrived, or no
// more arrive. The tally then knows what is missing. Copies do not count as missing tasks, so it
// reads on for as many records as tasks are missing.
func (b *Bench) gather(ctx context.Context, t *tally, from offsets, lastDue time.Time) error {
	return b.gatherWith(ctx, t, from, lastDue, t.add)
}

// gatherWith is gather for records that the tally does not know.
func (b *Bench) gatherWith(ctx context.Context, t *tally, from offsets, lastDue time.Time, add func(*kgo.Record)) error {
	for left := len(t.copies); left > 0; left = t.lost() {
		missing := b.await(ctx, from, left, lastDue)
		if missing != nil && !errors.Is(missing, ErrMissing) {
			return missing
		}
		b.cfg.Say("reading the deliveries back")
		to, err := b.ends(ctx, b.cfg.Topic)
		if err == nil {
			err = b.read(ctx, b.cfg.Topic, from, to, add)
		}
		if err != nil || missing != nil {
			return err
		}
		from = to
	}
	return nil
}

// read passes the records between two positions of a topic to f, each partition in its order.
func (b *Bench) read(ctx context.Context, topic string, from, to offsets, f func(*kgo.Record)) error {
	left := to.since(from)
	starts := map[int32]kgo.Offset{}
	for p := range to {
		starts[p] = kgo.NewOffset().At(from[p])
	}
	client, err := kafka.New(b.cfg.Kafka, b.log, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	for left > 0 {
		ctx, cancel := context.WithTimeout(ctx, b.cfg.IdleTimeout)
		fetches := client.PollFetches(ctx)
		cancel()
		if err := ctx.Err(); err != nil && fetches.NumRecords() == 0 {
			return fmt.Errorf("reading topic %s back, %d records to go: %w", topic, left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < to[r.Partition] {
				left--
				f(r)
			}
		})
	}
	return nil
}
