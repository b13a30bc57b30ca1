package flight

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// Gate lets the tasks of one target with a policy through, by the instants of their release. Tasks
// that cannot pass in a moment are held in the slots, where callers can cancel them and they cost
// nothing; see held.go.
type Gate struct {
	admin.Policy
	pace    *rate.Limiter // this dispatcher's share of the rate; nil: no limit
	room    int           // its share of what may be in flight; 0: no limit
	most    int           // that may be here or on their way
	sending int           // records with a producer
	passed  share.Recent  // through, in the latest spans of gateAhead

	waiting dueHeap        // due, with their bodies, until they may go
	coming  calledBack     // were held, and are not here yet
	unread  dueHeap        // claimed while nothing was let through; their bodies are not read
	judging []*Task        // the first of them, in order, until it is known whose they are
	holding []*Task        // on their way to be held
	behind  bool           // something is held, or may be: what comes new goes behind it
	after   line.HeldPlace // what stands up to here has been called back, or is not ours
	back    line.HeldPlace // likewise, of slots that stay and as far as callMost lets; a look that begins anew does not change it. Not behind: never
	found   bool           // something of ours, since after was at the beginning
	looked  time.Time      // at the held tasks
	skips   bool           // the latest look called nothing back, and there was more
}

const (
	// gateAhead is for how long ahead tasks are called back: the way from their held places to the
	// gate takes some 100 ms.
	gateAhead = 500 * time.Millisecond
	// gateTasks bounds the tasks at a gate or on their way to it: as many as move in gateAhead at
	// full speed.
	gateTasks = 3000
	// gateWait is for how long a task waits at the gate, out of reach of a cancel, before it is
	// held; see patience.
	gateWait = time.Second
	// recallWait is how long a task may be on its way after its recall is durable, before the later
	// ones go without it.
	recallWait = 5 * time.Second
	// recallQueue is how long a recall may take to be durable. After an outage, hundreds of
	// thousands of other tasks may be called back as well.
	recallQueue = time.Minute
	// paceBurst is for how long the pace is kept in store: the release of due tasks rests 2 ms, and
	// a busy machine longer.
	paceBurst = 50 * time.Millisecond
)

// newGate makes the gate of a target with tasks that may be held. A gate takes no more than a part
// of the room for staged tasks.
func newGate(topic string, stage int) *Gate {
	return &Gate{most: min(gateTasks, max(stage/8, 1)), Policy: admin.Policy{Topic: topic}, coming: calledBack{bySeq: map[int64]*recalled{}}, behind: true}
}

// nothingHeld notes that all tasks may come to the gate.
func (g *Gate) nothingHeld() { g.behind, g.back = false, line.HeldPlace{Pos: never} }

// set puts a policy in force, for this dispatcher's share.
func (g *Gate) set(p admin.Policy, part float64) {
	g.Policy, g.room = p, 0
	if p.MaxInFlight > 0 {
		g.room = share.Of(p.MaxInFlight, part)
	}
	if p.Rate == 0 {
		g.pace = nil
		return
	}
	mine := p.Rate * part
	limit, burst := rate.Limit(mine), max(int(mine*paceBurst.Seconds()), 1)
	if g.pace == nil {
		g.pace = rate.NewLimiter(limit, burst)
	} else if g.pace.Limit() != limit {
		g.pace.SetLimit(limit)
		g.pace.SetBurst(burst)
	}
}

// free says whether tasks may pass the gate by: there is no policy, and nothing waits, is held or
// is on its way.
func (g *Gate) free() bool {
	return g.Open() && !g.behind && len(g.waiting)+g.coming.count()+len(g.holding)+len(g.unread)+len(g.judging) == 0
}

func (g *Gate) full() bool { return g.room > 0 && g.sending >= g.room }

// ahead is how many tasks the gate lets through within gateAhead, about, and so how many may be
// here or on their way.
func (g *Gate) ahead(now time.Time) int {
	n := g.most
	if g.pace != nil {
		n = min(n, int(max(g.pace.TokensAt(now), 0)+float64(g.pace.Limit())*gateAhead.Seconds()))
	}
	if g.room > 0 {
		n = min(n, g.room+2*g.passed.Within(gateAhead, now)) // so many follow one another, as fast as Kafka answers
	}
	return n
}

// untilNext is how long until the gate lets the next task through, if nothing else happens; false:
// it lets none through for now. Where room for bodies is scarce, no task waits for one without a
// body.
func (g *Gate) untilNext(now time.Time, scarce bool) (time.Duration, bool) {
	if g.Paused || len(g.waiting) == 0 || g.full() || g.waitsForHeld() || !scarce && g.waitsForEarlier(now) {
		return 0, false
	}
	if g.pace == nil || g.waiting[0].passed {
		return 0, true
	}
	if lacks := 1 - g.pace.TokensAt(now); lacks > 0 && g.pace.Limit() > 0 {
		return time.Duration(lacks / float64(g.pace.Limit()) * float64(time.Second)), true
	}
	return 0, g.pace.Limit() > 0
}

// waitsForEarlier says whether an earlier task than the first one here is on its way.
func (g *Gate) waitsForEarlier(now time.Time) bool {
	first, ok := g.coming.first(now)
	if !ok {
		first = never
	}
	return len(g.waiting) > 0 && min(first, g.firstUnread()) < g.waiting[0].at
}

// waitsForHeld says whether a task may be held that comes before all tasks here.
func (g *Gate) waitsForHeld() bool {
	return len(g.waiting) > 0 && !g.calledBackTo(g.waiting[0])
}

// patience is for how long tasks wait here before they are held. To hold tasks that wait for
// earlier ones would only begin their way anew; but they take room for bodies.
func (g *Gate) patience(now time.Time, scarce bool) time.Duration {
	if !scarce && (g.waitsForHeld() || g.waitsForEarlier(now)) {
		return recallWait
	}
	return gateWait
}

// calledBackTo says whether all tasks held before a task were called back, as far as its slot has
// them.
func (g *Gate) calledBackTo(t *Task) bool {
	return (line.HeldPlace{Pos: task.Held(t.at), Seq: t.seq}).Compare(g.back) <= 0
}

// firstUnread is the instant of the first undecided task; never: there is none.
func (g *Gate) firstUnread() int64 {
	at := int64(never)
	if len(g.judging) > 0 {
		at = g.judging[0].at
	}
	if len(g.unread) > 0 {
		at = min(at, g.unread[0].at)
	}
	return at
}

// push keeps a task until it may go.
func (g *Gate) push(t *Task, now int64) {
	t.atGate = now
	g.waiting.push(t)
}

// next is the task that may go now; nil: none.
func (g *Gate) next(now time.Time, scarce bool) *Task {
	for len(g.waiting) > 0 && g.waiting[0].slot.abandoned {
		g.waiting.pop()
	}
	if wait, ok := g.untilNext(now, scarce); !ok || wait > 0 {
		return nil
	}
	if !g.waiting[0].passed && g.pace != nil && !g.pace.AllowN(now, 1) {
		return nil
	}
	t := g.waiting.pop()
	g.passed.One(gateAhead, now)
	t.passed = true
	return t
}

// takeBack removes some of the waiting tasks.
func (g *Gate) takeBack(goes func(*Task) bool) (out []*Task) {
	var stay dueHeap
	for _, t := range g.waiting {
		if goes(t) {
			out = append(out, t)
		} else {
			stay.push(t)
		}
	}
	g.waiting = stay
	return out
}

// forgetHeld forgets the tasks at their held places, to be looked for there: after may have passed
// them on their way. Each of them keeps its whole claim in memory.
func (g *Gate) forgetHeld() {
	g.holding = slices.DeleteFunc(g.holding, func(t *Task) bool {
		if t.status == left {
			if pos := task.Held(t.at); pos <= g.after.Pos {
				g.after = line.HeldPlace{Pos: pos - 1}
			}
			g.behind = true
		}
		return t.status == left || t.slot.abandoned
	})
}

// earliest is the instant of the first task on its way to be held: no later task is called back
// before it is there.
func (g *Gate) earliest() int64 {
	at := int64(never)
	for _, t := range g.holding {
		at = min(at, t.at)
	}
	return min(at, g.firstUnread())
}

// calledBack are tasks on their way from their held places to the gate.
type calledBack struct {
	order []*recalled // by the instant at which they should have been released; those that are here already are passed over
	bySeq map[int64]*recalled
}

type recalled struct {
	seq, at int64 // at: when it should have been released, Unix ms
	attempt int
	slot    *ownedSlot
	until   time.Time // then it is not waited for any more, for it was cancelled
}

func (c *calledBack) count() int { return len(c.bySeq) }

func (c *calledBack) has(seq int64) bool { _, ok := c.bySeq[seq]; return ok }

// comes says whether a task, found held in a slot, was called back from there. A task called back
// from another slot was moved meanwhile, and held once more.
func (c *calledBack) comes(seq int64, l *ownedSlot) bool { return c.has(seq) && c.bySeq[seq].slot == l }

func (c *calledBack) arrives(seq int64) { delete(c.bySeq, seq) }

// of is the recall of a claimed task after so many attempts. In another's hands the task may have
// been sent, or put off.
func (c *calledBack) of(t *Task, attempt int) *recalled {
	if r := c.bySeq[t.seq]; r != nil && r.slot == t.slot && r.attempt == attempt {
		return r
	}
	return nil
}

// settled notes that a task stands in the line, or does not come: it has ended, or others have gone
// on with it.
func (c *calledBack) settled(seq int64, comes bool, until time.Time) {
	if r := c.bySeq[seq]; r != nil && comes {
		r.until = until
	} else {
		delete(c.bySeq, seq)
	}
}

func (c *calledBack) add(r *recalled) {
	i, _ := slices.BinarySearchFunc(c.order, r, func(a, b *recalled) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
	c.order = slices.Insert(c.order, i, r)
	c.bySeq[r.seq] = r
}

// first is the instant of the first recalled task.
func (c *calledBack) first(now time.Time) (at int64, ok bool) {
	for ; len(c.order) > 0; c.order = c.order[1:] {
		r := c.order[0]
		if c.bySeq[r.seq] != r { // it is here, or was called back once more
			continue
		}
		// A leaving slot claims no more: its tasks do not come here.
		if now.Before(r.until) && r.slot.leaving.IsZero() && !r.slot.abandoned {
			return r.at, true
		}
		delete(c.bySeq, r.seq)
	}
	c.order = nil
	return 0, false
}
