package scanner

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/defaults"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
)

// ability is whether a scanner can store its records, as the group's other members hear it.
type ability int

const (
	works   ability = iota
	rests           // it works, and the group took its partitions not long ago because it had failed
	falters         // it fails, and has not done so for long
	fails
)

func (a ability) String() string { return [...]string{"works", "rests", "falters", "fails"}[a] }

// health is whether this process can store its records: the database answers, and takes writes. The
// group hears of it with each join (see balancer). So after a change, this process has the group
// join again.
//
// The members notice at different moments that a database is away for all. So a failing process
// waits more than twice that time before the group joins again. By then no member claims to work,
// and nothing moves. A member that was asked meanwhile announces when it works again: another one
// may fail by itself, and keeps its partitions until then.
type health struct {
	store    *store.Store
	standing *standing
	rejoin   func()        // has the group join again
	after    time.Duration // how long it has to work until it says so; to fail: twice as long
	log      *zap.Logger

	mu    sync.Mutex
	err   error     // why it fails; nil: it works
	since time.Time // it has failed, or worked
	told  ability   // what the group was told at the last join
	until time.Time // before then it rests
	back  time.Time // when the group was last told that it works again
	rests int       // how many it has had in a row
}

func newHealth(st *store.Store, standing *standing, log *zap.Logger) *health {
	return &health{store: st, standing: standing, after: defaults.FailingAfter, log: log, since: time.Now()}
}

const (
	// pingPatience bounds the wait for the database. Together with the second between two looks, it
	// is less than half of the time to fail.
	pingPatience = 3 * time.Second
	// longestRest limits the pause of a process that fails again after each return.
	longestRest = 5 * time.Minute
	// rested is how long a process must work for its next pause to be the shortest again.
	rested = 10 * time.Minute
)

func (h *health) run(ctx context.Context) { loop.Every(ctx, h.after/5, h.look) }

func (h *health) look(ctx context.Context) {
	bound, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	err := errors.Join(h.store.Ping(bound), h.standing.failing())
	if ctx.Err() == nil && h.report(err) {
		h.rejoin()
	}
}

// report notes why this process fails; nil: it works. True: the group is to join again.
func (h *health) report(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if (err == nil) != (h.err == nil) {
		h.since = time.Now()
	}
	h.err = err
	switch h.ability() {
	case fails:
		return h.told != fails
	case works: // for a while, in which the others notice too that the database is back
		return h.told != works && time.Since(h.since) >= h.after
	}
	return false
}

// h.mu is held.
func (h *health) ability() ability {
	resting := time.Now().Before(h.until)
	switch {
	case h.err != nil && (resting || time.Since(h.since) >= 2*h.after):
		return fails
	case h.err != nil:
		return falters
	case resting:
		return rests
	}
	return works
}

func (h *health) join() ability {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.ability()
	if now != h.told {
		h.log.Info("the other scanners are told whether this one can store what it reads", zap.Stringer("scanner", now), zap.Error(h.err))
		if now == works {
			h.back = time.Now()
		}
	}
	h.told = now
	return now
}

// revoked is called when the group has taken partitions. A failing process then rests, longer each
// time: partitions that go to and fro cost more than an idle scanner.
func (h *health) revoked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told != fails {
		return
	}
	if h.rests++; time.Since(h.back) >= rested {
		h.rests = 1
	}
	h.until = time.Now().Add(loop.Pause(h.rests, 2*h.after, longestRest))
}
