package bench

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
)

// timerLead is how long before a minute the last timer is stored at the latest: the runs of that minute are then made ahead, like those
// of all later ones.
const timerLead = 20 * time.Second

// Timers sets n timers that run every minute, and measures the runs of whole minutes. The n runs of a minute are all due at the same
// instant, or spread over jitter. Afterwards it deletes the timers.
func (b *Bench) Timers(ctx context.Context, n, minutes int, jitter time.Duration) (*Result, error) {
	l := b.newLoad(Variant{})
	l.requests.jitter = jitter
	b.cfg.Say("setting %d timers", n)
	defer b.deleteTimers(context.WithoutCancel(ctx), l, n)
	for i := range n {
		l.produce(ctx, l.requests.timer(b.cfg.Intake, uint64(i), schemas.OpTimer))
	}
	if err := l.flush(ctx); err != nil {
		return nil, err
	}
	if b.db != nil {
		if _, err := b.stored(ctx, l); err != nil {
			return nil, err
		}
	}
	begin := time.Now().Add(timerLead + time.Minute).Truncate(time.Minute)
	end := begin.Add(time.Duration(minutes) * time.Minute)
	b.cfg.Say("set within %s; measuring %d minutes from %s on", time.Since(l.began).Round(time.Second), minutes, begin.Format(time.TimeOnly))
	if err := loop.Rest(ctx, time.Until(begin)-time.Second); err != nil {
		return nil, err
	}
	from, err := b.ends(ctx, b.cfg.Topic)
	if err != nil {
		return nil, err
	}
	watch := b.watch(ctx, begin.Add(-time.Second), end.Add(-time.Second))
	runs := &runs{timers: n, begin: begin.UnixMilli(), tally: (&tally{}).expect(n * minutes)}
	lastDue := end.Add(-time.Minute)
	if err := b.gatherWith(ctx, runs.tally, from, lastDue, runs.add); err != nil {
		return nil, err
	}
	if err := loop.Rest(ctx, time.Until(end)); err != nil {
		return nil, err
	}
	r := newResult("timers", n*minutes)
	if jitter > 0 {
		r.Variant = "jitter " + jitter.String()
	}
	r.load = l
	r.figure("timers", float64(n))
	r.delivered(runs.tally)
	return r, watch.into(r, b, n*minutes)
}

// runs tallies the runs of timers by minute.
type runs struct {
	timers int
	begin  int64 // Unix ms of the first run that counts
	tally  *tally
}

func (s *runs) add(r *kgo.Record) {
	i := number(r)
	if i >= uint64(s.timers) {
		return
	}
	s.tally.byBroker = r.Attrs.TimestampType() == 1
	for _, h := range r.Headers {
		if h.Key != schemas.HeaderDue {
			continue
		}
		due, err := strconv.ParseInt(string(h.Value), 10, 64)
		at := int(due-s.begin) / int(time.Minute.Milliseconds()) * s.timers
		if err == nil && due >= s.begin && at+int(i) < len(s.tally.copies) {
			s.tally.arrived(at+int(i), due, r.Timestamp.UnixMilli())
		}
	}
}

// timer makes a request about timer i.
func (q *requests) timer(intake string, i uint64, op schemas.Op) *kgo.Record {
	rec := &kgo.Record{Topic: intake, Key: strconv.AppendUint(nil, i, 36), Headers: []kgo.RecordHeader{
		{Key: schemas.HeaderOp, Value: []byte(op.String())},
		{Key: schemas.HeaderTopic, Value: q.topic},
		{Key: schemas.HeaderID, Value: []byte(q.run + "-" + strconv.FormatUint(i, 10))},
	}}
	if op == schemas.OpTimer {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: schemas.HeaderCron, Value: []byte("* * * * *")})
		if q.jitter > 0 {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: schemas.HeaderJitter, Value: []byte(q.jitter.String())})
		}
		rec.Value = make([]byte, q.size)
		binary.BigEndian.PutUint64(rec.Value, i)
		_, _ = q.random.Read(rec.Value[headBytes:])
	}
	return rec
}

// deleteTimers deletes them also when a measurement failed: they would run for ever.
func (b *Bench) deleteTimers(ctx context.Context, l *load, n int) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.IdleTimeout)
	defer cancel()
	b.cfg.Say("deleting the timers")
	for i := range n {
		l.produce(ctx, l.requests.timer(b.cfg.Intake, uint64(i), schemas.OpTimerDelete))
	}
	err := l.flush(ctx)
	if err == nil && b.db != nil {
		_, err = b.stored(ctx, l)
	}
	if err != nil {
		b.cfg.Say("the timers could not all be deleted (ids %s-0 to %s-%d of topic %s): %v", l.requests.run, l.requests.run, n-1, b.cfg.Topic, err)
	}
}
