package election

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// localPoll is how often Local checks whether the number of slots has changed.
const localPoll = 5 * time.Second

// Local is the Source of a single process (notyet dev), always trusted and owner of all slots, with
// one epoch per start and one more for each change of the number of slots.
type Local struct {
	member  string
	slots   func(ctx context.Context) (int, error)
	epochs  Epochs
	watch   chan struct{}
	current atomic.Pointer[Assignment]
}

var _ Source = (*Local)(nil)

// NewLocal prepares a single member. slots returns the number of slots, from the database.
func NewLocal(memberID string, slots func(ctx context.Context) (int, error), epochs Epochs) *Local {
	l := &Local{member: memberID, slots: slots, epochs: epochs, watch: make(chan struct{}, 1)}
	l.current.Store(&Assignment{})
	return l
}

// Run allocates an epoch and holds all slots until ctx ends. It fails only at the start.
func (l *Local) Run(ctx context.Context) error {
	if err := l.refresh(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // it was stopped before it began
		}
		return err
	}
	loop.Every(ctx, localPoll, func(ctx context.Context) { _ = l.refresh(ctx) }) // a failure changes nothing; the next try is one tick away
	return nil
}

// refresh assigns all slots under a new epoch after a change of the number.
func (l *Local) refresh(ctx context.Context) error {
	n, err := l.slots(ctx)
	if err != nil {
		return fmt.Errorf("reading the number of slots: %w", err)
	}
	if cur := l.current.Load(); cur.Epoch > 0 && len(cur.Slots) == n {
		return nil
	}
	epoch, err := l.epochs.NextEpoch(ctx)
	if err != nil {
		return fmt.Errorf("taking an epoch: %w", err)
	}
	l.current.Store(&Assignment{Epoch: epoch, Slots: firstSlots(n), Members: []string{l.member}})
	signal(l.watch)
	return nil
}

// Watch implements Source.
func (l *Local) Watch() <-chan struct{} { return l.watch }

// Current implements Source.
func (l *Local) Current() Assignment { return *l.current.Load() }

// Trusted implements Source: nobody else can take over.
func (l *Local) Trusted() bool { return true }

// Report implements Source: nobody else could do the work.
func (l *Local) Report(error) {}

// Alive implements Source: every other id is an earlier start of this process.
func (l *Local) Alive(member string) bool { return member == l.member }

// signal leaves a token unless one is waiting already.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func firstSlots(n int) []int {
	slots := make([]int, n)
	for i := range slots {
		slots[i] = i
	}
	return slots
}
