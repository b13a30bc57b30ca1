package look

import (
	"context"

	"github.com/notyet/notyet/store/internal/handle"
)

// Behind are late deliveries, whoever owns the slots.
type Behind struct {
	Unclaimed []handle.Slot // their first task beyond claimed was due before the time asked about
	Unsettled []handle.Slot // their first task that is claimed and not settled was
	Next      int64         // the place of the first task of all slots that is not settled, Unix ms; 0: there is none
}

// Overdue returns the slots that are behind the given time, Unix ms.
func (r Reader) Overdue(ctx context.Context, before int64) (out Behind, err error) {
	err = r.view(ctx, func(v view) error {
		next, err := v.beyond(ctx, func(s handle.Slot) int64 { return s.Claimed })
		if err != nil {
			return err
		}
		open, err := v.open(ctx)
		if err != nil {
			return err
		}
		for _, n := range next {
			if n.Pos < before {
				out.Unclaimed = append(out.Unclaimed, v.bySlot[n.Slot])
			}
		}
		for _, o := range open {
			if out.Next == 0 || o.Pos < out.Next {
				out.Next = o.Pos
			}
			if slot := v.bySlot[o.Slot]; o.Pos < before && o.Pos <= slot.Claimed {
				out.Unsettled = append(out.Unsettled, slot)
			}
		}
		return nil
	})
	return out, err
}
