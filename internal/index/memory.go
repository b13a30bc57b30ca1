package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// Memory is an index in the process, for an installation of one process. It does what Index does
// and ends with the process. It never waits and never fails.
type Memory struct {
	mu        sync.Mutex
	slots     map[int]*memorySlot
	listeners map[*listener]bool
}

// memorySlot keeps its entries twice: by seq, and ordered by position and seq.
type memorySlot struct {
	bySeq  map[int64]int64
	line   []Entry
	mark   int64
	marked bool
}

// listener holds what its reader has not yet received: the lowest position of each slot.
type listener struct {
	pending wakes
	news    chan struct{}
}

// NewMemory returns an empty index.
func NewMemory() *Memory {
	return &Memory{slots: map[int]*memorySlot{}, listeners: map[*listener]bool{}}
}

// Close does nothing; Index has connections to close.
func (m *Memory) Close() {}

// Ping returns nil.
func (m *Memory) Ping(context.Context) error { return nil }

// Flush removes everything, like a server that restarts.
func (m *Memory) Flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.slots)
}

func (m *Memory) slot(n int) *memorySlot {
	s := m.slots[n]
	if s == nil {
		s = &memorySlot{bySeq: map[int64]int64{}}
		m.slots[n] = s
	}
	return s
}

func compareEntries(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Seq, b.Seq))
}

// behind returns the position in the line of the first entry above pos.
func (s *memorySlot) behind(pos int64) int {
	i, _ := slices.BinarySearchFunc(s.line, pos, func(e Entry, pos int64) int {
		if e.Pos > pos {
			return 1
		}
		return -1
	})
	return i
}

// between returns the entries in (from, to].
func (s *memorySlot) between(from, to int64) []Entry {
	first, last := s.behind(from), s.behind(to)
	return s.line[first:max(first, last)]
}

// Add implements Index's.
func (m *Memory) Add(_ context.Context, entries []Entry) error {
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
	s.line = slices.Compact(slices.DeleteFunc(s.line, func(e Entry) bool {
		pos, there := s.bySeq[e.Seq]
		return !there || pos != e.Pos
	}))
}

// Remove implements Index's.
func (m *Memory) Remove(_ context.Context, entries []Entry) error {
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
		if i, found := slices.BinarySearchFunc(s.line, Entry{Pos: pos, Seq: e.Seq}, compareEntries); found {
			s.line = slices.Delete(s.line, i, i+1)
		}
	}
	return nil
}

// Trim implements Index's.
func (m *Memory) Trim(_ context.Context, upTo []SlotPos) error {
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

// Clear implements Index's.
func (m *Memory) Clear(_ context.Context, slot int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.slots, slot)
	return nil
}

// SetMark implements Index's.
func (m *Memory) SetMark(_ context.Context, slot int, upTo int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slot(slot)
	s.mark, s.marked = upTo, true
	return nil
}

// Marks implements Index's.
func (m *Memory) Marks(_ context.Context, slots []int) (map[int]int64, error) {
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

// Next implements Index's.
func (m *Memory) Next(_ context.Context, from []SlotPos) ([]SlotPos, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next []SlotPos
	for _, at := range from {
		s := m.slots[at.Slot]
		if s == nil {
			continue
		}
		if i := s.behind(at.Pos); i < len(s.line) {
			next = append(next, SlotPos{Slot: at.Slot, Pos: s.line[i].Pos})
		}
	}
	return next, nil
}

// Count implements Index's.
func (m *Memory) Count(_ context.Context, slot int, from, to int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[slot]
	if s == nil {
		return 0, nil
	}
	return int64(len(s.between(from, to))), nil
}

// Counts implements Index's.
func (m *Memory) Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error) {
	out := make([]int64, max(len(bounds)-1, 0))
	for i := range out {
		for _, slot := range slots {
			n, _ := m.Count(ctx, slot, bounds[i], bounds[i+1])
			out[i] += n
		}
	}
	return out, nil
}

// Range implements Index's.
func (m *Memory) Range(_ context.Context, slot int, from, to int64) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[slot]
	if s == nil {
		return nil, nil
	}
	return slices.Clone(s.between(from, to)), nil
}

// Members implements Index's.
func (m *Memory) Members(ctx context.Context, slot int) ([]Entry, error) {
	return m.Range(ctx, slot, -maxScore-1, maxScore)
}

// Wake implements Index's.
func (m *Memory) Wake(_ context.Context, at []SlotPos) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.listeners {
		for _, s := range at {
			l.pending.add(s)
		}
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
	return nil
}

// Wakes implements Index's.
func (m *Memory) Wakes(ctx context.Context) <-chan []SlotPos {
	l, out := &listener{pending: wakes{}, news: make(chan struct{}, 1)}, make(chan []SlotPos)
	m.mu.Lock()
	m.listeners[l] = true
	m.mu.Unlock()
	go func() {
		defer close(out)
		defer m.forget(l)
		for {
			var send chan<- []SlotPos
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

func (m *Memory) waiting(l *listener) []SlotPos {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.pending.list()
}

// took keeps what arrived while batch was being sent.
func (m *Memory) took(l *listener, batch []SlotPos) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range batch {
		if l.pending[keyOf(s)] == s.Pos {
			delete(l.pending, keyOf(s))
		}
	}
}

func (m *Memory) forget(l *listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.listeners, l)
}
