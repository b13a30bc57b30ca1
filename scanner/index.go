package scanner

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
)

// near is how far ahead of its due time a task wakes its dispatcher. Dispatchers look at the database every second
// themselves, so only what comes sooner needs to be told.
const near = 3 * time.Second

// applied passes on what a transaction has done: first the index and the dispatchers, then whoever listens to results.
func (s *Scanner) applied(done store.Applied) {
	if len(done.Added)+len(done.Removed) > 0 {
		select {
		case s.indexing <- done:
		default: // an index that does not answer must not hold up what is stored
			s.metrics.indexDropped.Add(float64(len(done.Added) + len(done.Removed)))
		}
	}
	s.results.Stored(done.Events)
}

// feedIndex keeps the index up to date. The index is a hint: while it is away its updates are dropped, dispatchers go by
// the database, and the slots' owners mend it afterwards.
func (s *Scanner) feedIndex(ctx context.Context) {
	var awayUntil time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case done := <-s.indexing:
			if time.Now().Before(awayUntil) {
				s.metrics.indexDropped.Add(float64(len(done.Added) + len(done.Removed)))
				continue
			}
			if err := s.updateIndex(ctx, done); err != nil && ctx.Err() == nil {
				awayUntil = time.Now().Add(time.Second)
				s.metrics.indexDropped.Add(float64(len(done.Added) + len(done.Removed)))
				s.log.Warn("updating the index failed", zap.Error(err))
			}
		}
	}
}

func (s *Scanner) updateIndex(ctx context.Context, done store.Applied) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	now := s.clock.Millis()
	wake := map[int]int64{}
	add := make([]index.Entry, 0, len(done.Added))
	for _, p := range done.Added {
		if p.Pos <= now+s.cfg.Window.Milliseconds() {
			add = append(add, index.Entry{Slot: p.Slot, Pos: p.Pos, Seq: uint64(p.Seq)})
		}
		if p.Due <= now+near.Milliseconds() {
			if at, ok := wake[p.Slot]; !ok || p.Due < at {
				wake[p.Slot] = p.Due
			}
		}
	}
	// The wake goes first: it is what a task due in this moment waits for.
	if len(wake) > 0 {
		places := make([]index.SlotPos, 0, len(wake))
		for slot, due := range wake {
			places = append(places, index.SlotPos{Slot: slot, Pos: due})
		}
		if err := s.index.Wake(ctx, places); err != nil {
			return err
		}
	}
	remove := make([]index.Entry, 0, len(done.Removed))
	for _, p := range done.Removed {
		remove = append(remove, index.Entry{Slot: p.Slot, Pos: p.Pos, Seq: uint64(p.Seq)})
	}
	if len(remove) > 0 { // before add: a fired task is removed from and added to the same slot under one seq
		if err := faultpoint.At(faultpoint.ScannerRemoving); err != nil {
			return err
		}
		if err := s.index.Remove(ctx, remove); err != nil {
			return err
		}
	}
	if len(add) == 0 {
		return nil
	}
	return s.index.Add(ctx, add)
}
