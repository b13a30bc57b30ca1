package dispatcher

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// A task that a policy keeps from being released is held: it stands in its slot, but at a place beyond every claim. It is moved there
// once, when it falls due, and called back once, when it may go. In between it is a pending task like any other, and costs nothing.

const (
	// heldEvery is the least pause between two rounds of moving tasks.
	heldEvery = 20 * time.Millisecond
	// roundEvery is the longest pause.
	roundEvery = 250 * time.Millisecond
	// lookEvery is how often a target's held places are looked at when no held task of it is known.
	lookEvery = 30 * time.Second
	// heldPage is how many held tasks are read at a time, and how many claimed ones are judged.
	heldPage = 1000
	// gatesAtOnce is how many gates are looked behind in one round, so that no target waits long for the others; idleAtOnce, how
	// many of them may be gates behind which nothing is known to be.
	gatesAtOnce = 50
	idleAtOnce  = 5
	// leavingMost bounds the tasks that are on their way out of their places while others are sent after them.
	leavingMost = 2000
)

// hold moves a task to a held place of its slot. inFlight.mu is held.
func (f *policies) hold(g *gate, t *claimedTask) {
	state := task.StateLine
	if t.maybeSent() {
		state = task.StateRetry
	}
	f.leaveHeld(g, t, state, t.attempt)
}

// leaveHeld is hold for a task whose body may not be known. inFlight.mu is held.
func (f *policies) leaveHeld(g *gate, t *claimedTask, state task.State, attempt int) {
	f.metrics.held.Inc()
	g.behind = true
	g.coming.arrives(t.seq)
	g.holding = append(g.holding, t)
	g.held++
	delete(t.slot.parked, t.seq)
	f.flight.leave(t, transition{Transition: store.Transition{State: state, Pos: task.Held(t.at), Attempt: attempt, Lane: t.lane}})
	f.kick.now()
}

// move takes tasks to their held places and back.
func (f *policies) move(ctx context.Context) {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	for failures := 0; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.kick:
		}
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		err := f.round(bound)
		cancel()
		if err != nil {
			failures++
			if ctx.Err() == nil {
				f.metrics.retries.Inc()
				f.log.Warn("moving tasks of targets with a policy failed, trying again", zap.Error(err))
			}
			sleep(ctx, pauseAfter(failures))
			f.kick.now()
			continue
		}
		failures = 0
		sleep(ctx, heldEvery)
	}
}

func (f *policies) round(ctx context.Context) error {
	if err := f.judge(ctx); err != nil {
		return err
	}
	for _, g := range f.restless() {
		if err := f.callBack(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// judge looks at tasks that are claimed and whose lane is a gate's, without reading their bodies: they are held, or go on their
// way if they are another target's. All gates share a page, so that many of them cost one reading.
func (f *policies) judge(ctx context.Context) error {
	batch := f.takeUnread()
	if len(batch) == 0 {
		return nil
	}
	var seqs []int64
	for _, part := range batch {
		for _, t := range part.tasks {
			seqs = append(seqs, t.seq)
		}
	}
	heads, err := f.store.Heads(ctx, seqs)
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	if err != nil {
		return err
	}
	bySeq := make(map[int64]store.Head, len(heads))
	for _, h := range heads {
		bySeq[h.Seq] = h
	}
	var on []*claimedTask
	for _, part := range batch {
		g := part.gate
		if g.unread = g.unread[len(part.tasks):]; len(g.unread) == 0 {
			g.unread = nil
		} else {
			f.kick.now()
		}
		for _, t := range part.tasks {
			if h, ok := bySeq[t.seq]; !t.slot.abandoned && !f.holdUnread(t, h, ok) {
				t.judged = true
				on = append(on, t)
			}
		}
	}
	if len(on) > 0 {
		f.flight.backlog.push(on)
		f.kicks.fetch.now()
	}
	return nil
}

// holdUnread holds a task of which the database says h, if it is to be held. inFlight.mu is held.
func (f *policies) holdUnread(t *claimedTask, h store.Head, known bool) bool {
	if !known || h.Slot != t.slot.number || h.Pos != t.pos || h.State > task.StateRetry {
		return false
	}
	g := f.gates[h.Topic]
	if g == nil || !g.Paused && (!g.behind || g.coming.has(t.seq)) {
		return false
	}
	if t.at = h.Due; h.Attempt > 0 {
		t.at = t.pos
		if r := g.coming.of(t, h.Attempt); r != nil {
			t.at = min(t.at, r.at)
		}
	}
	f.leaveHeld(g, t, task.StateLine, h.Attempt) // it stays what it is
	return true
}

// undecided are tasks of one gate that are to be judged.
type undecided struct {
	gate  *gate
	tasks []*claimedTask
}

// takeUnread returns the first tasks of each gate that are to be judged, a page in all; only judge removes them.
func (f *policies) takeUnread() (out []undecided) {
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	for _, g := range f.gates {
		if len(g.unread) > 0 {
			out = append(out, undecided{gate: g})
		}
	}
	left := min(heldPage, leavingMost-f.flight.inbox.leavingTasks())
	slices.SortFunc(out, func(a, b undecided) int { return len(a.gate.unread) - len(b.gate.unread) })
	for i := range out { // the shortest first: what they leave of their share is the others'
		all := out[i].gate.unread
		n := min(len(all), max(left, 0)/(len(out)-i))
		out[i].tasks = slices.Clone(all[:n])
		left -= n
	}
	return slices.DeleteFunc(out, func(u undecided) bool { return len(u.tasks) == 0 })
}

// restless takes back what has waited for long, and returns the gates that may let more through than is at them or on its way.
func (f *policies) restless() (out []*gate) {
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	oldest, now := f.clock.Millis()-gateWait.Milliseconds(), time.Now()
	if f.stopping.Load() {
		oldest = never
	}
	here := 0 // at all gates together, or on their way
	for _, g := range f.gates {
		for _, t := range g.takeBack(oldest) {
			f.hold(g, t)
		}
		g.forgetHeld()
		g.coming.first(now)
		here += len(g.waiting) + g.coming.count()
	}
	if f.stopping.Load() || !f.claims() { // what is called back would be given up on its way, and then more called back
		return nil
	}
	for _, g := range f.gates {
		if !g.Paused && (g.behind || now.Sub(g.looked) >= lookEvery) && here < max(f.cfg.StageTasks/4, 1) && g.wants(now) > 0 {
			out = append(out, g)
		}
	}
	return f.fewest(out)
}

// fewest leaves the gates of one round, those first that were looked behind longest ago: each has its turn.
func (f *policies) fewest(all []*gate) (out []*gate) {
	slices.SortFunc(all, func(a, b *gate) int { return a.looked.Compare(b.looked) })
	idle := 0
	for _, g := range all {
		if !g.behind {
			if idle++; idle > idleAtOnce {
				continue
			}
		}
		if len(out) < gatesAtOnce {
			out = append(out, g)
		}
	}
	if len(out) < len(all) {
		f.kick.now()
	}
	return out
}

// wants is how many more tasks may be called back now.
func (g *gate) wants(now time.Time) int { return g.ahead(now) - len(g.waiting) - g.coming.count() }

// callBack calls back the next tasks of a target that were held.
func (f *policies) callBack(ctx context.Context, g *gate) error {
	f.flight.mu.Lock()
	earliest := g.earliest()
	topic, after, held, arrived := g.Topic, g.after, g.held, f.arrived
	n := min(max(2*g.wants(time.Now()), 100), heldPage)
	f.flight.mu.Unlock()

	page, err := f.store.HeldTasks(ctx, topic, after, n)
	if err != nil {
		return err
	}
	f.flight.mu.Lock()
	defer f.flight.mu.Unlock()
	now := time.Now()
	if g.looked = now; g.Paused || g.after != after || f.arrived != arrived {
		return nil // something was held before that place meanwhile, or a slot came
	}
	var back []transition
	more := len(page) == n
	for want := g.wants(now); len(page) > 0 && want > len(back); page = page[1:] {
		h := page[0]
		if task.HeldSince(h.Pos) > earliest {
			f.kick.now()
			return f.recall(back)
		}
		g.after = h.HeldPlace
		l := f.flight.slots[h.Slot]
		if h.Topic != g.Topic || l == nil {
			continue
		}
		g.found, g.behind = true, true
		if g.coming.has(h.Seq) || !l.leaving.IsZero() {
			continue
		}
		at := task.HeldSince(h.Pos)
		g.coming.add(&recalled{seq: h.Seq, at: at, attempt: h.Attempt, slot: l, until: now.Add(recallQueue)})
		back = append(back, transition{task: &claimedTask{slot: l, seq: h.Seq, lane: h.Lane}, gate: g,
			Transition: store.Transition{Seq: h.Seq, Slot: l.number, Epoch: l.epoch, Recall: true, From: h.Pos, Pos: at, Attempt: h.Attempt, Lane: h.Lane}})
	}
	switch {
	case more || len(back) > 0:
		f.kick.now()
	case len(page) == 0: // that was the end
		if !g.found && earliest == never && g.held == held {
			g.behind = false
		}
		g.after, g.found = store.HeldPlace{}, false
	}
	return f.recall(back)
}

// recall hands tasks that are called back to the settlement. inFlight.mu is held.
func (f *policies) recall(back []transition) error {
	if len(back) > 0 {
		f.metrics.recalled.Add(float64(len(back)))
		f.flight.inbox.recall(back)
		f.kicks.settle.now()
	}
	return nil
}
