package dispatcher

import (
	"slices"
	"sync"
)

// strays are slots that the database may call ours and that we do not work on: they were taken and not begun because the call failed
// on the way, or abandoned because they did not drain. Each is begun or given back in the end; otherwise its next owner waits for us.
type strays struct {
	mu     sync.Mutex
	epochs map[int]int64 // by slot
}

func (h *strays) note(slots []int, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.epochs == nil {
		h.epochs = map[int]int64{}
	}
	for _, slot := range slots {
		h.epochs[slot] = epoch
	}
}

// settle forgets slots whose fate under an epoch is clear.
func (h *strays) settle(slots []int, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, slot := range slots {
		if h.epochs[slot] == epoch {
			delete(h.epochs, slot)
		}
	}
}

// without returns, by epoch, the slots that are not among the assigned ones.
func (h *strays) without(assigned []int) map[int64][]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[int64][]int{}
	for slot, epoch := range h.epochs {
		if _, mine := slices.BinarySearch(assigned, slot); !mine {
			out[epoch] = append(out[epoch], slot)
		}
	}
	return out
}

func (h *strays) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.epochs)
}
