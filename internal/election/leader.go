package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// joinDelay delays a distribution needed by new members only: with a common start, slots then
	// move once. A departure is handled at once, because nobody serves the slots.
	joinDelay       = 200 * time.Millisecond
	databaseTimeout = 5 * time.Second
	// epochPause is the pause before asking again after an epoch not above the published one.
	epochPause = 10 * time.Millisecond
)

// leader computes and publishes the distribution while the term's candidate is the oldest, on the
// term's goroutine. Only queries to the database run on their own: a slow database must not cost
// the member's trust.
type leader struct {
	t       *term
	slots   int       // the database's last answer; 0: not known yet
	needs   []string  // what is required, by the same answer
	asked   time.Time // when it was asked
	epoch   int64     // allocated and not used yet; 0: none
	life    string    // of the database, as read last
	asking  bool
	resume  time.Time // no query before this time
	answers chan answer
	joins   time.Time // since when new members wait; zero: none waits
}

type answer struct {
	slots int
	needs []string
	epoch int64
	life  string // of the database when it was asked
	err   error
}

func newLeader(t *term) *leader { return &leader{t: t, answers: make(chan answer, 1)} }

// act publishes a new distribution if the published one does not fit the living members and the
// number of slots. The result is after which time to call act again at the latest.
func (l *leader) act(s snapshot) (time.Duration, error) {
	if l.life != s.life { // it may have forgotten that it allocated this epoch
		l.life, l.epoch = s.life, 0
	}
	l.collect()
	if time.Since(l.asked) >= l.t.window {
		l.ask(false)
	}
	rest := max(s.hold, l.t.heir.returning(s.candidates))
	s.candidates = ableOf(s.candidates, l.needs)
	alive := memberIDs(s.candidates)
	if l.slots <= 0 || !s.stale && l.fits(s.sharing, alive, instancesOf(alive, s.candidates)) {
		l.joins = time.Time{}
		return l.t.window, nil
	}
	if rest = max(rest, l.holdBack(s.sharing, alive)); rest > 0 {
		return rest, nil
	}
	if floor := max(s.sharing.Epoch, l.t.m.view.sharing().Epoch); l.epoch <= floor {
		l.refuse(floor)
		return l.ask(true), nil
	}
	return l.t.window, l.publish(s, alive)
}

func (l *leader) fits(s sharing, alive, instances []string) bool {
	return s.Epoch > 0 && len(s.Owners) == l.slots && slices.Equal(s.Members, alive) && slices.Equal(s.Instances, instances)
}

// holdBack returns how much longer new members have to wait. Nobody waits if a member has left or
// the number of slots has changed.
func (l *leader) holdBack(s sharing, alive []string) time.Duration {
	left := slices.ContainsFunc(s.Members, func(id string) bool { return !slices.Contains(alive, id) })
	if left || (s.Epoch > 0 && len(s.Owners) != l.slots) {
		return 0
	}
	if l.joins.IsZero() {
		l.joins = time.Now()
	}
	return joinDelay - time.Since(l.joins)
}

// refuse drops an epoch not above the published one. Either another leader was faster, or the
// database was restored to an older state. Asking again catches up.
func (l *leader) refuse(floor int64) {
	if l.epoch > 0 {
		l.t.log.Warn("epoch does not rise, allocating another", zap.Int64("epoch", l.epoch), zap.Int64("published", floor))
		l.resume = time.Now().Add(epochPause)
	}
	l.epoch = 0
}

// publish writes the new distribution if our candidate still exists and nobody has written since s
// was read. The ground checks both in one step, so a paused leader cannot overwrite anything.
func (l *leader) publish(s snapshot, alive []string) error {
	prev := s.sharing
	if known := l.t.m.view.sharing(); known.Epoch > prev.Epoch {
		prev = known // the ground lost its data: still move as few slots as possible
	}
	next := newSharing(l.epoch, alive, assign(prev.owners(), alive, l.slots))
	next.Instances = instancesOf(alive, s.candidates)
	next.Life = s.life
	l.epoch, l.joins = 0, time.Time{}
	err := l.t.seat.publish(s, next)
	signal(l.t.wake)
	if errors.Is(err, errOutrun) {
		l.t.log.Warn("another leader has published first", zap.Int64("epoch", next.Epoch))
		return nil
	}
	if err == nil {
		l.t.log.Info("published a slot assignment", zap.Int64("epoch", next.Epoch), zap.Int("members", len(alive)), zap.Int("slots", l.slots), zap.Int("moved", moved(prev, next)))
	}
	return err
}

// moved counts the slots with a new owner, including slots without one before.
func moved(prev, next sharing) int {
	before, n := prev.owners(), 0
	for slot, owner := range next.owners() {
		if before[slot] != owner {
			n++
		}
	}
	return n
}

// ask reads the number of slots and, if requested, allocates an epoch, unless a query is running or
// it is too early for another. The result is after which time to try again at the latest. An answer
// wakes the term by itself.
func (l *leader) ask(withEpoch bool) time.Duration {
	if l.asking {
		return l.t.window
	}
	if rest := time.Until(l.resume); rest > 0 {
		return rest
	}
	l.asking, l.asked = true, time.Now()
	life := l.life
	l.t.calls.Go(func() {
		ctx, cancel := context.WithTimeout(l.t.ctx, databaseTimeout)
		defer cancel()
		a := l.consult(ctx, withEpoch)
		a.life = life
		l.answers <- a
		signal(l.t.wake)
	})
	return l.t.window
}

func (l *leader) consult(ctx context.Context, withEpoch bool) (a answer) {
	if a.slots, a.err = l.t.m.cfg.Slots(ctx); a.err != nil {
		a.err = fmt.Errorf("reading the number of slots: %w", a.err)
		return a
	}
	if a.needs, a.err = l.t.m.cfg.Required(ctx); a.err != nil { // after the number: a change notes both at once
		return a
	}
	if withEpoch {
		if a.epoch, a.err = l.t.m.epochs.NextEpoch(ctx); a.err != nil {
			a.err = fmt.Errorf("taking an epoch: %w", a.err)
		}
	}
	return a
}

// collect takes the database's answer, if any. After a failure the next query follows a round
// later.
func (l *leader) collect() {
	select {
	case a := <-l.answers:
		l.asking = false
		if a.err != nil {
			l.t.log.Error("the database does not answer the leader", zap.Error(a.err))
			l.resume = time.Now().Add(l.t.pace())
			return
		}
		if l.slots, l.needs = a.slots, a.needs; a.life == l.life {
			l.epoch = max(l.epoch, a.epoch)
		}
	default:
	}
}
