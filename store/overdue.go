package store

import "context"

// Overdue returns the slots that are behind, whoever owns them. In unclaimed, the first task beyond
// claimed was due before the given time (Unix ms). In unsettled, the first task that is claimed and
// not settled was.
func (s *Store) Overdue(ctx context.Context, before int64) (unclaimed, unsettled []Slot, err error) {
	all, err := s.Slots(ctx)
	if err != nil {
		return nil, nil, err
	}
	bySlot := make(map[int]Slot, len(all))
	claimed, done := make([]SlotPos, len(all)), make([]SlotPos, len(all))
	for i, slot := range all {
		bySlot[slot.Slot] = slot
		claimed[i], done[i] = SlotPos{Slot: slot.Slot, Pos: slot.Claimed}, SlotPos{Slot: slot.Slot, Pos: slot.Done}
	}
	next, err := s.beyond(ctx, claimed)
	if err != nil {
		return nil, nil, err
	}
	open, err := s.beyond(ctx, done)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range next {
		if n.Pos < before {
			unclaimed = append(unclaimed, bySlot[n.Slot])
		}
	}
	for _, o := range open {
		if slot := bySlot[o.Slot]; o.Pos < before && o.Pos <= slot.Claimed {
			unsettled = append(unsettled, slot)
		}
	}
	return unclaimed, unsettled, nil
}
