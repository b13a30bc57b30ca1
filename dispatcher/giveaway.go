package dispatcher

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
)

// answerWithin bounds each call to take, claim or give back slots, and is longer than the database
// lets a statement wait for a lock.
const answerWithin = 15 * time.Second

// giveAway gives back slots assigned elsewhere. They claim no more, so they drain within the
// look-ahead; a slot that does not is given back all the same, and its next owner sends the tasks
// in doubt again. False: a look at what was committed comes first.
func (o *ownership) giveAway(ctx context.Context, assigned election.Assignment) (bool, error) {
	for epoch, slots := range o.flight.Leavers(assigned.Slots) {
		if err := faultpoint.At(faultpoint.DispatcherDrained); err != nil {
			return false, err
		}
		if err := o.release(ctx, slots, epoch); err != nil {
			return false, err
		}
	}
	strays := o.flight.Strays(assigned.Slots)
	if len(strays) == 0 {
		return true, nil
	}
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	rows, err := o.rows(bound, slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(strays))...))))
	if err != nil {
		return false, err
	}
	if o.mustAsk(rows) {
		return false, nil
	}
	for epoch, slots := range strays {
		if err := o.line.Abandon(bound, slots, epoch, o.had(slots)); err != nil {
			return false, err
		}
		o.flight.Clear(slots, epoch)
		o.log.Info("gave slots away that may hold tasks in doubt", zap.Ints("slots", slots), zap.Int64("epoch", epoch))
	}
	return true, nil
}

// release gives drained slots back. After an error they may be given back or not, so they stay as
// they are until the database says, even if they are assigned to this process again.
func (o *ownership) release(ctx context.Context, drained []int, epoch int64) error {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	kept, err := o.line.Release(bound, drained, epoch, o.flight.Had(drained))
	if err != nil {
		return err
	}
	gone := o.flight.Released(drained, epoch, kept)
	if len(gone) > 0 {
		o.log.Info("gave slots away", zap.Ints("slots", gone))
	}
	if len(kept) == 0 {
		return nil
	}
	slots, err := o.store.Slots(bound)
	if err != nil {
		return err
	}
	return o.catchUp(ctx, slots)
}

// catchUp takes in claims known only to the database: the replies to them were lost.
func (o *ownership) catchUp(ctx context.Context, slots []store.Slot) error {
	behind := o.flight.CatchUp(slots)
	if len(behind.Claims) == 0 {
		return nil
	}
	defer behind.End()
	entries, err := o.readEntries(ctx, o.line.Claimed, rangesOf(behind.Claims))
	if err != nil {
		return err
	}
	behind.Claimed(behind.Claims, entries)
	o.log.Info("added the tasks of a claim whose reply was lost", zap.Int("slots", len(behind.Claims)), zap.Int("tasks", len(entries)))
	return nil
}

func rangesOf(claims []flight.Claim) []line.Range {
	out := make([]line.Range, len(claims))
	for i, l := range claims {
		out[i] = line.Range{Slot: l.Slot, From: l.From, To: l.To}
	}
	return out
}
