package intake

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

func TestNothingSlipsPastTheMover(t *testing.T)      { holds(t, lateArrivals) }
func TestSlippingPastTheMoverIsNoticed(t *testing.T) { notices(t, noSharedLock, lateArrivals) }
func TestCancelledIsNeverTaken(t *testing.T)         { holds(t, changesOfMind) }
func TestTakingTheCancelledIsNoticed(t *testing.T)   { notices(t, noSharedLock, changesOfMind) }

// mover claims a little ahead of the clock, again and again, and reads what it has claimed.
type mover struct {
	s      *fixture
	store  *store.Store
	epoch  int64
	slots  []int
	from   int64
	settle bool
	loaded map[int64]int // how often each seq was read
	v      *violations
}

func newMover(s *fixture, v *violations) *mover {
	s.own()
	return &mover{s: s, store: s.rival(), epoch: s.epoch, slots: s.allSlots(), loaded: map[int64]int{}, v: v}
}

// run moves until the writers are done, and then once more beyond all that is left.
func (m *mover) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			m.step(time.Now().Add(time.Hour).UnixMilli())
			return
		default:
			m.step(time.Now().Add(20 * ms).UnixMilli())
		}
	}
}

func (m *mover) step(to int64) {
	if to <= m.from {
		return
	}
	if err := claimTo(m.s.ctx, m.store, m.slots, m.epoch, to); err != nil {
		m.v.fail(err)
		return
	}
	var ranges []line.Range
	for _, slot := range m.slots {
		ranges = append(ranges, line.Range{Slot: slot, From: m.from, To: to})
	}
	entries, err := New(m.store).Line().Entries(m.s.ctx, ranges)
	if err != nil {
		m.v.fail(err)
	}
	counts := map[int]line.Tally{}
	for _, e := range entries {
		m.loaded[e.Seq]++
		countIn(counts, e)
	}
	if m.settle {
		m.close(to, counts)
	}
	m.from = to
}

func (m *mover) close(to int64, counts map[int]line.Tally) {
	var done []line.Done
	for _, slot := range m.slots {
		done = append(done, line.Done{Slot: slot, Epoch: m.epoch, From: m.from, To: to, Tally: counts[slot]})
	}
	settled, err := New(m.store).Line().Settle(m.s.ctx, done, nil, store.At(to))
	switch {
	case err != nil:
		m.v.fail(err)
	case len(settled.Mismatch) > 0:
		m.v.add("a claimed range has changed in slots %v", settled.Mismatch)
	}
}

// writer brings batches of its own partition.
type writer struct {
	Intake
	s      *fixture
	source Source
	offset int64
	v      *violations
}

func newWriter(s *fixture, n int, v *violations) *writer {
	in := New(s.rival())
	source, err := in.Source(s.ctx, "writers", [16]byte{2}, int32(n), 0)
	if err != nil {
		v.fail(err)
	}
	return &writer{s: s, Intake: in, source: source, offset: source.Next, v: v}
}

func (w *writer) bring(requests ...*schemas.Request) (Applied, []schemas.Event) {
	b := Batch{Advance: []Advance{{w.source.ID, w.offset, w.offset + int64(len(requests))}}}
	for _, r := range requests {
		b.Changes = append(b.Changes, task.Change{Seq: task.Seq(w.source.ID, w.offset), Request: r})
		w.offset++
	}
	applied, err := w.Apply(w.s.ctx, b, nowMillis)
	if err != nil {
		w.v.fail(err)
	}
	var events []schemas.Event
	for _, box := range applied.Events {
		events = append(events, box.Events...)
	}
	return applied, events
}

// soon is a request about a task that falls due 0 to 50 ms from now.
func soon(op schemas.Op, id string) *schemas.Request {
	r := schemas.NewRequest(op, target, id)
	r.Accepted = time.Now().UnixMilli()
	r.Key = []byte(id)
	r.Settings.Events = schemas.EventsAll
	if op == schemas.OpSchedule {
		r.Due = r.Accepted + rand.Int64N(50)
	}
	return &r
}

// together runs the writers beside the mover.
func together(m *mover, writers int, write func(n int)) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() { write(n) })
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	m.run(done)
}

// lateArrivals writes tasks with due times around the place that the mover is at: each must be read exactly once.
func lateArrivals(s *fixture) *violations {
	const writers, batches, size = 3, 40, 8
	v := &violations{}
	m := newMover(s, v)
	m.settle = true
	var mu sync.Mutex
	stored := map[int64]bool{}
	together(m, writers, func(n int) {
		w := newWriter(s, n, v)
		for batch := range batches {
			var requests []*schemas.Request
			for i := range size {
				requests = append(requests, soon(schemas.OpSchedule, fmt.Sprintf("%d/%d/%d", n, batch, i)))
			}
			applied, _ := w.bring(requests...)
			mu.Lock()
			for _, p := range applied.Added {
				stored[p.Seq] = true
			}
			mu.Unlock()
		}
	})
	if len(stored) != writers*batches*size {
		v.fail(fmt.Errorf("only %d tasks were stored", len(stored)))
	}
	m.compare(stored)
	return v
}

func (m *mover) compare(live map[int64]bool) {
	for seq := range live {
		if n := m.loaded[seq]; n != 1 {
			m.v.add("task %x was read %d times", seq, n)
		}
	}
	for seq := range m.loaded {
		if !live[seq] {
			m.v.add("task %x was read, and its caller was told that it would not be", seq)
		}
	}
}

// aboutWhenTaken schedules tasks and, just about when they are taken, lets change withdraw some. change takes from seqs what was
// answered as withdrawn, which is never read, neither before nor after. All else is read exactly once.
func aboutWhenTaken(s *fixture, change func(w *writer, prefix string, seqs map[string]int64)) *violations {
	const writers, rounds = 3, 40
	v := &violations{}
	m := newMover(s, v)
	var mu sync.Mutex
	live := map[int64]bool{}
	together(m, writers, func(n int) {
		w := newWriter(s, n, v)
		for round := range rounds {
			var requests []*schemas.Request
			seqs := map[string]int64{}
			prefix := fmt.Sprintf("%d/%d/", n, round)
			for i := range roundSize {
				id := prefix + fmt.Sprint(i)
				seqs[id] = task.Seq(w.source.ID, w.offset+int64(i))
				requests = append(requests, soon(schemas.OpSchedule, id))
			}
			w.bring(requests...)
			change(w, prefix, seqs)
			mu.Lock()
			for _, seq := range seqs {
				live[seq] = true
			}
			mu.Unlock()
		}
	})
	m.compare(live)
	return v
}

const roundSize = 6 // tasks that aboutWhenTaken schedules at once

// changesOfMind cancels, replaces or fires tasks one by one.
func changesOfMind(s *fixture) *violations {
	ops := [roundSize - 1]schemas.Op{schemas.OpCancel, schemas.OpSchedule, schemas.OpFire, schemas.OpSchedule, schemas.OpCancel}
	return aboutWhenTaken(s, func(w *writer, prefix string, seqs map[string]int64) {
		for i, op := range ops {
			id := prefix + fmt.Sprint(i)
			seq := task.Seq(w.source.ID, w.offset)
			_, events := w.bring(soon(op, id))
			for _, e := range events { // none: it waits for a delivery that never ends here
				switch e.State {
				case schemas.StateCancelled:
					delete(seqs, id)
				case schemas.StateScheduled:
					seqs[id] = seq
				}
			}
		}
	})
}
