package look

import (
	"context"

	"github.com/notyet/notyet/store/internal/handle"
)

// Behind is what is not delivered in time, whoever owns the slots.
type Behind struct {
	Unclaimed []handle.Slot // their first task beyond claimed was due before the time asked about
	Unsettled []handle.Slot // their first task that is claimed and not settled was
	Next      int64         // the place of the first task of all slots that is not settled, Unix ms; 0: there is none
}

// Overdue returns the slots that are behind the given time, Unix ms.
func (r Reader) Overdue(ctx context.Context, before int64) (Behind, error) {
	all, err := r.h.Slots(ctx)
	if err != nil {
		return Behind{}, err
	}
	bySlot := make(map[int]handle.Slot, len(all))
	claimed, done := make([]handle.SlotPos, len(all)), make([]handle.SlotPos, len(all))
	for i, slot := range all {
		bySlot[slot.Slot] = slot
		claimed[i], done[i] = handle.SlotPos{Slot: slot.Slot, Pos: slot.Claimed}, handle.SlotPos{Slot: slot.Slot, Pos: slot.Done}
	}
	next, err := r.h.Beyond(ctx, claimed)
	if err != nil {
		return Behind{}, err
	}
	open, err := r.h.Beyond(ctx, done)
	if err != nil {
		return Behind{}, err
	}
	var out Behind
	for _, n := range next {
		if n.Pos < before {
			out.Unclaimed = append(out.Unclaimed, bySlot[n.Slot])
		}
	}
	for _, o := range open {
		if out.Next == 0 || o.Pos < out.Next {
			out.Next = o.Pos
		}
		if slot := bySlot[o.Slot]; o.Pos < before && o.Pos <= slot.Claimed {
			out.Unsettled = append(out.Unsettled, slot)
		}
	}
	return out, nil
}
