package shardmap

import "sync/atomic"

// Known is the latest rules that a process knows. Without any, every target is at Home.
type Known struct{ now atomic.Pointer[Map] }

// Learn keeps a copy of the rules if it has more of them. None that is in force ever goes.
func (k *Known) Learn(m *Map) {
	for {
		was := k.now.Load()
		if was != nil && was.InForce() >= m.InForce() || k.now.CompareAndSwap(was, m) {
			return
		}
	}
}

// Homes returns where a target lives, then where it lived before, the latest first.
func (k *Known) Homes(target string) []int {
	if m := k.now.Load(); m != nil {
		return m.Homes(target)
	}
	return []int{Home}
}
