package election

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
)

var errFailing = errors.New("this process cannot work, and others can")

// health is whether this process can do the work of an owner, as it reports.
type health struct {
	mu    sync.Mutex
	err   error     // nil: it can
	since time.Time // of the first report of a failure without one of success since
}

func (h *health) report(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && h.err == nil {
		h.since = time.Now()
	}
	h.err = err
}

// failing returns why the process cannot work, once that has been so for so long.
func (h *health) failing(after time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil || time.Since(h.since) < after {
		return nil
	}
	return h.err
}

// checkHealth says in our candidate whether this process works, on a change only. It fails with
// errFailing once this process has not worked while another one has.
//
// A server that is away for everybody is noticed by members at different moments. So a member that
// fails does not leave before it has seen another one well for twice FailingAfter.
func (t *term) checkHealth(candidates []candidate) error {
	after := t.z.cfg.FailingAfter
	why := t.z.health.failing(after)
	if failing := why != nil; failing != t.failing {
		data := t.z.memberData()
		data.Failing = failing
		if err := t.rewrite(data); err != nil {
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

func (t *term) rewrite(data memberData) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = call(t, "saying whether this process works", func(c *zk.Conn) (*zk.Stat, error) {
		return c.Set(t.z.paths.members+"/"+t.own, raw, -1)
	})
	return t.missing(err)
}

// anotherWorks reads the other members' candidates anew. A member of the version before does not say
// whether it fails, and counts as one that works.
func (t *term) anotherWorks(candidates []candidate) (bool, error) {
	for _, c := range candidates {
		if c.ID == t.z.cfg.MemberID {
			continue
		}
		now, there, err := t.readCandidate(c.name)
		if err != nil {
			return false, err
		}
		if there && !now.Failing {
			return true, nil
		}
	}
	return false, nil
}

const (
	// longestRest limits the pause of a member that has left because it could not work.
	longestRest = 5 * time.Minute
	// rested is how long a member has worked when its next pause is the shortest again.
	rested = 10 * time.Minute
)

// rest keeps a member that has left out of the election until it works again, and for a pause that
// grows each time: slots that go to and fro cost more than a member that is idle. It ends at once
// when no other member works any longer: somebody must own the slots.
func (z *ZooKeeper) rest(ctx context.Context) {
	if time.Since(z.back) >= rested {
		z.pause = 2 * z.cfg.FailingAfter
	}
	over := time.Now().Add(z.pause)
	for ctx.Err() == nil && (time.Now().Before(over) || z.health.failing(0) != nil) && z.othersWork(ctx) {
		sleep(ctx, z.cfg.FailingAfter)
	}
	z.pause, z.back = min(2*z.pause, longestRest), time.Now()
}

// othersWork asks the ensemble whether another member works. One that does not answer cannot be joined
// either.
func (z *ZooKeeper) othersWork(ctx context.Context) bool {
	bound, cancel := context.WithTimeout(ctx, z.cfg.FailingAfter)
	defer cancel()
	members, err := ask(bound, z.cfg, z.log, func(conn *zk.Conn, p paths) ([]memberData, error) { return readMemberData(conn, p.members) })
	return err != nil || slices.ContainsFunc(members, func(m memberData) bool { return m.ID != z.cfg.MemberID && !m.Failing })
}
