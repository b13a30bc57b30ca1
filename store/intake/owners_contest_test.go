package intake

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
)

func TestNeverTwoEffectiveOwners(t *testing.T)        { holds(t, owners) }
func TestTwoEffectiveOwnersAreNoticed(t *testing.T)   { notices(t, noEpochCheck, owners) }
func TestAcquiringWithoutALockIsNoticed(t *testing.T) { notices(t, noExclusiveLock, acquirers) }

// owners lets four of them take the slots from one another while they claim and settle. What an owner starts after another's
// Acquire has returned must fail, and the epochs of what succeeds must never fall.
func owners(s *fixture) *violations {
	const terms, steps = 12, 6
	v := &violations{}
	stores := []*store.Store{s.Store, s.rival()}
	slots := s.allSlots()
	var acquired atomic.Int64 // the highest epoch whose Acquire has returned
	var pos atomic.Int64
	effective := func(what string, epoch, before int64, err error) {
		switch {
		case err == nil && before > epoch:
			v.add("%s under epoch %d took effect after epoch %d had been acquired", what, epoch, before)
		case err != nil && !errors.Is(err, handle.ErrFenced):
			v.fail(err)
		}
	}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			st := stores[n%2]
			for range terms {
				epoch, err := New(st).Line().NextEpoch(s.ctx)
				if err != nil {
					v.fail(err)
					return
				}
				taken, err := New(st).Line().Acquire(s.ctx, slots, epoch, string(rune('a'+n)))
				if err != nil {
					v.fail(err)
					return
				}
				if len(taken) < len(slots) {
					continue // a later one was faster
				}
				raise(&acquired, epoch)
				for range steps {
					before := acquired.Load()
					effective("a claim", epoch, before, claimTo(s.ctx, st, slots, epoch, pos.Add(1+rand.Int64N(3))))
					before = acquired.Load()
					settled, err := New(st).Line().Settle(s.ctx, []line.Done{{Slot: slots[0], Epoch: epoch, From: 0, To: 1}}, nil, store.At(1))
					if len(settled.Fenced) > 0 {
						err = handle.ErrFenced
					}
					effective("a settlement", epoch, before, err)
				}
			}
		})
	}
	wg.Wait()
	return v
}

func raise(a *atomic.Int64, to int64) {
	for {
		if old := a.Load(); old >= to || a.CompareAndSwap(old, to) {
			return
		}
	}
}

// acquirers take one slot at the same moment, each under an epoch of its own. Each is told how it found the slot: no two
// may have found it the same, and the highest epoch has it in the end.
func acquirers(s *fixture) *violations {
	v := &violations{}
	stores := []*store.Store{s.Store, s.rival()}
	for round := range int64(40) {
		var wg sync.WaitGroup
		found := make([]int64, 6)
		for n := range found {
			wg.Go(func() {
				found[n] = -1
				taken, err := New(stores[n%2]).Line().Acquire(s.ctx, []int{0}, round*100+int64(n)+1, "me")
				if err != nil {
					v.fail(err)
				} else if len(taken) == 1 {
					found[n] = taken[0].Epoch
				}
			})
		}
		wg.Wait()
		seen := map[int64]bool{}
		for _, epoch := range found {
			if epoch >= 0 && seen[epoch] {
				v.add("two owners took the slot over from epoch %d", epoch)
			}
			seen[epoch] = true
		}
		slots, err := s.Slots(s.ctx)
		if err != nil {
			v.fail(err)
		} else if want := round*100 + int64(len(found)); slots[0].Epoch != want {
			v.add("the slot is left to epoch %d, below %d", slots[0].Epoch, want)
		}
	}
	return v
}

func TestAcquirersTakeTurns(t *testing.T) { holds(t, acquirers) }

func TestReleasedOwnersClaimNothing(t *testing.T)     { holds(t, leavers) }
func TestClaimsBesideAReleaseAreNoticed(t *testing.T) { notices(t, noReleaseCheck, leavers) }

// leavers claim from one process and give back from another, in turns. Nothing that is asked for once a slot was given back may
// succeed, and the next owner must find it drained.
func leavers(s *fixture) *violations {
	v := &violations{}
	stores := []*store.Store{s.Store, s.rival()}
	slots := s.allSlots()
	pos := int64(0)
	for range 25 {
		epoch, err := s.NextEpoch(s.ctx)
		if err != nil {
			v.fail(err)
			return v
		}
		taken, err := s.Acquire(s.ctx, slots, epoch, "me")
		if err != nil {
			v.fail(err)
			return v
		}
		for _, slot := range taken {
			if slot.Claimed != slot.Done {
				v.add("slot %d was given back, and (%d, %d] is in doubt", slot.Slot, slot.Done, slot.Claimed)
			}
		}
		var gone atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 200 {
				pos++
				before := gone.Load()
				err := claimTo(s.ctx, stores[1], slots, epoch, pos)
				if err == nil && before {
					v.add("a claim up to %d took effect after all slots were given back", pos)
				}
				if err != nil {
					if !errors.Is(err, handle.ErrFenced) {
						v.fail(err)
					}
					return
				}
			}
		})
		wg.Go(func() { leave(stores[0], s, v, epoch, &gone) })
		wg.Wait()
	}
	return v
}

// leave settles and gives back until nothing is kept.
func leave(st *store.Store, s *fixture, v *violations, epoch int64, gone *atomic.Bool) {
	for {
		all, err := st.Slots(s.ctx)
		if err != nil {
			v.fail(err)
			return
		}
		var done []line.Done
		var held []int
		for _, slot := range all {
			if slot.Owner == "" {
				continue
			}
			held = append(held, slot.Slot)
			if slot.Done < slot.Claimed {
				done = append(done, line.Done{Slot: slot.Slot, Epoch: epoch, From: slot.Done, To: slot.Claimed})
			}
		}
		if _, err := New(st).Line().Settle(s.ctx, done, nil, store.At(1)); err != nil {
			v.fail(err)
			return
		}
		kept, err := New(st).Line().Release(s.ctx, held, epoch)
		if err != nil {
			v.fail(err)
			return
		}
		if len(kept) == 0 {
			gone.Store(true)
			return
		}
	}
}
