package dispatcher

import (
	"context"
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store/line"
)

const (
	// warmPage bounds one read and one run of additions.
	warmPage = 5000
	// slack is how far the mark stays behind what scanners add by themselves, so that a task stored while the mark moves
	// is added by one or the other. It outlasts any transaction.
	slack = time.Minute
	// stride is how far the mark moves at least: the window is topped up now and then, not every time.
	stride = time.Minute
)

// warm loads what the marks do not cover yet, the nearest first, and lets go of what is settled.
func (ix *indexer) warm(ctx context.Context) error {
	views := ix.flight.Views()
	marks, err := ix.index.Marks(ctx, slotsOf(views))
	if err != nil {
		return err
	}
	upTo := ix.clock.Millis() + (ix.cfg.Window - min(slack, ix.cfg.Window/2)).Milliseconds()
	trim := make([]index.SlotPos, len(views))
	for i, v := range views {
		trim[i] = index.SlotPos{Slot: v.Slot, Pos: v.Done}
		mark, warm := marks[v.Slot]
		switch {
		case !warm:
			ix.metrics.rebuilds.Inc()
			mark = v.Done
		case upTo-mark < min(stride, ix.cfg.Window/4).Milliseconds():
			continue
		}
		if err := ix.load(ctx, v.Slot, max(mark, v.Done), upTo); err != nil {
			return err
		}
	}
	return ix.index.Trim(ctx, trim)
}

// load adds (from, upTo] of a slot to the index, page by page, then moves the mark.
func (ix *indexer) load(ctx context.Context, slot int, from, upTo int64) error {
	for at := from; at < upTo; {
		to, more, err := ix.line.Nth(ctx, line.Range{Slot: slot, From: at, To: upTo}, warmPage)
		if err != nil {
			return err
		}
		if !more {
			to = upTo
		}
		entries, err := ix.line.Entries(ctx, []line.Range{{Slot: slot, From: at, To: to}})
		if err != nil {
			return err
		}
		add := make([]index.Entry, len(entries))
		for i, e := range entries {
			add[i] = index.Entry{Slot: slot, Pos: e.Pos, Seq: e.Seq}
		}
		if err := faultpoint.At(faultpoint.DispatcherWindow); err != nil {
			return err
		}
		if err := ix.index.Add(ctx, add); err != nil {
			return err
		}
		at = to
	}
	return ix.index.SetMark(ctx, slot, upTo)
}
