package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store"
)

const (
	// sweepEvery is how often the database itself is asked what comes next, whatever the index says: the second line.
	// The question costs one dive into an index for each slot.
	sweepEvery = time.Second
	// lead is how long before its due time a task that a wake told of is claimed: a claim and the fetch of a body take
	// a few milliseconds.
	lead = 25 * time.Millisecond
	// claimPause keeps a stream of tasks due at once from becoming a claim each.
	claimPause = 5 * time.Millisecond
	// overdue is how far a line may lie behind before it is claimed piece by piece.
	overdue = 2 * time.Second
)

// claimLoop claims each line in time for its next task: a look-ahead less half the usual one before it is due, a whole one at
// once.
func (d *Dispatcher) claimLoop(ctx context.Context) { d.claimRounds(ctx, d.index.Wakes(ctx)) }

func (d *Dispatcher) claimRounds(ctx context.Context, wakes <-chan []index.SlotPos) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	failures := 0
	for ctx.Err() == nil {
		// Whatever makes a line ready, the loop rests: it must not take a core if a claim does not help.
		rest := max(d.untilClaim(), claimPause)
		if faultpoint.Without(faultpoint.ClaimedAhead) {
			rest = d.untilClaim()
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case places, ok := <-wakes:
			if !ok {
				wakes = nil
			}
			d.noteWakes(places)
		case <-sweep.C:
			d.adjust(ctx)
			d.sweep(ctx)
		case <-d.sweepKick:
			d.sweep(ctx)
		case <-d.claimKick:
		case <-timer.C:
		}
		timer.Stop()
		if !d.trusted() || d.stopping.Load() {
			sleep(ctx, claimPause)
			continue
		}
		claimed, err := d.claim(ctx)
		switch {
		case errors.Is(err, store.ErrFenced):
			d.fenced(ctx)
			sleep(ctx, claimPause)
		case err != nil:
			failures++
			if ctx.Err() == nil {
				d.log.Warn("claiming failed, trying again", zap.Error(err))
			}
			sleep(ctx, pauseAfter(failures))
		case claimed:
			failures = 0
			sleep(ctx, claimPause)
		}
	}
}

// noteWakes notes what the wakes tell.
func (d *Dispatcher) noteWakes(places []index.SlotPos) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range places {
		if l := d.lines[p.Slot]; l != nil {
			l.urgent = min(l.urgent, p.Pos)
		}
	}
}

// sweep asks the database what comes next in every line.
func (d *Dispatcher) sweep(ctx context.Context) {
	d.mu.Lock()
	slots := make([]int, 0, len(d.lines))
	for slot := range d.lines {
		slots = append(slots, slot)
	}
	d.mu.Unlock()
	slices.Sort(slots)
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	next, err := d.store.Next(bound, slots)
	if err != nil {
		if ctx.Err() == nil {
			d.log.Warn("asking the database for the next tasks failed", zap.Error(err))
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range next {
		if l := d.lines[n.Slot]; l != nil && n.Pos > l.claimed {
			if n.Pos < l.next && n.Pos <= d.clock.Millis() {
				d.metrics.swept.Inc() // overdue, and nobody had told of it
			}
			l.next = min(l.next, n.Pos)
			// At the first place behind what is claimed stands what came when its own place was claimed already: it may be due.
			if n.Pos == l.claimed+1 {
				l.urgent = min(l.urgent, d.clock.Millis())
			}
		}
	}
}

// claimAt is when a line is to be claimed next.
func (d *Dispatcher) claimAt(l *ownedSlot) int64 {
	if !l.leaving.IsZero() || l.claiming {
		return never
	}
	at := int64(never)
	if l.next != never {
		at = l.next - d.ahead + d.cfg.LookAhead.Milliseconds()/2
	}
	if l.urgent != never {
		at = min(at, l.urgent-lead.Milliseconds())
	}
	return at
}

func (d *Dispatcher) untilClaim() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries >= d.maxEntries() {
		return sweepEvery // settling kicks
	}
	at := int64(never)
	for _, l := range d.lines {
		at = min(at, d.claimAt(l))
	}
	return time.Duration(min(max(at-d.clock.Millis(), 0), sweepEvery.Milliseconds())) * time.Millisecond
}

// maxEntries bounds the tasks in memory that have no body yet, at about 80 bytes each. One millisecond's tasks are
// claimed together, so a single claim may exceed it.
func (d *Dispatcher) maxEntries() int { return 30 * d.cfg.StageTasks }

// claim claims what is due to be claimed and answers whether there was anything.
func (d *Dispatcher) claim(ctx context.Context) (bool, error) {
	ready, room := d.beginClaim()
	if len(ready) == 0 {
		return false, nil
	}
	defer d.endClaim(ready)
	groups := map[claimGroup][]claimable{}
	for _, l := range ready {
		if l.behind { // an outage has passed: a bite at a time
			nth, more, err := d.nth(ctx, store.Range{Slot: l.number, From: l.claimed, To: l.to}, max(room/len(ready), 1000))
			if err != nil {
				return false, err
			}
			if more {
				l.to = nth
			}
		}
		g := claimGroup{l.epoch, l.to}
		groups[g] = append(groups[g], l)
	}
	for g, lines := range groups {
		if err := d.claimLines(ctx, lines, g); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (d *Dispatcher) nth(ctx context.Context, r store.Range, n int) (int64, bool, error) {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return d.store.Nth(bound, r, n)
}

// claimable is a line that is being claimed. Settling moves a line's next, so what is to be known of it is noted under the lock.
type claimable struct {
	*ownedSlot
	to     int64
	behind bool
}

type claimGroup struct{ epoch, to int64 }

// beginClaim decides which lines are claimed now, and how far: always further than they are. Until endClaim they are not
// given back, since what is decided here is done later, under no lock. room is how many tasks may still enter.
func (d *Dispatcher) beginClaim() (ready []claimable, room int) {
	now := d.clock.Millis()
	d.mu.Lock()
	defer d.mu.Unlock()
	if room = d.maxEntries() - d.entries; room <= 0 {
		return nil, 0
	}
	ahead, trigger := now+d.ahead, false
	for _, l := range d.lines {
		if l.claimed >= ahead && faultpoint.Without(faultpoint.ClaimedAhead) {
			continue
		}
		at := d.claimAt(l)
		trigger = trigger || at <= now
		if at <= now || at != never && l.next <= ahead {
			ready = append(ready, claimable{ownedSlot: l, to: l.reach(ahead), behind: l.next < now-overdue.Milliseconds()})
		}
	}
	if !trigger {
		return nil, room
	}
	for _, l := range ready {
		l.claiming = true
	}
	slices.SortFunc(ready, func(a, b claimable) int { return a.number - b.number })
	return ready, room
}

func (d *Dispatcher) endClaim(lines []claimable) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range lines {
		l.claiming = false
	}
}

func rangesOf(lines []claimable) []store.Range {
	out := make([]store.Range, len(lines))
	for i, l := range lines {
		out[i] = store.Range{Slot: l.number, From: l.claimed, To: l.to}
	}
	return out
}

// claimLines claims first and reads afterwards: what was written before the claim is there to be read, what comes later is
// placed behind it.
func (d *Dispatcher) claimLines(ctx context.Context, lines []claimable, g claimGroup) error {
	slots := make([]int, len(lines))
	for i, l := range lines {
		slots[i] = l.number
	}
	began := time.Now()
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := d.store.Claim(bound, slots, g.epoch, g.to); err != nil {
		return err
	}
	if err := faultpoint.At(faultpoint.DispatcherClaimed); err != nil {
		return err
	}
	entries, err := d.readClaimed(ctx, lines)
	if err != nil {
		return err
	}
	d.metrics.claims.Inc()
	d.metrics.claimTime.Observe(time.Since(began).Seconds())
	d.takeIn(lines, entries)
	if len(entries) == 0 {
		d.settleKick.now()
	}
	d.askNext(ctx, lines, slots, g.to)
	return nil
}

// readClaimed reads what has been claimed, again and again until it is done: claimed has moved, so the read must follow. It gives
// up where none of the lines is ours any more.
func (d *Dispatcher) readClaimed(ctx context.Context, lines []claimable) ([]store.Entry, error) {
	ranges := rangesOf(lines)
	for failures := 1; ; failures++ {
		bound, cancel := context.WithTimeout(ctx, answerWithin*time.Duration(min(failures, 8))) // there may be millions
		entries, err := d.store.Entries(bound, ranges)
		cancel()
		if err == nil || d.allAbandoned(lines) {
			return entries, err
		}
		d.log.Warn("reading a claimed range failed, trying again", zap.Error(err))
		if sleep(ctx, pauseAfter(failures)); ctx.Err() != nil {
			return nil, err
		}
	}
}

func (d *Dispatcher) allAbandoned(lines []claimable) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(lines, func(l claimable) bool { return !l.abandoned })
}

// takeIn moves lines to where they are claimed, with what stands there.
func (d *Dispatcher) takeIn(lines []claimable, entries []store.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ours := make(map[int]*ownedSlot, len(lines))
	for _, l := range lines {
		l.claimTo(l.to)
		if !l.abandoned {
			ours[l.number] = l.ownedSlot
		}
	}
	d.enter(ours, entries, false)
}

// askNext asks the index, or where it does not answer the database, for the lines' next tasks.
func (d *Dispatcher) askNext(ctx context.Context, lines []claimable, slots []int, from int64) {
	places := make([]index.SlotPos, len(lines))
	for i, l := range lines {
		places[i] = index.SlotPos{Slot: l.number, Pos: from}
	}
	bound, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	next, err := d.index.Next(bound, places)
	cancel()
	if err != nil {
		d.metrics.indexErrors.Inc()
		bound, cancel := context.WithTimeout(ctx, answerWithin)
		fromStore, err := d.store.Next(bound, slots)
		cancel()
		if err != nil {
			return // the sweep asks again
		}
		for _, n := range fromStore {
			next = append(next, index.SlotPos(n))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range next {
		if l := d.lines[n.Slot]; l != nil && n.Pos > l.claimed {
			l.next = min(l.next, n.Pos)
		}
	}
}

// enter puts claimed tasks into their lines and into the queue for their bodies. They come in the order of their lines. mu is
// held.
func (d *Dispatcher) enter(lines map[int]*ownedSlot, entries []store.Entry, doubt bool) {
	now := d.clock.Millis()
	queue := make([]*claimedTask, 0, len(entries))
	tasks := make([]claimedTask, len(entries)) // one allocation for all
	for i, e := range entries {
		l := lines[e.Slot]
		if l == nil {
			continue
		}
		t := &tasks[i]
		*t = claimedTask{slot: l, seq: e.Seq, pos: e.Pos, at: e.Pos, lane: e.Lane, doubt: doubt}
		// At the first place behind what was claimed stands what came when its own place was claimed already.
		if e.Pos == l.before+1 {
			t.at = min(t.at, now)
		}
		l.tasks = append(l.tasks, t)
		d.entries++
		if original := d.stuck[e.Seq]; original != nil { // with the producer from here
			if original.answered {
				t.status = leaving
			} else {
				d.setAside(t, original)
			}
			continue
		}
		queue = append(queue, t)
	}
	slices.SortStableFunc(queue, func(a, b *claimedTask) int { return cmp.Compare(a.at, b.at) })
	for _, t := range queue {
		d.fetching.push(t)
	}
	d.fetchKick.now()
}
