package handle

import (
	"sync/atomic"
)

// claimedHint is the last claimed offset seen of each slot.
type claimedHint [4096]atomic.Int64

// LastClaimed is the last claimed offset seen of a slot. With it, most tasks get their final place before the lock is
// taken. It may be outdated: the place is judged again under the lock.
func (h *Handle) LastClaimed(slot int) int64 { return h.hint[slot].Load() }

// LearnClaimed notes what was read of slots.
func (h *Handle) LearnClaimed(slots map[int]Slot) {
	for n, slot := range slots {
		h.hint[n].Store(slot.Claimed)
	}
}
