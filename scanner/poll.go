package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// A poll with few records is followed by a pause. Otherwise each record of a trickle would cost a
// fetch and a transaction, as much as fifty rows. A record after a pause is taken at once.
const (
	pollPause = 25 * time.Millisecond
	pollFew   = 1000
)

// poller reads the intake partitions of this member into the queue. It alone moves and pauses the
// client's partitions, so a poll never returns what was fetched before a move.
type poller struct {
	group     *kgo.Client
	mover     *kafka.Mover // of the group's client
	parts     *partitions
	inspector *inspector
	checker   *checker
	pacer     *pacer
	queue     *queue
	metrics   *metrics
	log       *zap.Logger

	// Only run's goroutine uses these.
	paused  map[partitionKey]bool    // in the client
	failing map[partitionKey]failing // partitions that could not be fetched

	unfetched atomic.Pointer[unfetched] // the newest that counted: run's goroutine writes it, ready reads it
}

type unfetched struct {
	at  time.Time
	err error
}

// ready returns why partitions cannot be fetched; nil: they can.
func (p *poller) ready() error {
	if u := p.unfetched.Load(); u != nil && time.Since(u.at) < warnEvery {
		return u.err
	}
	return nil
}

type failing struct{ since, last, warned time.Time }

const (
	// warnEvery is the time between two log lines about a partition. A later failure is a new one.
	warnEvery = 5 * time.Second
	// leaderPatience is how long a change of leader goes unlogged: each broker restart makes some.
	leaderPatience = 2 * time.Second
)

// fetchFailed counts an error and warns of it. The client repeats the error many times a second.
func (p *poller) fetchFailed(key partitionKey, err error) {
	now, f := time.Now(), p.failing[key]
	if now.Sub(f.last) >= warnEvery {
		f.since = now
	}
	f.last = now
	if now.Sub(f.since) >= leaderPatience || !kerr.IsRetriable(err) {
		p.unfetched.Store(&unfetched{now, fmt.Errorf("fetching %s/%d: %w", key.topic, key.partition, err)})
		if now.Sub(f.warned) >= warnEvery {
			f.warned = now
			p.metrics.fetchErrors.Inc()
			p.log.Warn("fetching intake failed", zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Error(err))
		}
	}
	p.failing[key] = f
}

// run puts fetched records into the queue. While the queue is full, the rest stays safe in Kafka.
func (p *poller) run(ctx context.Context) error {
	for ctx.Err() == nil {
		stretches := p.unstuck() // before the client is moved behind them
		p.pacer.divide()
		polling, polledAll := p.parts.polling(ctx, p.pacer.next(kafka.PollAtMost), p.move)
		fetches := p.group.PollRecords(polling, 10_000)
		woken := polling.Err() != nil
		polledAll()
		polled := time.Now()
		if fetches.IsClientClosed() {
			return errors.New("polling the intake: the client was closed")
		}
		failed := false
		fetches.EachError(func(topic string, partition int32, err error) {
			loss, lost := errors.AsType[*kgo.ErrDataLoss](err)
			switch {
			case lost:
				p.checker.dataLost(loss) // the partition is halted, so what the client resumes at is dropped: see received
				return
			case woken && errors.Is(err, polling.Err()), errors.Is(err, kgo.ErrMaxDecompress):
				return
			case errors.Is(err, kafka.ErrHeld): // the workers make room
				failed = true
				return
			}
			if ctx.Err() == nil { // the other partitions go on at their pace
				p.fetchFailed(partitionKey{topic, partition}, err)
			}
		})
		p.pacer.expect()
		looking, looked := context.WithTimeout(ctx, inspectPatience)
		fetches.EachPartition(func(of kgo.FetchTopicPartition) {
			received, ok := p.receive(looking, of)
			stretches, failed = append(stretches, received...), failed || !ok
		})
		looked()
		p.group.AllowRebalance() // until here, no partition could be revoked and assigned again since the poll
		p.queue.put(ctx, append(stretches, p.pacer.release()...))
		var rest time.Duration
		switch {
		case failed: // an error that persists must not make this loop spin
			rest = 100 * time.Millisecond
		case fetches.NumRecords() < pollFew && !slices.ContainsFunc(stretches, func(r stretch) bool { return r.unreadable != nil }):
			rest = time.Until(polled.Add(pollPause))
		}
		if rest > 0 {
			loop.Rest(ctx, rest)
		}
	}
	return nil
}

// receive makes stretches of a partition's polled records and of an unreadable batch behind them.
// False: the partition must be polled again.
func (p *poller) receive(ctx context.Context, of kgo.FetchTopicPartition) (stretches []stretch, ok bool) {
	key, lost := partitionKey{of.Topic, of.Partition}, p.checker.lost.Count()+1
	records, bad, err := p.inspector.inspect(ctx, key, of.Records)
	if err != nil {
		p.metrics.fetchErrors.Inc()
		p.log.Warn("looking at what a poll has jumped over failed, trying again", zap.Error(err))
		p.parts.pollAgain(key)
		return nil, false
	}
	if e, is := errors.AsType[*kgo.ErrDecompressTooLarge](of.Err); is && bad == nil {
		p.log.Warn("a batch of the intake is too large to be read or damaged, and becomes a dead letter", zap.Error(e))
		bad = tooLarge(e)
	}
	if n := p.pacer.fit(key, records); n < len(records) {
		records, bad = records[:n], nil
	}
	if len(records) > 0 {
		if r, ok := p.parts.received(records); ok {
			r.lost = lost
			stretches = append(stretches, p.pacer.admit(r)...)
		}
	}
	if bad != nil {
		if r, ok := p.parts.receivedUnreadable(key, bad); ok {
			r.lost = lost
			stretches = append(stretches, p.pacer.admit(r)...)
		}
	}
	return stretches, true
}

// unstuck makes stretches of the unreadable batches that hold partitions up.
func (p *poller) unstuck() (stretches []stretch) {
	for r, bad := range p.inspector.takeFound() {
		if at, _, reading := p.parts.readTo(r.key); !reading || at < bad.First || at >= bad.Next {
			continue // it went on
		}
		p.inspector.logUnreadable(r.key, bad)
		if out, ok := p.parts.receivedUnreadable(r.key, bad); ok {
			out.lost = p.checker.lost.Count() + 1
			stretches = append(stretches, p.pacer.admit(out)...)
		}
	}
	return stretches
}

// move has the client skip halted partitions and intakes at quotas, and read on from the offsets
// to. at is for the Mover.
func (p *poller) move(to kafka.Offsets, halted map[partitionKey]bool, at func(func(string, int32, kgo.EpochOffset))) {
	pause := halted
	p.pacer.pause(pause)
	if gone := missing(p.paused, pause); len(gone) > 0 {
		p.group.ResumeFetchPartitions(gone)
	}
	if added := missing(pause, p.paused); len(added) > 0 {
		p.group.PauseFetchPartitions(added)
	}
	p.paused = pause
	p.mover.Move(to, at)
}

// missing returns those of some partitions that are not among others.
func missing(some, others map[partitionKey]bool) map[string][]int32 {
	out := map[string][]int32{}
	for key := range some {
		if !others[key] {
			out[key.topic] = append(out[key.topic], key.partition)
		}
	}
	return out
}
