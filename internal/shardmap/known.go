package shardmap

import "sync/atomic"

// Known is the latest rules of a process. Without any, every target is at Home.
type Known struct{ now atomic.Pointer[Map] }

// Learn keeps a copy of the rules if the copy has more in force. No rule in force ever goes.
func (k *Known) Learn(m *Map) {
	for {
		was := k.now.Load()
		if was != nil && was.InForce() >= m.InForce() || k.now.CompareAndSwap(was, m) {
			return
		}
	}
}

// Homes returns the present home of a target, then the former ones, the latest first.
func (k *Known) Homes(target string) []int {
	if m := k.now.Load(); m != nil {
		return m.Homes(target)
	}
	return []int{Home}
}
