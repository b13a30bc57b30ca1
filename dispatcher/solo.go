package dispatcher

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// When one record of a partition fails for good, the producer fails all that it holds for the partition with the same
// error, and the others are innocent. So suspects are sent again, one at a time, by a producer of their own, and only what
// it says counts. Each topic has its own, so that one that does not answer holds up nobody else's suspects.

// suspect queues a refused task. mu is held.
func (d *Dispatcher) suspect(ctx context.Context, t *task) {
	g := d.targets[t.topic]
	if g == nil {
		g = &target{}
		d.targets[t.topic] = g
	}
	if g.sending == 0 {
		g.since = time.Now()
	}
	g.sending++ // until its second answer: a silent target is found sick, and its tasks leave their lines
	g.suspects = append(g.suspects, sendable{t, t.record})
	if !g.trying {
		g.trying = true
		d.solos.Go(func() { d.trySuspects(ctx, t.topic, g) })
	}
}

// trySuspects sends a target's suspects until none is left.
func (d *Dispatcher) trySuspects(ctx context.Context, topic string, g *target) {
	solo, err := kafka.NewSoloProducer(d.kafka, d.log)
	if err != nil {
		d.log.Error("making a producer for refused tasks failed", zap.String("topic", topic), zap.Error(err))
		return
	}
	defer context.AfterFunc(ctx, solo.Close)() // a send that is under way heeds nothing else
	defer solo.Close()
	for ctx.Err() == nil {
		s, ok := d.nextSuspect(topic, g)
		if !ok {
			return
		}
		for !d.trusted() && ctx.Err() == nil {
			sleep(ctx, 10*time.Millisecond)
		}
		if d.isAbandoned(s.task.line) {
			d.dropSuspect(g)
			continue
		}
		r, err := solo.ProduceSync(ctx, s.record).First()
		if ctx.Err() == nil {
			d.answeredBy(s.task, r, err, true)
		}
	}
}

func (d *Dispatcher) nextSuspect(topic string, g *target) (sendable, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(g.suspects) == 0 {
		if g.trying = false; g.sending == 0 && len(g.waiting) == 0 {
			delete(d.targets, topic)
		}
		return sendable{}, false
	}
	s := g.suspects[0]
	g.suspects = g.suspects[1:]
	return s, true
}

func (d *Dispatcher) dropSuspect(g *target) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.sending--
}

func (d *Dispatcher) isAbandoned(l *line) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.abandoned
}
