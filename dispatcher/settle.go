package dispatcher

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// outcome is what came of sending a task.
type outcome struct {
	task      *claimedTask
	at        int64
	latest    int64 // no later than this, whatever the clock will turn out to be
	partition int32
	offset    int64
	err       error
	known     bool // from the send log: it is noted there already
	alone     bool // it was sent by itself: an error is about nothing else
	again     bool // it was refused, but its target may take it in a moment
}

// told is a delivery that is being told of.
type told struct {
	at    int64 // when it was acknowledged, Unix ms: long ago, where the send log proves it
	since time.Time
}

// transition is a task that leaves its slot's line, with the events that tell of it.
type transition struct {
	store.Transition
	task    *claimedTask
	events  []schemas.Event
	reduced int // how often the database has refused it: see isolate.go
}

// settleEvery is the least pause between settlements. Each is a few statements for all slots together, so it bounds what
// they cost under load to 20 transactions a second; what it costs is that a kill leaves up to so much more in doubt.
const settleEvery = 50 * time.Millisecond

// settleLoop makes outcomes durable.
func (d *Dispatcher) settleLoop(ctx context.Context) {
	check := time.NewTicker(time.Second)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.settleKick:
		case <-check.C:
			d.mu.Lock()
			d.checkTargets()
			d.checkUntold()
			gone := d.forgetRefused(time.Now())
			d.mu.Unlock()
			if len(gone) > 0 {
				go d.client.PurgeTopicsFromProducing(gone...) // it waits for a metadata request that is under way
			}
		}
		d.note(ctx)
		d.settle(ctx)
		sleep(ctx, settleEvery)
	}
}

// note writes the outcomes at hand to the send log and decides what follows from each.
func (d *Dispatcher) note(ctx context.Context) {
	d.mu.Lock()
	outcomes := d.outcomes
	d.outcomes = nil
	d.mu.Unlock()
	if len(outcomes) == 0 {
		return
	}
	entries := make([]sendlog.Outcome, 0, len(outcomes))
	for _, o := range outcomes {
		if o.known || o.err != nil && kafka.MaybeCollateral(o.err) && !o.alone {
			continue
		}
		e := sendlog.Outcome{Seq: uint64(o.task.seq), Attempt: o.task.sending(), Acked: o.err == nil, Partition: o.partition, Offset: o.offset, At: o.at}
		if o.err != nil {
			e.Error, e.Refused = o.err.Error(), kafka.Permanent(o.err) && !o.again
		}
		entries = append(entries, e)
	}
	d.until(ctx, "noting outcomes in the send log", func(ctx context.Context) error {
		if err := faultpoint.At(faultpoint.DispatcherAcknowledged); err != nil {
			return err
		}
		return d.sent.AppendOutcomes(ctx, entries)
	})
	if ctx.Err() != nil {
		return
	}
	var tell []outcome
	d.mu.Lock()
	for _, o := range outcomes {
		if d.conclude(ctx, o) {
			tell = append(tell, o)
		}
	}
	d.mu.Unlock()
	for _, o := range tell {
		d.announce(o.task, o.at)
	}
}

// conclude decides what follows from an outcome; true means that the delivery is to be told before it counts. mu is held.
func (d *Dispatcher) conclude(ctx context.Context, o outcome) bool {
	t := o.task
	if t.status == leaving || t.status == left {
		d.answeredLate(o)
		return false
	}
	if t.slot.abandoned {
		return false
	}
	switch {
	case o.err != nil && kafka.Permanent(o.err) && kafka.MaybeCollateral(o.err) && !o.alone:
		d.suspect(ctx, t)
	case o.err != nil && kafka.Permanent(o.err) && !o.again:
		d.log.Info("a task cannot be delivered", zap.String("topic", t.topic), zap.String("id", t.id), zap.Error(o.err))
		d.deadLetterLocked(t, schemas.KindUndeliverable, "kafka refused it: "+o.err.Error())
	case o.err != nil:
		d.metrics.retries.Inc()
		d.log.Debug("the producer gave a task back", zap.String("topic", t.topic), zap.String("id", t.id), zap.Error(o.err))
		d.sendLater(t, o.err)
	case t.settings.Ack == schemas.AckReport:
		d.metrics.delivered.Inc()
		d.leave(t, awaitReport(t, o))
	case task.Published(t.settings.Events, schemas.StateSucceeded):
		d.metrics.delivered.Inc()
		d.unstage(t)
		t.status = telling
		d.untold[t] = told{at: o.at, since: time.Now()}
		return true
	default:
		d.metrics.delivered.Inc()
		d.unstage(t)
		t.status = settled
	}
	return false
}

func awaitReport(t *claimedTask, o outcome) transition {
	return transition{
		Transition: store.Transition{State: task.StateReport, Pos: max(o.at, o.latest) + t.settings.AckTimeout.Milliseconds(), Attempt: t.attempt + 1, Lane: task.LaneOf(t.topic, task.ClassRetried)},
		events:     []schemas.Event{{State: schemas.StateDispatched, Attempt: t.attempt + 1, Lateness: max(o.at-t.at, 0)}},
	}
}

// answeredLate takes the answer about a task that has been set aside meanwhile. mu is held.
func (d *Dispatcher) answeredLate(o outcome) {
	t := o.task
	if d.stuck[t.seq] != t {
		return
	}
	l := d.lines[t.slot.number]
	if l == nil {
		delete(d.stuck, t.seq)
		return
	}
	t.answered = true // it stays known as stuck until its end is durable
	late := &claimedTask{slot: l, seq: t.seq, at: t.at, lane: t.lane, content: t.content}
	switch {
	case o.err == nil && t.settings.Ack == schemas.AckReport:
		d.leave(late, awaitReport(late, o))
	case o.err == nil:
		d.metrics.delivered.Inc()
		d.leaveUntold(late, o.at)
	case kafka.Permanent(o.err) && !o.again && (o.alone || !kafka.MaybeCollateral(o.err)):
		d.deadLetterLocked(late, schemas.KindUndeliverable, "kafka refused it: "+o.err.Error())
	default:
		delete(d.stuck, t.seq) // it was not sent: its later place stands
	}
}

// forgetAnswered lets go of tasks that were set aside and whose late answers were about to end them: those ends go with the line. Should
// the slot come back, they are claimed like any other. What is unanswered stays known, for it is still with the producer. mu is held.
func (d *Dispatcher) forgetAnswered(l *ownedSlot) {
	for seq, t := range d.stuck {
		if t.answered && t.slot.number == l.number {
			delete(d.stuck, seq)
		}
	}
}

// deliveredEvents are what is to be told of a delivery that ends its task; at is when it was acknowledged.
func deliveredEvents(t *claimedTask, at int64) []schemas.Event {
	e := schemas.Event{Topic: t.topic, ID: t.id, State: schemas.StateDispatched, Due: t.due, At: at, Attempt: t.attempt + 1, Lateness: max(at-t.at, 0)}
	events := []schemas.Event{e, e}
	events[1].State = schemas.StateSucceeded
	if !task.Published(t.settings.Events, schemas.StateDispatched) {
		events = events[1:]
	}
	return events
}

// leaveUntold stores the end of a delivered task that has left its line with its events, which are published from there. mu is held.
func (d *Dispatcher) leaveUntold(t *claimedTask, at int64) {
	if !t.slot.abandoned {
		d.leave(t, transition{Transition: store.Transition{State: task.StateSucceeded, Attempt: t.attempt + 1, Lane: t.lane}, events: deliveredEvents(t, at)})
	}
}

// settle takes tasks out of their lines, and then closes what can be closed, in one transaction each for all slots: the first
// share their locks with the writers of tasks, and only the last, which is short, keeps them out.
func (d *Dispatcher) settle(ctx context.Context) {
	exits, recalls := d.takeLeaving()
	left := d.settlePieces(ctx, d.ours(exits))
	recalls, early := d.mayRecall(recalls, left)
	early = append(d.settlePieces(ctx, d.ours(recalls)), early...)
	if len(left)+len(early) > 0 {
		d.mu.Lock()
		d.transitions = append(left, d.transitions...)
		d.recalls = append(early, d.recalls...)
		d.mu.Unlock()
	}
	d.storeDeferred(ctx)
	_ = d.settleThese(ctx, nil, d.closable)
}

// takeLeaving takes the tasks that leave their places, and some that are called back. Both at once: a task is called back after it
// has left, so what it left with is in this round or settled. Otherwise it would leave behind its recall, for another minute.
func (d *Dispatcher) takeLeaving() (exits, recalls []transition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	exits, d.transitions = d.transitions, nil
	n := min(len(d.recalls), recallMost)
	if recalls, d.recalls = d.recalls[:n:n], d.recalls[n:]; len(d.recalls) == 0 {
		d.recalls = nil
	} else {
		d.settleKick.now()
	}
	return exits, recalls
}

// settleThese tries until all is durable. An error says that it is not: ctx ended, or the database refuses the exits for what is in
// them.
func (d *Dispatcher) settleThese(ctx context.Context, exits []transition, closable func() ([]store.Done, []*ownedSlot)) error {
	for failures := 0; ctx.Err() == nil; {
		exits = d.ours(exits)
		done, lines := closable()
		if len(exits)+len(done) == 0 {
			return nil
		}
		began := time.Now()
		rows, events := transitionRows(exits)
		result, err := d.settleOnce(ctx, done, rows, events)
		if errors.Is(err, store.ErrFenced) || len(result.Fenced) > 0 {
			d.fenced(ctx)
			continue
		}
		if len(exits) > 0 && store.BadRecord(err) && !faultpoint.Without(faultpoint.SettledInPieces) {
			return err
		}
		if err != nil {
			failures++
			d.metrics.retries.Inc()
			if ctx.Err() == nil {
				d.log.Warn("settling failed, trying again", zap.Error(err))
			}
			sleep(ctx, pauseAfter(failures))
			continue
		}
		d.metrics.settleTime.Observe(time.Since(began).Seconds())
		d.closed(exits, done, lines, result)
		d.afterSettle(ctx, done, result)
		return nil
	}
	return ctx.Err()
}

func (d *Dispatcher) settleOnce(ctx context.Context, done []store.Done, exits []store.Transition, events []schemas.Event) (store.Settled, error) {
	if err := faultpoint.At(faultpoint.DispatcherNoted); err != nil {
		return store.Settled{}, err
	}
	result, err := d.store.Settle(ctx, done, exits, events, d.clock.Millis())
	if err != nil {
		return result, err
	}
	return result, faultpoint.At(faultpoint.DispatcherSettled)
}

// ours leaves out exits of slots that were lost, and all but the last word on one task.
func (d *Dispatcher) ours(exits []transition) []transition {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := make(map[int64]int, len(exits))
	out := exits[:0]
	for _, e := range exits {
		if l := d.lines[e.Slot]; l == nil || l != e.task.slot { // a line may have been taken anew under the same epoch
			continue
		}
		if i, ok := at[e.Seq]; ok {
			if e.State > out[i].State { // ended wins over set aside
				e.task = out[i].task // the one in the line
				out[i] = e
			}
			continue
		}
		at[e.Seq] = len(out)
		out = append(out, e)
	}
	return out
}

func (d *Dispatcher) closable() ([]store.Done, []*ownedSlot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var done []store.Done
	var lines []*ownedSlot
	for _, l := range d.lines {
		if to, count := l.closable(); to > l.done {
			done = append(done, store.Done{Slot: l.number, Epoch: l.epoch, From: l.done, To: to, Count: count})
			lines = append(lines, l)
		}
	}
	return done, lines
}

func transitionRows(exits []transition) ([]store.Transition, []schemas.Event) {
	rows := make([]store.Transition, len(exits))
	var events []schemas.Event
	for i, e := range exits {
		rows[i] = e.Transition
		events = append(events, e.events...)
	}
	return rows, events
}

func (d *Dispatcher) closed(exits []transition, done []store.Done, lines []*ownedSlot, result store.Settled) {
	d.mu.Lock()
	defer d.mu.Unlock()
	mismatch := map[int]bool{}
	for _, slot := range result.Mismatch {
		mismatch[slot] = true
	}
	for i, l := range lines {
		switch {
		case l.abandoned:
		case mismatch[l.number]:
			d.metrics.mismatch.Inc()
			d.log.Error("the database counts another number of tasks than were settled: taking the slot anew", zap.Int("slot", l.number),
				zap.Int64("from", done[i].From), zap.Int64("to", done[i].To), zap.Int("settled", done[i].Count))
			d.abandon(l, "the database counts another number of tasks in it")
		default:
			to := done[i].To
			if at, ok := result.Stands[l.number]; ok {
				to = at
				d.settleKick.now()
			}
			d.entries -= l.closeTo(to)
		}
	}
	for _, e := range exits {
		e.task.status = left
		if _, waits := result.Reported[e.Seq]; e.Dead != nil && !waits {
			d.metrics.dead.WithLabelValues(e.Dead.Kind).Inc()
		}
		if t := d.stuck[e.Seq]; t != nil && t.answered {
			delete(d.stuck, e.Seq)
			d.leftAgain(e)
		}
	}
	for _, m := range result.Moved {
		if l := d.lines[m.Slot]; l != nil && m.Pos > l.claimed {
			l.next = min(l.next, m.Pos)
		}
	}
	d.claimKick.now()
	if d.stopping.Load() {
		d.ownKick.now()
	}
}

// leftAgain marks what was claimed anew of a task whose late answer has ended it. mu is held.
func (d *Dispatcher) leftAgain(e transition) {
	if l := d.lines[e.Slot]; l != nil {
		for _, t := range l.open() {
			if t.seq == e.Seq && t.status == leaving {
				t.status = left
			}
		}
	}
}

// afterSettle follows up on what is durable now: the index lets go of what is settled and learns of what moved; then the
// events are told.
func (d *Dispatcher) afterSettle(ctx context.Context, done []store.Done, result store.Settled) {
	trim := make([]index.SlotPos, len(done))
	for i, c := range done {
		trim[i] = index.SlotPos{Slot: c.Slot, Pos: c.To}
	}
	horizon := d.clock.Millis() + d.cfg.Window.Milliseconds()
	var add []index.Entry
	for _, m := range result.Moved {
		if m.Pos <= horizon {
			add = append(add, index.Entry{Slot: m.Slot, Pos: m.Pos, Seq: uint64(m.Seq)})
		}
	}
	d.updateIndex(ctx, trim, add)
	d.results.Stored(result.Events)
}
