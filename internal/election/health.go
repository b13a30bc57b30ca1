package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/loop"
)

var errFailing = errors.New("this process cannot work, and others can")

// health is whether this process can do the work of an owner, by its reports.
type health struct {
	mu    sync.Mutex
	err   error     // nil: it can
	since time.Time // of the first report of a failure without one of success since
}

// Report implements Source.
func (h *health) Report(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && h.err == nil {
		h.since = time.Now()
	}
	h.err = err
}

// failing returns why the process cannot work, once the state has lasted long enough.
func (h *health) failing(after time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil || time.Since(h.since) < after {
		return nil
	}
	return h.err
}

// checkHealth notes changes of this process's health in our candidate. errFailing follows once this
// process has not worked while another one has.
//
// Members notice a general outage of a server at different moments. So a failing member does not
// leave before another one has been well for twice FailingAfter.
func (t *term) checkHealth(candidates []candidate) error {
	after := t.m.cfg.FailingAfter
	why := t.m.health.failing(after)
	if failing := why != nil; failing != t.failing {
		data := t.m.memberData()
		data.Failing = failing
		if err := t.seat.say(data); err != nil {
			return err
		}
		t.failing = failing
		t.log.Info("the other members know whether this process works", zap.Bool("failing", failing), zap.Error(why))
	}
	if !t.failing {
		t.othersWork = time.Time{}
		return nil
	}
	works, err := t.anotherWorks(candidates)
	switch {
	case err != nil:
		return err
	case !works:
		t.othersWork = time.Time{}
	case t.othersWork.IsZero():
		t.othersWork = time.Now()
	case time.Since(t.othersWork) >= 2*after:
		return errors.Join(errFailing, why)
	}
	return nil
}

func (t *term) anotherWorks(candidates []candidate) (bool, error) {
	for _, c := range candidates {
		if c.ID == t.m.cfg.MemberID {
			continue
		}
		if fails, err := t.seat.fails(c); err != nil || !fails {
			return err == nil, err
		}
	}
	return false, nil
}

const (
	// longestRest limits the pause after leaving as failing.
	longestRest = 5 * time.Minute
	// rested is how long a member must work for the next pause to be the shortest again.
	rested = 10 * time.Minute
)

// rest keeps a failed member out of the election until it works again, and for a growing pause:
// slots on the move cost more than an idle member. rest ends at once when no other member works any
// longer: somebody must own the slots.
func (m *Member) rest(ctx context.Context) {
	if m.rests++; time.Since(m.back) >= rested {
		m.rests = 1
	}
	over := time.Now().Add(loop.Pause(m.rests, 2*m.cfg.FailingAfter, longestRest))
	for ctx.Err() == nil && (time.Now().Before(over) || m.health.failing(0) != nil) && m.ground.othersWork(ctx) {
		loop.Rest(ctx, m.cfg.FailingAfter)
	}
	m.back = time.Now()
}
