package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
)

const (
	// joinDelay holds back a sharing that only newcomers ask for: members started together then move slots once. A
	// departure is answered at once, since its slots are served by nobody.
	joinDelay = 200 * time.Millisecond
	// databaseTimeout bounds one question to the database.
	databaseTimeout = 5 * time.Second
	// epochPause is the pause before asking again after an epoch that does not rise.
	epochPause = 10 * time.Millisecond
)

// leader computes and publishes the sharing for as long as its term's candidate is the oldest. It lives on the term's
// goroutine; only questions to the database run beside it, because a slow database must not cost the member its trust.
type leader struct {
	t       *term
	slots   int       // as the database said last; 0: not known yet
	asked   time.Time // when it was asked
	epoch   int64     // taken and not used yet; 0: none
	asking  bool
	resume  time.Time // not to be asked again before this
	answers chan answer
	joins   time.Time // since when newcomers wait; zero: none do
}

type answer struct {
	slots int
	epoch int64
	err   error
}

func newLeader(t *term) *leader { return &leader{t: t, answers: make(chan answer, 1)} }

// act publishes a new sharing if the published one does not fit who is alive and how many slots there are. It returns
// when it wants to be called again at the latest.
func (l *leader) act(s snapshot) (time.Duration, error) {
	l.collect()
	if time.Since(l.asked) >= l.t.window {
		l.ask(false)
	}
	alive := memberIDs(s.candidates)
	if l.slots <= 0 || l.fits(s.sharing, alive, instancesOf(alive, s.candidates)) {
		l.joins = time.Time{}
		return l.t.window, nil
	}
	if rest := l.holdBack(s.sharing, alive); rest > 0 {
		return rest, nil
	}
	if floor := max(s.sharing.Epoch, l.t.z.view.sharing().Epoch); l.epoch <= floor {
		l.refuse(floor)
		return l.ask(true), nil
	}
	return l.t.window, l.publish(s, alive)
}

func (l *leader) fits(s sharing, alive, instances []string) bool {
	return s.Epoch > 0 && len(s.Owners) == l.slots && slices.Equal(s.Members, alive) && slices.Equal(s.Instances, instances)
}

// holdBack returns how long newcomers have to wait still. Nobody waits if a member has left or the slots have changed.
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

// refuse drops an epoch that does not rise above the published one. That happens when another leader was faster, or when
// the database was restored to an older state; asking again catches up.
func (l *leader) refuse(floor int64) {
	if l.epoch > 0 {
		l.t.log.Warn("epoch does not rise, taking another", zap.Int64("epoch", l.epoch), zap.Int64("published", floor))
		l.resume = time.Now().Add(epochPause)
	}
	l.epoch = 0
}

// publish writes the new sharing if our candidate still exists and nobody has written since s was read, both judged by
// the ensemble in one step. So a leader that was paused can overwrite nothing.
func (l *leader) publish(s snapshot, alive []string) error {
	prev := s.sharing
	if prev.Epoch == 0 {
		prev = l.t.z.view.sharing() // the ensemble was wiped: still move as little as possible
	}
	next := newSharing(l.epoch, alive, assign(prev.owners(), alive, l.slots))
	next.Instances = instancesOf(alive, s.candidates)
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encoding the assignment: %w", err)
	}
	l.epoch, l.joins = 0, time.Time{}
	_, err = call(l.t, "publishing the assignment", func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.CheckVersionRequest{Path: l.t.z.paths.members + "/" + l.t.own, Version: -1},
			&zk.SetDataRequest{Path: l.t.z.paths.assignment, Data: data, Version: s.version})
	})
	signal(l.t.wake)
	if errors.Is(err, zk.ErrBadVersion) {
		l.t.log.Warn("another leader has published first", zap.Int64("epoch", next.Epoch))
		return nil
	}
	if err == nil {
		l.t.log.Info("published a slot assignment", zap.Int64("epoch", next.Epoch), zap.Int("members", len(alive)), zap.Int("slots", l.slots), zap.Int("moved", moved(prev, next)))
	}
	return l.t.missing(err)
}

// moved counts the slots that change hands, those without an owner before included.
func moved(prev, next sharing) int {
	before, n := prev.owners(), 0
	for slot, owner := range next.owners() {
		if before[slot] != owner {
			n++
		}
	}
	return n
}

// ask reads the slot count, and takes an epoch if wanted, unless a question is under way or it is too early for another.
// It returns when to try again at the latest; an answer wakes the term by itself.
func (l *leader) ask(withEpoch bool) time.Duration {
	if l.asking {
		return l.t.window
	}
	if rest := time.Until(l.resume); rest > 0 {
		return rest
	}
	l.asking, l.asked = true, time.Now()
	l.t.calls.Go(func() {
		ctx, cancel := context.WithTimeout(l.t.ctx, databaseTimeout)
		defer cancel()
		l.answers <- l.consult(ctx, withEpoch)
		signal(l.t.wake)
	})
	return l.t.window
}

func (l *leader) consult(ctx context.Context, withEpoch bool) (a answer) {
	if a.slots, a.err = l.t.z.cfg.Slots(ctx); a.err != nil {
		a.err = fmt.Errorf("reading the number of slots: %w", a.err)
		return a
	}
	if withEpoch {
		if a.epoch, a.err = l.t.z.epochs.NextEpoch(ctx); a.err != nil {
			a.err = fmt.Errorf("taking an epoch: %w", a.err)
		}
	}
	return a
}

// collect takes the answer of the database if there is one. A failure leaves everything as it was; the next question
// follows a round later.
func (l *leader) collect() {
	select {
	case a := <-l.answers:
		l.asking = false
		if a.err != nil {
			l.t.log.Error("the database does not answer the leader", zap.Error(a.err))
			l.resume = time.Now().Add(l.t.pace())
			return
		}
		l.slots, l.epoch = a.slots, max(l.epoch, a.epoch)
	default:
	}
}
