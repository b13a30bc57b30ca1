package shardmap

import "sync/atomic"

// Known is the latest rules of a process. Without any, every target is at Home.
type Known struct{ now atomic.Pointer[Map] }

// Learn keeps a copy of the rules if the copy knows more. No rule in force ever goes.
func (k *Known) Learn(m *Map) {
	for {
		was := k.now.Load()
		if was != nil && was.steps() >= m.steps() || k.now.CompareAndSwap(was, m) {
			return
		}
	}
}

// Following reports whether tasks of a target are on the way to its home.
func (k *Known) Following(target string) bool {
	m := k.now.Load()
	if m == nil {
		return false
	}
	r := m.Following()
	return r != nil && m.Home(target) == r.Shard && r.Matches(target)
}

// Homes returns the present home of a target, then the former ones, the latest first.
func (k *Known) Homes(target string) []int {
	if m := k.now.Load(); m != nil {
		return m.Homes(target)
	}
	return []int{Home}
}
