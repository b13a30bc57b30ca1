package events

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store/outbox"
)

const (
	lookBoxes     = 10_000
	forgetTimeout = 10 * time.Second
)

// Run deletes published boxes from the outbox and publishes leftovers, until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	look := time.NewTicker(p.cfg.LookEvery)
	defer look.Stop()
	var l leftovers
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
			p.forget(ctx)
			p.publishLeft(ctx, &l) // there is room again
		case <-look.C:
			p.look(ctx, &l)
			p.publishLeft(ctx, &l)
		}
	}
}

// forget deletes acknowledged boxes from the outbox. A failed deletion is tried again.
func (p *Publisher) forget(ctx context.Context) {
	p.mu.Lock()
	boxes := p.published
	p.published = nil
	p.mu.Unlock()
	if len(boxes) == 0 {
		return
	}
	bound, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	err := p.outbox.Delete(bound, boxes)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.log.Debug("forgetting published events failed, trying again", zap.Error(err))
		p.published = append(boxes, p.published...)
		return
	}
	for _, box := range boxes {
		delete(p.stored, keyOf(box))
	}
}

// leftovers are boxes found in the outbox at the last look.
type leftovers struct {
	seen map[key]bool // at the last look
	due  []outbox.Box // seen at two looks, without their events, in order
}

// look reads the rest of the outbox. A new box may be on its way, from this process or another.
func (p *Publisher) look(ctx context.Context, l *leftovers) {
	p.forget(ctx)
	sources := p.cfg.Sources()
	if len(sources) == 0 {
		*l = leftovers{}
		p.forgetRefused(nil)
		p.metrics.waiting.Set(0) // they are others' to count
		return
	}
	bound, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	boxes, err := p.outbox.Pending(bound, sources, lookBoxes)
	if err != nil {
		if ctx.Err() == nil {
			p.log.Warn("looking for unpublished events failed", zap.Error(err))
		}
		return
	}
	now := make(map[key]bool, len(boxes))
	for _, box := range boxes {
		now[keyOf(box)] = true
	}
	p.forgetRefused(now)
	l.due = l.due[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, box := range boxes {
		if k := keyOf(box); l.seen[k] && !p.stored[k] {
			l.due = append(l.due, box)
		}
	}
	l.seen = now
	p.metrics.waiting.Set(float64(len(boxes)))
}

// publishLeft publishes leftovers while there is room, one box at a time, with at most twice the
// limits in memory. Refused boxes go alone, and publishLeft waits for each. If Kafka does not
// answer about one, the other refused boxes wait for the next look.
func (p *Publisher) publishLeft(ctx context.Context, l *leftovers) {
	unanswered := false
	for len(l.due) > 0 && ctx.Err() == nil && p.hasRoom() {
		bound, cancel := context.WithTimeout(ctx, forgetTimeout)
		box, ok, err := p.outbox.Read(bound, l.due[0])
		cancel()
		switch {
		case err != nil:
			p.log.Warn("reading unpublished events failed", zap.Int("source", l.due[0].Source), zap.Int64("seq", l.due[0].Seq), zap.Error(err))
		case ok && p.wasRefused(box):
			if !unanswered {
				unanswered = !p.publishAlone(ctx, box)
				p.forget(ctx)
			}
		case ok && !p.tryStored(box):
			return
		case ok:
			p.metrics.leftovers.Inc()
		}
		l.due = l.due[1:]
	}
}

// hasRoom reports whether there is enough room to read a box.
func (p *Publisher) hasRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records == 0 || p.records < p.cfg.MaxRecords/2 && p.bytes < p.cfg.MaxBytes/2
}
