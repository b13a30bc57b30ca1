package bench

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// Failover puts a steady load on the installation. After the warm-up it kills the dispatcher with
// the given process id by SIGKILL; with pid 0 it asks for a kill. It measures for `last` from then
// on.
func (b *Bench) Failover(ctx context.Context, rate, pid int, warmUp, last time.Duration) (*Result, error) {
	at := time.Now().Add(warmUp + longestDelay)
	killed := make(chan error, 1)
	go func() { killed <- b.kill(ctx, pid, at) }()
	t, l, err := b.flow(ctx, rate, shortestDelay, &tally{from: at.UnixMilli(), to: at.Add(last).UnixMilli(), killed: at.UnixMilli()})
	if err != nil {
		return nil, err
	}
	if err := <-killed; err != nil {
		return nil, err
	}
	r := newResult("failover", int(l.sent))
	r.figure("asked_per_s", float64(rate))
	r.delivered(t)
	if t.firstLate > 0 {
		r.figure("gap_s", float64(t.firstLate-t.killed)/1000)
		r.figure("caught_up_after_s", float64(t.lastLate-t.killed)/1000)
	}
	if pid == 0 {
		r.note("the kill is taken to have been when it was asked for")
	}
	if t.firstLate == 0 {
		r.note("no delivery was late by %d ms: nothing was killed, or it had no slots", takeoverLateness)
	}
	return r, nil
}

func (b *Bench) kill(ctx context.Context, pid int, at time.Time) error {
	if err := loop.Rest(ctx, time.Until(at)); err != nil {
		return err
	}
	if pid == 0 {
		b.cfg.Say("NOW: kill a dispatcher (kill -9)")
		return nil
	}
	b.cfg.Say("killing process %d", pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return nil
}
