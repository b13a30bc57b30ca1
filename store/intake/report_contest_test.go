package intake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

func TestReportsBesideTheirTimeouts(t *testing.T)     { holds(t, reportsAndTimeouts) }
func TestLeavingBehindTheClaimIsNoticed(t *testing.T) { notices(t, noSharedLock, reportsAndTimeouts) }
func TestStoppedIsDeliveredNoMore(t *testing.T)       { holds(t, stopsAndAttempts) }
func TestStoppingTheClaimedIsNoticed(t *testing.T)    { notices(t, noSharedLock, stopsAndAttempts) }

// delivery is what a consumer sees.
type delivery struct {
	id      string
	attempt int
}

// reportsAndTimeouts lets consumers report on deliveries (in time, late, doubled, or not at all) while the owner's time-outs
// run, new requests for the same ids come, and a third process decides what waits. In the end every task has ended, once, and
// nothing is left behind. All of them change the same rows, in orders of their own: none may fail for that.
func reportsAndTimeouts(s *fixture) *violations { return reportsBeside(s, schemas.OpSchedule) }

// stopsAndAttempts lets consumers stop tasks as well: no attempt follows behind the one that the answer names.
func stopsAndAttempts(s *fixture) *violations { return reportsBeside(s, schemas.OpStop) }

func reportsBeside(s *fixture, op schemas.Op) *violations {
	const tasks, reporters = 40, 3
	v := &violations{}
	o := &reportOwner{mover: newMover(s, v), op: op, deliveries: make(chan delivery, 10_000), last: map[string]int{}, stopped: map[string]int{}}
	requests := make([]*schemas.Request, tasks)
	for i := range requests {
		requests[i] = soon(schemas.OpSchedule, fmt.Sprint(i))
		requests[i].Settings.Ack, requests[i].Settings.MaxAttempts = schemas.AckReport, 3
		requests[i].Settings.Backoff = schemas.Backoff{First: 3 * ms, Max: 3 * ms}
	}
	intake := newWriter(s, 0, v)
	intake.bring(requests...)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for n := range reporters {
		wg.Go(func() { o.report(newWriter(s, n+1, v), stop) })
	}
	wg.Go(func() { o.resolve(stop) })
	for deadline := time.Now().Add(2 * time.Minute); !o.ended(tasks) && !v.any(); o.step() {
		if time.Now().After(deadline) {
			v.add("some task has not ended: %d rows wait, %d tasks are in a line", s.count("waiting"), s.inLine())
			break
		}
	}
	close(stop)
	wg.Wait()
	o.compare(requests)
	return v
}

// reportOwner delivers what falls due and gives its consumers a few milliseconds to report. While the outcomes of one claim are
// stored, it claims the next.
type reportOwner struct {
	*mover
	op         schemas.Op // of requests that come beside the reports
	closed     int64      // up to here all is settled; the exits are of what lies between it and from
	exits      []line.Transition
	deliveries chan delivery
	open       atomic.Int64 // deliveries that a consumer has not yet done with
	mu         sync.Mutex
	final      map[string][]schemas.State
	last       map[string]int // the latest attempt of each task
	stopped    map[string]int // the attempt after which it was stopped
}

func (o *reportOwner) step() {
	now := time.Now().UnixMilli()
	if now <= o.from {
		return
	}
	var wg sync.WaitGroup
	wg.Go(o.leave)
	entries := o.claim(now)
	wg.Wait()
	o.close()
	o.closed, o.from, o.exits = o.from, now, nil
	for _, e := range entries {
		tasks, _, err := New(o.store).Line().Tasks(o.s.ctx, []int64{e.Seq}, 1<<20)
		if err != nil || len(tasks) != 1 {
			o.v.add("a claimed task is gone: %v", err)
			continue
		}
		o.exits = append(o.exits, o.outcome(tasks[0], now))
	}
}

func (o *reportOwner) claim(to int64) []line.Entry {
	if err := claimTo(o.s.ctx, o.store, o.slots, o.epoch, to); err != nil {
		o.v.fail(err)
	}
	var ranges []line.Range
	for _, slot := range o.slots {
		ranges = append(ranges, line.Range{Slot: slot, From: o.from, To: to})
	}
	entries, err := New(o.store).Line().Entries(o.s.ctx, ranges)
	if err != nil {
		o.v.fail(err)
	}
	return entries
}

func (o *reportOwner) leave() {
	settled, err := New(o.store).Line().Settle(o.s.ctx, nil, o.exits, store.At(o.from))
	if err != nil {
		o.v.fail(err)
	}
	for _, box := range settled.Events {
		o.told(box.Events)
	}
}

// close finds that nothing is left where all has gone.
func (o *reportOwner) close() {
	var done []line.Done
	for _, slot := range o.slots {
		done = append(done, line.Done{Slot: slot, Epoch: o.epoch, From: o.closed, To: o.from})
	}
	settled, err := New(o.store).Line().Settle(o.s.ctx, done, nil, store.At(o.from))
	switch {
	case err != nil:
		o.v.fail(err)
	case len(settled.Mismatch) > 0:
		o.v.add("a claimed range has changed in slots %v", settled.Mismatch)
	}
}

// outcome delivers a task, or ends the wait for its report.
func (o *reportOwner) outcome(t task.Task, now int64) line.Transition {
	e := line.Transition{Seq: t.Seq, Slot: t.Slot, Epoch: o.epoch, Attempt: t.Attempt, Lane: o.s.lane(t.Topic, t.Class)}
	switch {
	case t.State == task.StateReport && t.Attempt >= 3:
		e.State, e.Dead = task.StateDead, task.NewDeadLetter(t, schemas.KindDead, "no report", now)
		e.Events = []schemas.Event{{Topic: t.Topic, ID: t.ID, State: schemas.StateDead}}
	case t.State == task.StateReport:
		e.State, e.Pos, e.Idle = task.StateRetry, now+3, true
	default:
		e.State, e.Attempt, e.Pos = task.StateReport, t.Attempt+1, now+15
		o.open.Add(1)
		o.mu.Lock()
		o.last[t.ID] = e.Attempt
		o.mu.Unlock()
		o.deliveries <- delivery{t.ID, e.Attempt} // before the outcome is stored: reports may overtake it
	}
	return e
}

// report is a consumer that reports on some deliveries, on some twice, and on some when it is late.
func (o *reportOwner) report(w *writer, stop <-chan struct{}) {
	var late []delivery
	for {
		select {
		case <-stop:
			return
		case d := <-o.deliveries:
			late = o.answer(w, d, late)
			o.open.Add(-1)
		}
	}
}

func (o *reportOwner) answer(w *writer, d delivery, late []delivery) []delivery {
	batch := []delivery{d}
	if rand.IntN(3) == 0 {
		batch = append(batch, d)
	}
	if rand.IntN(3) == 0 {
		late = append(late, d)
		batch = batch[1:]
	}
	if len(late) > 4 {
		batch, late = append(batch, late...), nil
	}
	b := Batch{Advance: []Advance{{w.source.ID, w.offset, w.offset + int64(len(batch))}}}
	for _, d := range batch {
		r := says(d.id, d.attempt, schemas.Status(1+rand.IntN(3)))
		b.Changes = append(b.Changes, task.Change{Seq: task.Seq(w.source.ID, w.offset), Report: &r})
		w.offset++
	}
	o.apply(w.Intake, b)
	if rand.IntN(4) == 0 { // about a task that may be under way or not
		r := soon(o.op, d.id)
		r.Settings.Ack, r.Settings.MaxAttempts, r.Settings.IfExists = schemas.AckReport, 3, schemas.Keep
		_, events := w.bring(r)
		o.told(events)
	}
	return late
}

func (o *reportOwner) resolve(stop <-chan struct{}) {
	in := New(o.s.rival())
	for {
		select {
		case <-stop:
			return
		default:
		}
		keys, _, err := in.Resolvable(o.s.ctx, [16]byte{}, 10)
		if err != nil {
			o.v.fail(err)
			return
		}
		if len(keys) > 0 {
			o.apply(in, Batch{Resolve: keys})
		}
	}
}

func (o *reportOwner) apply(in Intake, b Batch) {
	applied, err := in.Apply(o.s.ctx, b, nowMillis)
	if err != nil {
		o.v.fail(err)
	}
	for _, box := range applied.Events {
		o.told(box.Events)
	}
}

func (o *reportOwner) told(events []schemas.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.final == nil {
		o.final = map[string][]schemas.State{}
	}
	for _, e := range events {
		switch e.State {
		case schemas.StateStopped:
			if attempt, again := o.stopped[e.ID]; again && attempt != e.Attempt {
				o.v.add("task %s was stopped after attempt %d, and after attempt %d", e.ID, attempt, e.Attempt)
			} else if again {
				continue
			}
			o.stopped[e.ID] = e.Attempt
			o.final[e.ID] = append(o.final[e.ID], e.State)
		case schemas.StateScheduled, schemas.StateSucceeded, schemas.StateDead:
			o.final[e.ID] = append(o.final[e.ID], e.State)
		}
	}
}

// ended looks whether nothing can happen any more: the order matters, for a consumer's request may wait, and what waits may
// enter the line.
func (o *reportOwner) ended(tasks int) bool {
	return o.open.Load() == 0 && o.s.count("waiting") == 0 && o.s.inLine() == 0 && o.s.count("tasks") == tasks
}

func (f *fixture) inLine() (n int) {
	if err := f.db.QueryRowContext(f.ctx, "SELECT COUNT(*) FROM tasks WHERE slot >= 0").Scan(&n); err != nil {
		return -1
	}
	return n
}

// compare holds what was told to what is stored: an end for each beginning, the last of them the one to be seen.
func (o *reportOwner) compare(requests []*schemas.Request) {
	dead := 0
	for _, r := range requests {
		begins, ends := 1, 0 // the first schedule was told before anybody listened
		for _, state := range o.final[r.ID] {
			switch state {
			case schemas.StateScheduled:
				begins++
			case schemas.StateDead:
				dead++
				ends++
			default:
				ends++
			}
		}
		if begins != ends {
			o.v.add("task %s began %d times and ended %d times: %v", r.ID, begins, ends, o.final[r.ID])
		}
		if attempt, stopped := o.stopped[r.ID]; stopped && o.last[r.ID] != attempt {
			o.v.add("task %s was stopped after attempt %d, and attempt %d was made", r.ID, attempt, o.last[r.ID])
		}
		if state := o.s.state(r.ID); !slices.Contains([]string{"succeeded", "dead", "stopped"}, state) {
			o.v.add("task %s is %s", r.ID, state)
		}
	}
	if n := o.s.count("dead_letters"); n != dead {
		o.v.add("%d dead letters of %d deaths", n, dead)
	}
}
