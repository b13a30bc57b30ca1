// Package events publishes events on the results topic. Stored events of a transaction, and the
// last events of deliveries, go in; records on the topic come out.
//
// The package has its own producer and never blocks a caller. If the results topic does not answer,
// only the room for events fills. Stored events without room stay in the outbox and are published
// later. For other events the caller learns that there is no room.
package events

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/outbox"
)

// Config of a Publisher. The zero value works.
type Config struct {
	// Topic of the events. Default notyet.results.
	Topic string
	// Stage is the source of the events, and part of the metrics' names. Default "events".
	Stage string
	// MaxRecords and MaxBytes limit the sent and not yet acknowledged events. Default 20,000 events
	// and 16 MiB: more than a second of 5,000 deliveries, each with two events.
	MaxRecords int
	MaxBytes   int
	// Sources returns the outbox sources of leftovers to publish, anew at each look. Default none.
	Sources func() []int
	// LookEvery is the time between two looks at the outbox. Only a box seen at two looks is
	// published: at the first the box may be on its way from another process. Default 5 s.
	LookEvery time.Duration
}

func (c Config) withDefaults() Config {
	c.Topic = cmp.Or(c.Topic, schemas.TopicResults)
	c.Stage = cmp.Or(c.Stage, "events")
	c.MaxRecords = cmp.Or(c.MaxRecords, 20_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 16<<20)
	c.LookEvery = cmp.Or(c.LookEvery, 5*time.Second)
	if c.Sources == nil {
		c.Sources = func() []int { return nil }
	}
	return c
}

// Publisher is safe for concurrent use. Make one with New.
type Publisher struct {
	cfg     Config
	client  *kgo.Client
	alone   *kgo.Client // one event at a time; only Run uses it
	outbox  outbox.Outbox
	log     *zap.Logger
	metrics *metrics
	kick    chan struct{} // something was acknowledged

	mu        sync.Mutex
	records   int          // passed to the client and not acknowledged
	bytes     int          // of these records
	since     time.Time    // time of the last acknowledgement, or of the first record after an idle period
	failing   bool         // the topic has refused since then what it would refuse of any event
	stored    map[key]bool // boxes that the client has, or that are published and not yet deleted from the outbox
	published []outbox.Box // acknowledged and not yet deleted from the outbox, without their events
	refused   map[key]bool // boxes in the outbox whose events are to be offered alone
}

// key identifies a box, a row of the outbox.
type key struct {
	source int
	seq    int64
}

func keyOf(box outbox.Box) key { return key{box.Source, box.Seq} }

// New makes the producer and does not connect yet.
func New(kcfg kafka.Config, stored outbox.Outbox, cfg Config, reg prometheus.Registerer, log *zap.Logger) (*Publisher, error) {
	cfg = cfg.withDefaults()
	// The room is counted here, before an event is encoded. The client's own limit is higher.
	kcfg.MaxBufferedBytes, kcfg.MaxBufferedRecords = 4*cfg.MaxBytes, 2*cfg.MaxRecords
	client, err := kafka.NewProducer(kcfg, log, kgo.MaxProduceRequestsInflightPerBroker(1))
	if err != nil {
		return nil, fmt.Errorf("making the producer of events: %w", err)
	}
	alone, err := kafka.NewSoloProducer(kcfg, log, kafka.GiveUpAfter(forgetTimeout)...)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("making the producer of single events: %w", err)
	}
	p := &Publisher{cfg: cfg, client: client, alone: alone, outbox: stored, log: log, kick: make(chan struct{}, 1), stored: map[key]bool{}, refused: map[key]bool{}}
	p.metrics = newMetrics(reg, p)
	return p, nil
}

// size estimates an event's bytes in memory until the acknowledgement.
func size(e schemas.Event) int { return 400 + len(e.Topic) + len(e.ID) + len(e.Reason) }

// Publish sends events in order, without the outbox. done runs once all are acknowledged or one has
// failed. Without room Publish returns false and does nothing.
func (p *Publisher) Publish(events []schemas.Event, done func(error)) bool {
	bytes := 0
	for _, e := range events {
		bytes += size(e)
	}
	if !p.reserve(len(events), bytes) {
		return false
	}
	p.send(events, done)
	return true
}

// Stored sends the events of boxes in the outbox. A box is deleted once all its events are
// acknowledged. A box without room stays in the outbox. Run, in any process, publishes it later.
func (p *Publisher) Stored(boxes []outbox.Box) {
	for _, box := range boxes {
		p.tryStored(box)
	}
}

// tryStored returns false if there is no room for a box.
func (p *Publisher) tryStored(box outbox.Box) bool {
	k := keyOf(box)
	p.mu.Lock()
	known := p.stored[k]
	p.stored[k] = true
	p.mu.Unlock()
	if known {
		return true
	}
	published := p.Publish(box.Events, func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil { // it stays in the outbox for the next look
			delete(p.stored, k)
			if kafka.MaybeCollateral(err) {
				p.refused[k] = true
			}
			return
		}
		p.published = append(p.published, outbox.Box{Source: box.Source, Seq: box.Seq})
		p.wake()
	})
	if !published {
		p.metrics.deferred.Inc()
		p.mu.Lock()
		delete(p.stored, k)
		p.mu.Unlock()
	}
	return published
}

func (p *Publisher) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// reserve takes room. Something larger than all room is admitted alone.
func (p *Publisher) reserve(records, bytes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.records > 0 && (p.records+records > p.cfg.MaxRecords || p.bytes+bytes > p.cfg.MaxBytes) {
		return false
	}
	if p.records == 0 && !p.failing {
		p.since = time.Now()
	}
	p.records += records
	p.bytes += bytes
	return true
}

func (p *Publisher) send(events []schemas.Event, done func(error)) {
	var mu sync.Mutex
	var first error
	left := len(events)
	for _, e := range events {
		p.client.TryProduce(context.Background(), schemas.EncodeEvent(p.cfg.Topic, e), func(_ *kgo.Record, err error) {
			p.acknowledged(e, err)
			mu.Lock()
			if left--; first == nil {
				first = err
			}
			last := left == 0
			mu.Unlock()
			if last {
				done(first)
			}
		})
	}
}

// acknowledged is the client's promise for one event.
func (p *Publisher) acknowledged(e schemas.Event, err error) {
	p.mu.Lock()
	p.records--
	p.bytes -= size(e)
	switch {
	case err == nil:
		p.since, p.failing = time.Now(), false
	case !kafka.MaybeCollateral(err):
		p.failing = true
	}
	p.mu.Unlock()
	if err != nil {
		p.metrics.errors.Inc()
		p.log.Warn("publishing an event failed", zap.String("topic", p.cfg.Topic), zap.String("state", string(e.State)), zap.Error(err))
	}
}

// Unanswered returns for how long the topic has acknowledged nothing. 0: nothing is waiting.
func (p *Publisher) Unanswered() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.records == 0 && !p.failing {
		return 0
	}
	return time.Since(p.since)
}

// Leftovers counts the boxes published from the outbox at a look.
func (p *Publisher) Leftovers() prometheus.Counter { return p.metrics.leftovers }

// unresponsiveAfter is how long the topic may acknowledge nothing before Ready reports it.
const unresponsiveAfter = 10 * time.Second

// Ready returns an error if the results topic does not answer.
func (p *Publisher) Ready(context.Context) error {
	if d := p.Unanswered(); d > unresponsiveAfter {
		return fmt.Errorf("topic %s has acknowledged no event for %v: events wait in the database", p.cfg.Topic, d.Round(time.Second))
	}
	return nil
}

// Close waits, limited by bound, for acknowledgements, deletes the acknowledged boxes from the
// outbox, and closes the client. The rest stays in the outbox.
func (p *Publisher) Close(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := p.client.Flush(ctx); err != nil {
		p.log.Warn("events are left unpublished, they stay in the database", zap.Error(err))
	}
	p.forget(ctx)
	p.client.Close()
	p.alone.Close()
}
