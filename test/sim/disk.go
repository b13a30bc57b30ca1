package sim

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// written is the way of a process to the disk of its send log: each write meets the disk's condition and the process's gates.
func (n *node) written(p *process) func(write func() error) error {
	return func(write func() error) error {
		if err := p.gate(); err != nil {
			return err
		}
		c := n.disk.state(p)
		if c.refuse || n.disk.chance(c.before) {
			return syscall.ENOSPC
		}
		time.Sleep(c.delay)
		if !n.disk.await(p, false, nil, p.dead) {
			return errDead
		}
		if err := write(); err != nil {
			return err
		}
		n.w.intentWritten(n, p)
		if n.disk.chance(c.after) {
			return syscall.EIO
		}
		return p.gate()
	}
}

// diskTrouble is the disk of a send log in a bad way: slow, full, silent, or failing now and then. It is drawn on its own, so that
// what older seeds draw stays as it is.
func (w *world) diskTrouble() trouble {
	r := rand.New(rand.NewPCG(w.seed, 8))
	n := w.nodes[w.scanners+r.IntN(w.dispatchers)]
	t := trouble{at: time.Duration(r.Int64N(int64(w.load))), lasts: spans[r.IntN(len(spans))], target: fmt.Sprintf("the send log of %s", n.name), moves: true, copies: true}
	var c condition
	switch r.IntN(5) {
	case 0:
		t.kind, c.delay = "slow", pick(r, 5*time.Millisecond, 200*time.Millisecond, 3*time.Second)
	case 1:
		t.kind, c.refuse = "full", true
	case 2:
		t.kind, c.frozen = "silent", true
	case 3:
		t.kind, c.before = "failing before the effect", pick(r, 0.05, 0.3)
	case 4:
		t.kind, c.after = "failing after the effect", pick(r, 0.05, 0.3)
	}
	t.begin = func() { n.disk.set(c) }
	t.end = func() { n.disk.set(condition{}) }
	return t
}
