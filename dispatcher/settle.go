package dispatcher

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// settler makes durable what has come of tasks. Only its own loop uses it.
type settler struct {
	*shared
	flight    *inFlight
	inbox     *inbox
	outlets   *outlets
	sender    *sender // gets back what is to be sent again
	announcer *announcer
	ownership *ownership // asked whose the slots are when a settlement is refused
	indexer   *indexer
	sent      *sendlog.Log
}

func newSettler(sd *sender, an *announcer, ow *ownership, ix *indexer, sent *sendlog.Log) *settler {
	return &settler{shared: sd.shared, flight: sd.flight, inbox: sd.flight.inbox, outlets: sd.outlets, sender: sd, announcer: an, ownership: ow, indexer: ix, sent: sent}
}

// settleEvery is the least pause between settlements: there are at most 20 a second, each of a few statements for all slots together.
// A kill leaves deliveries of up to this time more in doubt.
const settleEvery = 50 * time.Millisecond

// checkEvery is how often outlets are looked at: often enough for what must be stored within DrainTimeout.
func (c Config) checkEvery() time.Duration {
	return max(min(time.Second, c.DrainTimeout/16), 10*time.Millisecond)
}

// run makes outcomes durable.
func (s *settler) run(ctx context.Context) {
	check := time.NewTicker(s.cfg.checkEvery())
	defer check.Stop()
	for {
		rest := time.NewTimer(settleEvery)
		select {
		case <-ctx.Done():
			return
		case <-s.kicks.settle:
		case <-check.C:
			s.flight.mu.Lock()
			s.sender.checkOutlets()
			s.announcer.checkUnconfirmed()
			gone := s.outlets.forgetRefused(time.Now())
			s.flight.mu.Unlock()
			if len(gone) > 0 {
				go s.sender.client.PurgeTopicsFromProducing(gone...) // it waits for a metadata request that is under way
			}
		}
		s.note(ctx)
		s.flight.mu.Lock()
		s.flight.leavePinned()
		s.flight.mu.Unlock()
		s.settle(ctx)
		select { // a round that took longer is followed by the next
		case <-ctx.Done():
		case <-rest.C:
		}
	}
}

// settle takes tasks out of their places, and then closes what can be closed. Each step is one transaction for all slots. The first steps
// share their locks with the writers of tasks; only the last one, which is short, keeps them out.
func (s *settler) settle(ctx context.Context) {
	transitions, recalls, more := s.inbox.takeLeaving(recallMost)
	if more {
		s.kicks.settle.now()
	}
	left := s.settlePieces(ctx, s.ours(transitions))
	recalls, early := mayRecall(recalls, left)
	early = append(s.settlePieces(ctx, s.ours(recalls)), early...)
	if len(left)+len(early) > 0 {
		s.inbox.putBack(left, early)
	}
	s.announcer.storeDeferred(ctx)
	_ = s.settleThese(ctx, nil, s.closable)
}

// settleThese tries until all is durable. An error says that it is not: ctx ended, or the database refuses the transitions for what is in
// them.
func (s *settler) settleThese(ctx context.Context, transitions []transition, closable func() ([]store.Done, []*ownedSlot)) error {
	first := time.Now()
	for failures := 0; ctx.Err() == nil; {
		transitions = s.ours(transitions)
		done, owned := closable()
		if len(transitions)+len(done) == 0 {
			return nil
		}
		began := time.Now()
		rows, events := transitionRows(transitions)
		result, err := s.settleOnce(ctx, done, rows, events)
		if errors.Is(err, store.ErrFenced) || len(result.Fenced) > 0 {
			s.ownership.fenced(ctx)
			continue
		}
		if len(transitions) > 0 && store.BadRecord(err) {
			return err
		}
		if err != nil {
			failures++
			s.metrics.retries.Inc()
			if ctx.Err() == nil {
				s.log.Warn("settling failed, trying again", zap.Error(err))
			}
			s.logOutcomes(ctx)
			sleep(ctx, pauseAfter(failures))
			continue
		}
		s.metrics.settleTime.Observe(time.Since(began).Seconds())
		s.closed(transitions, done, owned, result, time.Since(first))
		s.afterSettle(ctx, done, result)
		return nil
	}
	return ctx.Err()
}

func (s *settler) settleOnce(ctx context.Context, done []store.Done, transitions []store.Transition, events []schemas.Event) (store.Settled, error) {
	if err := faultpoint.At(faultpoint.DispatcherNoted); err != nil {
		return store.Settled{}, err
	}
	result, err := s.store.Settle(ctx, done, transitions, events, s.clock.Latest)
	s.writes.noteWrite(ctx, err)
	if err != nil {
		return result, err
	}
	return result, faultpoint.At(faultpoint.DispatcherSettled)
}

// ours leaves out transitions of slots that were lost, and all but the last word on one task.
func (s *settler) ours(transitions []transition) []transition {
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	at := make(map[int64]int, len(transitions))
	out := transitions[:0]
	for _, e := range transitions {
		if l := s.flight.slots[e.Slot]; l == nil || l != e.task.slot { // the slot may have been taken anew under the same epoch
			continue
		}
		if i, ok := at[e.Seq]; ok {
			// Ended wins over set aside, and so does an attempt that failed.
			if e.State > out[i].State || e.State == out[i].State && e.Attempt > out[i].Attempt {
				e.task = out[i].task // the one in the slot
				out[i] = e
			}
			continue
		}
		at[e.Seq] = len(out)
		out = append(out, e)
	}
	return out
}

func (s *settler) closable() ([]store.Done, []*ownedSlot) {
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	var done []store.Done
	var owned []*ownedSlot
	for _, l := range s.flight.slots {
		if to, count := l.closable(); to > l.done {
			done = append(done, store.Done{Slot: l.number, Epoch: l.epoch, From: l.done, To: to, Count: count})
			owned = append(owned, l)
		}
	}
	return done, owned
}

func transitionRows(transitions []transition) ([]store.Transition, []schemas.Event) {
	rows := make([]store.Transition, len(transitions))
	var events []schemas.Event
	for i, e := range transitions {
		rows[i] = e.Transition
		if e.From == 0 {
			rows[i].Late = e.events
			continue
		}
		events = append(events, e.events...)
	}
	return rows, events
}

func (s *settler) closed(transitions []transition, done []store.Done, owned []*ownedSlot, result store.Settled, took time.Duration) {
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	if len(transitions) > 0 {
		s.flight.unsettled.settledIn(len(transitions), took)
	}
	mismatch := map[int]bool{}
	for _, slot := range result.Mismatch {
		mismatch[slot] = true
	}
	for i, l := range owned {
		switch {
		case l.abandoned:
		case mismatch[l.number]:
			s.metrics.mismatch.Inc()
			s.log.Error("the database counts another number of tasks than were settled: taking the slot anew", zap.Int("slot", l.number),
				zap.Int64("from", done[i].From), zap.Int64("to", done[i].To), zap.Int("settled", done[i].Count))
			s.flight.abandon(l, "the database counts another number of tasks in it")
		default:
			to := done[i].To
			if at, ok := result.Stands[l.number]; ok {
				to = at
				s.kicks.settle.now()
			}
			s.flight.entries -= l.closeTo(to)
		}
	}
	for _, e := range transitions {
		e.task.status = left
		s.flight.unsettled.ends(e.task)
		if reported, ok := result.Reported[e.Seq]; ok {
			e.Dead = reported.Dead
		}
		if e.Dead != nil && !result.Ignored[e.Seq] {
			s.metrics.dead.WithLabelValues(e.Dead.Kind).Inc()
		}
		if t := s.flight.stuck[e.Seq]; t != nil && t.answered {
			delete(s.flight.stuck, e.Seq)
			s.flight.leftAgain(e)
		}
	}
	for _, m := range result.Moved {
		if l := s.flight.slots[m.Slot]; l != nil && m.Pos > l.claimed {
			l.next = min(l.next, m.Pos)
		}
	}
	s.calledBack(transitions, result.Moved)
	s.kicks.claim.now()
	s.kicks.release.now() // of the outlets that wait for the database
	if s.stopping.Load() {
		s.kicks.own.now()
	}
}

// calledBack has the slots claimed in which tasks stand now that were called back: behind what is claimed, though they should have gone
// already. Their gates learn which of them come. inFlight.mu is held.
func (s *settler) calledBack(transitions []transition, moved []store.Place) {
	inLine := map[int64]bool{}
	for _, m := range moved {
		inLine[m.Seq] = !task.IsHeld(m.Pos)
	}
	until := time.Now().Add(recallWait)
	for _, e := range transitions {
		if l := s.flight.slots[e.Slot]; e.Recall && l != nil {
			l.urgent = min(l.urgent, e.Pos)
		}
		if e.gate != nil {
			e.gate.coming.settled(e.Seq, inLine[e.Seq], until)
		}
	}
}

// afterSettle follows up on what is durable now: the index lets go of what is settled and learns of what moved; then the
// events are told.
func (s *settler) afterSettle(ctx context.Context, done []store.Done, result store.Settled) {
	trim := make([]index.SlotPos, len(done))
	for i, c := range done {
		trim[i] = index.SlotPos{Slot: c.Slot, Pos: c.To}
	}
	horizon := s.clock.Millis() + s.cfg.Window.Milliseconds()
	var add []index.Entry
	for _, m := range result.Moved {
		if m.Pos <= horizon {
			add = append(add, m.Place)
		}
	}
	s.indexer.update(ctx, trim, add)
	s.announcer.results.Stored(result.Events)
}
