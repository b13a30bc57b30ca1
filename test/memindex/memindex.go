// Package memindex is an index of the near future in the process, for tests in virtual time. It answers
// what the index in Redis answers, and never waits.
package memindex

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/notyet/notyet/internal/index"
)

// maxScore is the highest position that the index in Redis takes.
const maxScore = 1 << 53

// Index does what index.Index does, and ends with the process.
type Index struct {
	mu        sync.Mutex
	slots     map[int]*memorySlot
	listeners map[*listener]bool
}

// memorySlot keeps its entries twice: by seq, and ordered by position and seq.
type memorySlot struct {
	bySeq  map[int64]int64
	line   []index.Entry
	mark   int64
	marked bool
}

// listener holds what its reader has not yet received: the lowest position of each slot's tasks, and apart
// from it whether timers of the slot changed.
type listener struct {
	pending map[wakeKey]int64
	news    chan struct{}
}

type wakeKey struct {
	slot   int
	timers bool
}

func keyOf(p index.SlotPos) wakeKey { return wakeKey{p.Slot, p.Pos == index.TimersChanged} }

// New returns an empty index.
func New() *Index {
	return &Index{slots: map[int]*memorySlot{}, listeners: map[*listener]bool{}}
}

// Close does nothing: there are no connections.
func (m *Index) Close() {}

// Ping returns nil.
func (m *Index) Ping(context.Context) error { return nil }

// Flush removes everything, like a server that restarts.
func (m *Index) Flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.slots)
}

func (m *Index) slot(n int) *memorySlot {
	s := m.slots[n]
	if s == nil {
		s = &memorySlot{bySeq: map[int64]int64{}}
		m.slots[n] = s
	}
	return s
}

func compareEntries(a, b index.Entry) int {
	return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Seq, b.Seq))
}

// behind returns the position in the line of the first entry above pos.
func (s *memorySlot) behind(pos int64) int {
	i, _ := slices.BinarySearchFunc(s.line, pos, func(e index.Entry, pos int64) int {
		if e.Pos > pos {
			return 1
		}
		return -1
	})
	return i
}

// between returns the entries in (from, to].
func (s *memorySlot) between(from, to int64) []index.Entry {
	first, last := s.behind(from), s.behind(to)
	return s.line[first:max(first, last)]
}

// Add is index.Index's.
func (m *Index) Add(_ context.Context, entries []index.Entry) error {
	for _, e := range entries {
		if e.Pos > maxScore || e.Pos < -maxScore {
			return fmt.Errorf("adding entries to the index: position %d of seq %d is beyond ±2^53", e.Pos, e.Seq)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := map[*memorySlot]bool{}
	for _, e := range entries {
		s := m.slot(e.Slot)
		old, there := s.bySeq[e.Seq]
		if there && old == e.Pos {
			continue
		}
		s.bySeq[e.Seq] = e.Pos
		s.line = append(s.line, e)
		changed[s] = true
	}
	for s := range changed {
		s.sort()
	}
	return nil
}

// sort orders the line again and drops entries that bySeq does not have at this position.
func (s *memorySlot) sort() {
	slices.SortFunc(s.line, compareEntries)
	s.line = slices.Compact(slices.DeleteFunc(s.line, func(e index.Entry) bool {
		pos, there := s.bySeq[e.Seq]
		return !there || pos != e.Pos
	}))
}

// Remove is index.Index's.
func (m *Index) Remove(_ context.Context, entries []index.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		s := m.slots[e.Slot]
		if s == nil {
			continue
		}
		pos, there := s.bySeq[e.Seq]
		if !there {
			continue
		}
		delete(s.bySeq, e.Seq)
		if i, found := slices.BinarySearchFunc(s.line, index.Entry{Pos: pos, Seq: e.Seq}, compareEntries); found {
			s.line = slices.Delete(s.line, i, i+1)
		}
	}
	return nil
}

// Trim is index.Index's.
func (m *Index) Trim(_ context.Context, upTo []index.SlotPos) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range upTo {
		s := m.slots[at.Slot]
		if s == nil {
			continue
		}
		n := s.behind(at.Pos)
		for _, e := range s.line[:n] {
			delete(s.bySeq, e.Seq)
		}
		s.line = slices.Delete(s.line, 0, n)
	}
	return nil
}

// Clear is index.Index's.
func (m *Index) Clear(_ context.Context, slot int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.slots, slot)
	return nil
}

// SetMark is index.Index's.
func (m *Index) SetMark(_ context.Context, slot int, upTo int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slot(slot)
	s.mark, s.marked = upTo, true
	return nil
}

// Marks is index.Index's.
func (m *Index) Marks(_ context.Context, slots []int) (map[int]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks := make(map[int]int64, len(slots))
	for _, slot := range slots {
		if s := m.slots[slot]; s != nil && s.marked {
			marks[slot] = s.mark
		}
	}
	return marks, nil
}

// Next is index.Index's.
func (m *Index) Next(_ context.Context, from []index.SlotPos) ([]index.SlotPos, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next []index.SlotPos
	for _, at := range from {
		s := m.slots[at.Slot]
		if s == nil {
			continue
		}
		if i := s.behind(at.Pos); i < len(s.line) {
			next = append(next, index.SlotPos{Slot: at.Slot, Pos: s.line[i].Pos})
		}
	}
	return next, nil
}

// Count is index.Index's.
func (m *Index) Count(_ context.Context, slot int, from, to int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[slot]
	if s == nil {
		return 0, nil
	}
	return int64(len(s.between(from, to))), nil
}

// Counts is index.Index's.
func (m *Index) Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error) {
	out := make([]int64, max(len(bounds)-1, 0))
	for i := range out {
		for _, slot := range slots {
			n, _ := m.Count(ctx, slot, bounds[i], bounds[i+1])
			out[i] += n
		}
	}
	return out, nil
}

// Range is index.Index's.
func (m *Index) Range(_ context.Context, slot int, from, to int64) ([]index.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[slot]
	if s == nil {
		return nil, nil
	}
	return slices.Clone(s.between(from, to)), nil
}

// Members is index.Index's.
func (m *Index) Members(ctx context.Context, slot int) ([]index.Entry, error) {
	return m.Range(ctx, slot, -maxScore-1, maxScore)
}

// Wake is index.Index's.
func (m *Index) Wake(_ context.Context, at []index.SlotPos) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.listeners {
		for _, s := range at {
			if old, ok := l.pending[keyOf(s)]; !ok || s.Pos < old {
				l.pending[keyOf(s)] = s.Pos
			}
		}
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
	return nil
}

// Wakes is index.Index's.
func (m *Index) Wakes(ctx context.Context) <-chan []index.SlotPos {
	l, out := &listener{pending: map[wakeKey]int64{}, news: make(chan struct{}, 1)}, make(chan []index.SlotPos)
	m.mu.Lock()
	m.listeners[l] = true
	m.mu.Unlock()
	go func() {
		defer close(out)
		defer m.forget(l)
		for {
			var send chan<- []index.SlotPos
			batch := m.waiting(l)
			if len(batch) > 0 {
				send = out
			}
			select {
			case <-ctx.Done():
				return
			case <-l.news:
			case send <- batch:
				m.took(l, batch)
			}
		}
	}()
	return out
}

func (m *Index) waiting(l *listener) []index.SlotPos {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch := make([]index.SlotPos, 0, len(l.pending))
	for key, pos := range l.pending {
		batch = append(batch, index.SlotPos{Slot: key.slot, Pos: pos})
	}
	slices.SortFunc(batch, func(a, b index.SlotPos) int { return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Pos, b.Pos)) })
	return batch
}

// took keeps what arrived while batch was being sent.
func (m *Index) took(l *listener, batch []index.SlotPos) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range batch {
		if l.pending[keyOf(s)] == s.Pos {
			delete(l.pending, keyOf(s))
		}
	}
}

func (m *Index) forget(l *listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.listeners, l)
}
