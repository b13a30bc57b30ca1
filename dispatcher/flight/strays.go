package flight

import "slices"

// strays are slots that the database may call ours and that we do not work on: they were taken and not begun because the call failed
// on the way, or abandoned because they did not drain. Each is begun or given back in the end; otherwise its next owner waits for us. The
// epoch stands by slot.
type strays map[int]int64

func (h strays) note(slots []int, epoch int64) {
	for _, slot := range slots {
		h[slot] = epoch
	}
}

// settle forgets slots whose fate under an epoch is clear.
func (h strays) settle(slots []int, epoch int64) {
	for _, slot := range slots {
		if h[slot] == epoch {
			delete(h, slot)
		}
	}
}

// without returns, by epoch, the slots that are not among the assigned ones.
func (h strays) without(assigned []int) map[int64][]int {
	out := map[int64][]int{}
	for slot, epoch := range h {
		if _, mine := slices.BinarySearch(assigned, slot); !mine {
			out[epoch] = append(out[epoch], slot)
		}
	}
	return out
}

// Taking notes slots that are about to be taken: whatever comes of it, the database may call them ours.
func (fl *Flight) Taking(slots []int, epoch int64) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.strays.note(slots, epoch)
}

// Clear says that the fate of slots under an epoch is clear: they were begun, or given back.
func (fl *Flight) Clear(slots []int, epoch int64) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.strays.settle(slots, epoch)
}

// Strays returns, by epoch, the slots that the database may call ours, that we do not work on, and that are not assigned here.
func (fl *Flight) Strays(assigned []int) map[int64][]int {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.strays.without(assigned)
}

// AsAssigned says that the assigned slots are owned, and nothing else.
func (fl *Flight) AsAssigned(assigned []int) bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return len(fl.slots) == len(assigned) && len(fl.missing(assigned)) == 0 && len(fl.strays) == 0
}
