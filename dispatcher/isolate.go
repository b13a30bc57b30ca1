package dispatcher

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
)

// When one record of a partition fails for good, the producer fails all that it holds for the partition with the same
// error, and the others are innocent. So suspects are sent again, one at a time, by a producer of their own, and only what
// it says counts. Each topic has its own, so that one that does not answer holds up nobody else's suspects.

// suspect queues a refused task. mu is held.
func (d *Dispatcher) suspect(ctx context.Context, t *claimedTask) {
	g := d.targetOf(t)
	d.beginSending(g, t) // until its second answer: a silent target is noticed, and its tasks leave their lines
	g.suspects = append(g.suspects, sendable{task: t, record: t.record})
	if !g.trying {
		g.trying = true
		d.solos.Go(func() { d.isolate(ctx, g) })
	}
}

// isolate sends a target's suspects until none is left.
func (d *Dispatcher) isolate(ctx context.Context, g *target) {
	solo, err := kafka.NewSoloProducer(d.kafka, d.log, kafka.GiveUpAfter(d.cfg.giveUpAfter())...)
	if err != nil {
		d.log.Error("making a producer for refused tasks failed", zap.String("topic", g.topic), zap.Error(err))
		return
	}
	defer context.AfterFunc(ctx, solo.Close)() // a send that is under way heeds nothing else
	defer solo.Close()
	for ctx.Err() == nil {
		s, ok := d.nextSuspect(g)
		if !ok {
			return
		}
		for !d.trusted() && ctx.Err() == nil {
			sleep(ctx, 10*time.Millisecond)
		}
		if d.isAbandoned(s.task.slot) {
			d.dropSuspect(s.task)
			continue
		}
		if d.isUnresponsive(g) {
			d.answeredBy(s.task, s.record, errUnresponsive, true)
			continue
		}
		r, err := solo.ProduceSync(ctx, s.record).First()
		if ctx.Err() == nil {
			d.answeredBy(s.task, r, err, true)
		}
	}
}

// errUnresponsive ends the turn of a suspect whose target does not answer: nothing is in the topic of it, and it is put off.
var errUnresponsive = fmt.Errorf("%w: its target does not answer", kafka.ErrNotSent)

func (d *Dispatcher) nextSuspect(g *target) (sendable, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(g.suspects) == 0 {
		g.trying = false
		d.forgetIdle(g)
		return sendable{}, false
	}
	s := g.suspects[0]
	g.suspects = g.suspects[1:]
	return s, true
}

func (d *Dispatcher) dropSuspect(t *claimedTask) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endSending(t)
}

func (d *Dispatcher) isUnresponsive(g *target) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return g.outage != nil
}

func (d *Dispatcher) isAbandoned(l *ownedSlot) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.abandoned
}
