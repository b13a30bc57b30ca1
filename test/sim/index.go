package sim

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/dispatcher"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/memindex"
)

// anyIndex is what the processes and the checks ask of the index, in memory or in Redis.
type anyIndex interface {
	scanner.Index
	dispatcher.Copy
	deadletter.Index
	Close()
}

// nearFuture is what the processes ask of the index, of either kind.
type nearFuture interface {
	scanner.Index
	dispatcher.Index
	Close()
}

// near is a process's way to what is next.
func (n *node) near(p *process, st *store.Store, log *zap.Logger) (nearFuture, error) {
	w := n.w
	if w.several > 0 {
		return n.cell.index(p), nil
	}
	if w.alone {
		return woken{Database: index.NewDatabase(st, kafka.Config{}, schemas.TopicWakes, "", log), by: hints{m: w.memory, s: w.kafkaSrv, p: p}}, nil
	}
	return w.indexOf(p, log)
}

// woken is the database as the index. Its wakes meet what Kafka meets, and do not go over a topic: the client would ask for records all the
// time, of which the seed's other faults are to be seen.
type woken struct {
	*index.Database
	by hints
}

func (w woken) Wake(ctx context.Context, at []index.SlotPos) error { return w.by.Wake(ctx, at) }
func (w woken) Wakes(ctx context.Context) <-chan []index.SlotPos   { return w.by.Wakes(ctx) }

// indexPatience is what the client of Redis waits for an answer at most, its second try included.
const indexPatience = 4 * time.Second

// hints is a process's way to the index in memory: each call meets the server's condition and the process's gates.
type hints struct {
	m *memindex.Index
	s *server
	p *process
}

var _ anyIndex = hints{}

func (h hints) Close() {}

// call does one thing on the server, as its condition and the process's let it. What is on its way to a frozen server when
// its caller gives up may still be done when the server is well.
func (h hints) call(ctx context.Context, effect func() error) error {
	if err := h.p.gate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	c := h.s.state(h.p)
	if c.refuse || h.s.chance(c.before) {
		return errRefused
	}
	if err := pause(ctx, c.delay); err != nil {
		return err
	}
	if !h.s.await(h.p, false, ctx.Done(), h.p.dead) {
		if h.s.chance(0.5) {
			go func() {
				h.s.await(h.p, false, nil, nil)
				_ = effect()
			}()
		}
		return cause(ctx)
	}
	if err := effect(); err != nil {
		return err
	}
	if h.s.chance(c.after) {
		return errLost
	}
	if !h.s.await(h.p, true, ctx.Done(), h.p.dead) {
		return cause(ctx)
	}
	return h.p.gate()
}

// asked is a call that has an answer, which the caller does not get when the call fails.
func asked[T any](ctx context.Context, h hints, ask func() (T, error)) (out T, err error) {
	got := make(chan T, 1) // what is done after the caller gave up is not the caller's any more
	err = h.call(ctx, func() error {
		answer, err := ask()
		if err == nil {
			got <- answer
		}
		return err
	})
	if err != nil {
		return out, err
	}
	return <-got, nil
}

func (h hints) Add(ctx context.Context, entries []index.Entry) error {
	return h.call(ctx, func() error { return h.m.Add(ctx, entries) })
}

func (h hints) Remove(ctx context.Context, entries []index.Entry) error {
	return h.call(ctx, func() error { return h.m.Remove(ctx, entries) })
}

func (h hints) Trim(ctx context.Context, upTo []index.SlotPos) error {
	return h.call(ctx, func() error { return h.m.Trim(ctx, upTo) })
}

func (h hints) Clear(ctx context.Context, slot int) error {
	return h.call(ctx, func() error { return h.m.Clear(ctx, slot) })
}

func (h hints) SetMark(ctx context.Context, slot int, upTo int64) error {
	return h.call(ctx, func() error { return h.m.SetMark(ctx, slot, upTo) })
}

func (h hints) Wake(ctx context.Context, at []index.SlotPos) error {
	return h.call(ctx, func() error { return h.m.Wake(ctx, at) })
}

func (h hints) Marks(ctx context.Context, slots []int) (map[int]int64, error) {
	return asked(ctx, h, func() (map[int]int64, error) { return h.m.Marks(ctx, slots) })
}

func (h hints) Next(ctx context.Context, from []index.SlotPos) ([]index.SlotPos, error) {
	return asked(ctx, h, func() ([]index.SlotPos, error) { return h.m.Next(ctx, from) })
}

func (h hints) Count(ctx context.Context, slot int, from, to int64) (int64, error) {
	return asked(ctx, h, func() (int64, error) { return h.m.Count(ctx, slot, from, to) })
}

func (h hints) Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error) {
	return asked(ctx, h, func() ([]int64, error) { return h.m.Counts(ctx, slots, bounds) })
}

func (h hints) Range(ctx context.Context, slot int, from, to int64) ([]index.Entry, error) {
	return asked(ctx, h, func() ([]index.Entry, error) { return h.m.Range(ctx, slot, from, to) })
}

// Wakes passes on what arrives while the server is well and the process goes; a subscription loses the rest.
func (h hints) Wakes(ctx context.Context) <-chan []index.SlotPos {
	out := make(chan []index.SlotPos)
	go func() {
		defer close(out)
		for at := range h.m.Wakes(ctx) {
			if c := h.s.state(h.p); c != (condition{}) && (c.frozen || c.mute || c.refuse || h.s.chance(c.before) || h.s.chance(c.after)) {
				continue
			}
			if h.p.gate() != nil {
				continue
			}
			select {
			case out <- at:
			case <-ctx.Done():
			}
		}
	}()
	return out
}
