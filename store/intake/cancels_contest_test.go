package intake

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func TestCancelsByTagBesideAllOthers(t *testing.T)        { holds(t, cancelsByTag) }
func TestCancelsByTagOfTheTakenAreNoticed(t *testing.T)   { notices(t, noSharedLock, cancelsByTag) }
func TestCancelsByTagWithoutALockAreNoticed(t *testing.T) { notices(t, noExclusiveLock, cancelsByTag) }

// cancelsByTag lets two processes cancel by tag, again and again, what three others schedule, replace, merge and cancel under the same
// ids. Meanwhile the owner delivers, puts some off for another attempt, and a process decides what waits. All of them lock the same
// rows, in orders of their own: none may fail for that. Each row that was stored has one end: it is delivered, replaced or cancelled.
func cancelsByTag(s *fixture) *violations {
	const writers, sweepers, rounds, size, ids, tags = 3, 2, 30, 12, 60, 6
	v := &violations{}
	e := &endings{mover: newMover(s, v), ends: map[int64][]string{}, asked: map[int64]*schemas.Request{}, used: map[string]bool{}, cancelled: map[string]bool{}, off: map[int64]bool{}}
	core, contended := observer.New(zap.DebugLevel)
	watched := func(in Intake) Intake {
		in.h.Log = zap.New(core)
		return in
	}
	watched(New(e.store))
	resolver := watched(New(s.rival()))
	var scanners [writers]*writer
	for n := range scanners {
		scanners[n] = newWriter(s, n, v)
		watched(scanners[n].Intake)
	}
	var sweeps [sweepers]*sweeper
	for n := range sweeps {
		var err error
		if sweeps[n], err = newSweeper(s.ctx, watched(New(s.rival())), int32(n), nowMillis); err != nil {
			v.fail(err)
		}
	}
	done := make(chan struct{})
	var writing, others sync.WaitGroup
	for _, w := range scanners {
		writing.Go(func() {
			for range rounds {
				var requests []*schemas.Request
				for _, i := range rand.Perm(ids)[:size] {
					requests = append(requests, e.request(w, fmt.Sprint(i), fmt.Sprint("tag-", i%tags), len(requests)))
				}
				applied, events := w.bring(requests...)
				e.applied("replaced", applied, events)
			}
		})
	}
	for _, w := range sweeps {
		others.Go(func() {
			for going(done) {
				many, _, err := w.list(s.ctx, look.ListFilter{Tag: fmt.Sprint("tag-", rand.IntN(tags))})
				if err != nil {
					v.fail(err)
				}
				swept, err := w.decide(s.ctx, many)
				for errors.Is(err, ErrLater) { // the resolver decides what waits
					swept, err = w.decide(s.ctx, many)
				}
				if err != nil {
					v.fail(err)
				}
				e.applied("cancelled by tag", swept.Applied, swept.events())
			}
		})
	}
	others.Go(func() {
		for going(done) {
			e.resolve(resolver)
		}
	})
	go func() {
		writing.Wait()
		close(done)
	}()
	for going(done) {
		e.step(time.Now().Add(20 * ms).UnixMilli())
	}
	others.Wait()
	e.step(time.Now().Add(time.Hour).UnixMilli())
	for e.resolve(resolver) > 0 {
		e.step(e.from + time.Hour.Milliseconds())
	}
	e.step(e.from + time.Hour.Milliseconds()) // second attempts
	e.compare()
	most := int64(0)
	for _, entry := range contended.All() {
		most = max(most, entry.ContextMap()["attempt"].(int64))
	}
	s.test.Logf("%d rows: %v; %d transactions ran again, none more often than %d times", len(e.ends), e.sum(), contended.Len(), most)
	return v
}

func going(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// endings is an owner that delivers, and the account of how each row has ended.
type endings struct {
	*mover
	mu        sync.Mutex
	asked     map[int64]*schemas.Request // by seq
	used      map[string]bool            // due times of an id: each once, so that an answer names a request
	stored    []int64
	ends      map[int64][]string
	cancelled map[string]bool // id and due time of what was answered cancelled
	off       map[int64]bool  // put off once
}

func nameOf(id string, due int64) string { return fmt.Sprint(id, " due ", due) }

// request is the n-th of a batch about an id.
func (e *endings) request(w *writer, id, tag string, n int) *schemas.Request {
	if rand.IntN(6) == 0 {
		return soon(schemas.OpCancel, id)
	}
	r := soon(schemas.OpSchedule, id)
	tagged(tag)(r)
	if rand.IntN(4) == 0 {
		r.Settings.IfExists = schemas.Merge
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for r.Due = r.Accepted + rand.Int64N(150); e.used[nameOf(id, r.Due)]; r.Due++ {
	}
	e.used[nameOf(id, r.Due)] = true
	e.asked[task.Seq(w.source.ID, w.offset+int64(n))] = r
	return r
}

func (e *endings) applied(how string, a Applied, events []schemas.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range a.Added {
		e.stored = append(e.stored, p.Seq)
	}
	for _, p := range a.Removed {
		e.ends[p.Seq] = append(e.ends[p.Seq], how)
	}
	for _, event := range events {
		if event.State == schemas.StateCancelled {
			e.cancelled[nameOf(event.ID, event.Due)] = true
		}
	}
}

// resolve decides what waits, and returns how many ids it has looked at.
func (e *endings) resolve(in Intake) int {
	keys, _, err := in.Resolvable(e.s.ctx, [16]byte{}, 100)
	if err == nil && len(keys) > 0 {
		var applied Applied
		if applied, err = in.Apply(e.s.ctx, Batch{Resolve: keys}, nowMillis); err == nil {
			var events []schemas.Event
			for _, box := range applied.Events {
				events = append(events, box.Events...)
			}
			e.applied("replaced", applied, events)
		}
	}
	if err != nil {
		e.v.fail(err)
	}
	return len(keys)
}

// step claims up to a place and settles it. A quarter of the tasks is put off once.
func (e *endings) step(to int64) {
	if to <= e.from {
		return
	}
	if err := claimTo(e.s.ctx, e.store, e.slots, e.epoch, to); err != nil {
		e.v.fail(err)
		return
	}
	var ranges []line.Range
	for _, slot := range e.slots {
		ranges = append(ranges, line.Range{Slot: slot, From: e.from, To: to})
	}
	lines := New(e.store).Line()
	entries, err := lines.Entries(e.s.ctx, ranges)
	if err != nil {
		e.v.fail(err)
		return
	}
	counts := map[int]line.Tally{}
	var later []line.Transition
	e.mu.Lock()
	for _, entry := range entries {
		if rand.IntN(4) == 0 && !e.off[entry.Seq] {
			e.off[entry.Seq] = true
			later = append(later, line.Transition{Seq: entry.Seq, Slot: entry.Slot, Epoch: e.epoch, From: entry.Pos, State: task.StateRetry, Pos: to + rand.Int64N(40), Attempt: 1, Lane: entry.Lane})
			continue
		}
		e.ends[entry.Seq] = append(e.ends[entry.Seq], "delivered")
		countIn(counts, entry)
	}
	e.mu.Unlock()
	var done []line.Done
	for _, slot := range e.slots {
		done = append(done, line.Done{Slot: slot, Epoch: e.epoch, From: e.from, To: to, Tally: counts[slot]})
	}
	settled, err := lines.Settle(e.s.ctx, done, later, store.At(to))
	switch {
	case err != nil:
		e.v.fail(err)
	case len(settled.Mismatch) > 0:
		e.v.add("a claimed range has changed in slots %v", settled.Mismatch)
	}
	e.from = to
}

func (e *endings) compare() {
	for _, seq := range e.stored {
		if e.ends[seq] == nil {
			e.v.add("task %x has no end", seq)
		}
	}
	for seq, ends := range e.ends {
		if len(ends) != 1 {
			e.v.add("task %x has ended %d times: %v", seq, len(ends), ends)
		}
		if r := e.asked[seq]; r == nil {
			e.v.add("task %x is of no request", seq)
		} else if ends[0] == "delivered" && e.cancelled[nameOf(r.ID, r.Due)] {
			e.v.add("task %x was delivered, and its cancel was answered cancelled", seq)
		}
	}
	var left int
	if err := e.s.db.QueryRowContext(e.s.ctx, "SELECT COUNT(*) FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done").Scan(&left); err != nil {
		e.v.fail(err)
	}
	if left += e.s.count("waiting"); left > 0 {
		e.v.add("%d tasks and requests are left", left)
	}
	for _, how := range []string{"delivered", "replaced", "cancelled by tag"} {
		if e.sum()[how] == 0 {
			e.v.fail(fmt.Errorf("nothing was %s", how))
		}
	}
}

func (e *endings) sum() map[string]int {
	out := map[string]int{}
	for _, ends := range e.ends {
		out[ends[0]]++
	}
	return out
}
