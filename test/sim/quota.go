package sim

import (
	"math/rand/v2"
	"strings"

	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// quotaSeeds is the first seed whose intake may have quotas: what earlier seeds draw stays as it is.
const quotaSeeds = 7 << 49

// limit draws the quotas of the intake. Those at which requests wait are large: judges of lateness do not know of that wait, and tasks that
// are due far behind the end would hold the others up for as long. Judges of timers and callbacks do not know of requests that are
// rejected, and a database that is set back forgets rejections.
func (p *plan) limit() {
	r := rand.New(rand.NewPCG(p.seed, 311))
	if p.forgets || r.IntN(4) == 0 { // thousands of cancels are too much for any
		return
	}
	q := scanner.Quota{Reject: p.timers == 0 && p.callbacks == 0 && p.setback.lost == 0 && r.IntN(4) > 0}
	times := 200
	if q.Reject {
		times = pick(r, 1, 5, 20)
	}
	if kind := r.IntN(4); kind == 0 {
		q.RequestsPerSecond = times * p.rate
	} else {
		q.PendingTasks = 5 * times * p.rate
		if kind == 1 {
			q.PendingBytes = int64(times) << 14
		}
	}
	p.quota = q
	p.scanner.Quotas = map[string]scanner.Quota{schemas.TopicIntake: q}
}

// markRejected has requests that were rejected at a quota judged as those that cannot be taken: each was answered, and nothing of it is
// delivered.
func (w *world) markRejected(h *history.History) {
	byPlace := map[string]*history.Op{}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Accepted != 0 {
			byPlace[schemas.DefaultID(schemas.TopicIntake, o.Partition, o.Offset)] = o
		}
	}
	for _, a := range w.seen.all() {
		if a.r.Topic != schemas.TopicResults {
			continue
		}
		e, err := schemas.DecodeEvent(a.r)
		if err != nil || e.State != schemas.StateRejected || !strings.HasPrefix(e.Reason, "quota ") || isTenants(e.ID) {
			continue
		}
		if o := byPlace[e.Request]; o != nil {
			o.Invalid = true
		} else {
			w.find("I1", "%s/%s was rejected at a quota, and its request %q is nobody's", e.Topic, e.ID, e.Request)
		}
	}
}
