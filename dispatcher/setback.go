package dispatcher

import (
	"context"
	"errors"
	"sync"

	"github.com/notyet/notyet/store"
)

// lostClaims is how far slots were claimed here that were abandoned. If the database was set back, it may have forgotten a part of that,
// and what was staged here may have been sent. So that part is claimed again before the slot is taken anew: it is in doubt then, and
// nobody can cancel it.
type lostClaims struct {
	mu      sync.Mutex
	claimed map[int]int64 // by slot
}

func (c *lostClaims) note(slot int, claimed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claimed == nil {
		c.claimed = map[int]int64{}
	}
	c.claimed[slot] = max(c.claimed[slot], claimed)
}

// of returns how far the slots were claimed.
func (c *lostClaims) of(slots []int) (out []store.SlotPos) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, slot := range slots {
		if pos, known := c.claimed[slot]; known {
			out = append(out, store.SlotPos{Slot: slot, Pos: pos})
		}
	}
	return out
}

// taken forgets slots that are taken anew.
func (c *lostClaims) taken(slots []store.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slots {
		delete(c.claimed, s.Slot)
	}
}

// confirm makes slots sure again: the database was started anew, and it has not forgotten a claim of them. from is how far each was
// claimed here. A claim that comes first confirms as well.
func (o *ownership) confirm(ctx context.Context, slots []store.Slot, from []int64) error {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for i, s := range slots {
		if err := o.store.Claim(bound, []int{s.Slot}, from[i:i+1], s.Epoch, s.Claimed); err != nil && !errors.Is(err, store.ErrFenced) {
			return err
		}
	}
	return nil
}
