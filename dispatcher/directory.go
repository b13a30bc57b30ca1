package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// directory has producers meet target topics. It asks with a client of its own whether a topic
// exists: nobody's records wait for names that somebody has made up.
type directory struct {
	*sender
	client *kgo.Client
	create bool // topics that do not exist

	mu     sync.Mutex
	asked  map[string]*asked   // by topic
	queued map[string][]string // of those, by tenant: to be looked up
}

// asked is a topic being looked up or met, and the tasks to be sent there.
type asked struct {
	tenant string
	since  time.Time
	send   []flight.Sendable
}

// lookUpMost is how many topics a broker is asked about at once, and lookUpRest for how long the
// directory rests then: 4,000 a second.
const lookUpMost, lookUpRest = 500, 125 * time.Millisecond

func newDirectory(sd *sender, client *kgo.Client, create bool) *directory {
	return &directory{sender: sd, client: client, create: create, asked: map[string]*asked{}, queued: map[string][]string{}}
}

// ask has a task wait until a producer has met its topic.
func (d *directory) ask(one flight.Sendable) {
	d.mu.Lock()
	defer d.mu.Unlock()
	topic := one.Record.Topic
	if m := d.producers.begin(topic); m != nil { // by now
		d.produce(m, one)
		return
	}
	if d.asked[topic] == nil {
		d.asked[topic] = &asked{tenant: one.Task.Tenant(), since: time.Now()}
		d.queue(topic)
	}
	d.asked[topic].send = append(d.asked[topic].send, one)
}

// queue is called with the lock.
func (d *directory) queue(topic string) {
	tenant := d.asked[topic].tenant
	d.queued[tenant] = append(d.queued[tenant], topic)
	d.kicks.Topics.Now()
}

// next takes topics to be looked up: tenants take turns.
func (d *directory) next() (topics []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queued) > 0 {
		for tenant, names := range d.queued {
			if len(topics) == lookUpMost {
				return topics
			}
			topics = append(topics, names[0])
			if d.queued[tenant] = names[1:]; len(names) == 1 {
				delete(d.queued, tenant)
			}
		}
	}
	return topics
}

func (d *directory) run(ctx context.Context) {
	for ctx.Err() == nil {
		topics := d.next()
		if len(topics) == 0 {
			select {
			case <-ctx.Done():
			case <-d.kicks.Topics:
			}
			continue
		}
		rest := lookUpRest * time.Duration(len(topics)) / lookUpMost
		bound, cancel := context.WithTimeout(ctx, brokerWithin)
		found, err := kafka.LookUp(bound, d.client, d.create, topics...)
		cancel()
		if err != nil && ctx.Err() == nil {
			d.log.Warn("looking up target topics failed, trying again", zap.Int("topics", len(topics)), zap.Error(err))
			rest = time.Second
		}
		for _, topic := range topics {
			switch missing, ok := found[topic]; {
			case !ok:
				rest = max(rest, lookUpRest)
				d.lookAgain(topic)
			case missing != nil:
				d.answer(topic, missing)
			default:
				d.meet(topic)
			}
		}
		loop.Rest(ctx, rest)
	}
}

// lookAgain has a topic looked up again of which nothing could be said, for as long as a producer
// would try.
func (d *directory) lookAgain(topic string) {
	d.mu.Lock()
	late := time.Since(d.asked[topic].since) > d.cfg.giveUpAfter()
	if !late {
		d.queue(topic)
	}
	d.mu.Unlock()
	if late {
		d.answer(topic, errors.New("no broker says whether its topic exists"))
	}
}

// answer gives back what cannot be sent.
func (d *directory) answer(topic string, err error) {
	if !kafka.Permanent(err) {
		err = fmt.Errorf("%w: %w", kafka.ErrNotSent, err)
	}
	d.mu.Lock()
	send := d.asked[topic].send
	delete(d.asked, topic)
	d.mu.Unlock()
	for _, one := range send {
		d.answeredBy(one.Task, one.Record, err, true)
	}
}

// meet has a producer meet a topic that exists, and sends the waiting tasks.
func (d *directory) meet(topic string) {
	p, err := d.producers.withRoom()
	if err != nil {
		d.answer(topic, err)
		return
	}
	p.client.TryProduce(context.Background(), kafka.Meeting(topic), func(r *kgo.Record, err error) {
		if !kafka.Met(r) {
			d.producers.drop(p, topic)
			d.answer(topic, err)
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		m := &met{producer: p}
		for _, one := range d.asked[topic].send {
			if d.trust.trusted() && d.flight.Owns(one.Task) {
				m.begin()
				d.produce(m, one)
			} else {
				d.answered(one.Task, one.Record, kafka.ErrNotSent)
			}
		}
		delete(d.asked, topic)
		d.producers.byTopic.Store(topic, m)
	})
}

// close gives back what was not sent.
func (d *directory) close() {
	for topics := d.next(); len(topics) > 0; topics = d.next() {
		for _, topic := range topics {
			d.answer(topic, kgo.ErrClientClosed)
		}
	}
}
