package dispatcher

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/election"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/line"
)

// ownership keeps the owned slots in step with the assignment. Its loop takes and gives slots; the
// claim and settle loops call fenced.
type ownership struct {
	*shared
	flight flight.Owning
	trust  *trust
	sent   *sendlog.Log
	waits  map[int]wait  // of the owner loop: for slots that are assigned here, by slot
	asked  bool          // of the owner loop: for another look at what was committed, because the database has forgotten claims
	unsure bool          // of the owner loop: slots that are being taken were unsure
	seeing chan struct{} // holds a token while slots are read and taken in: one reading after the other
	failed atomic.Int32  // readings of entries that failed in a row; any loop that finds a slot lost may read
}

func newOwnership(sh *shared, fl flight.Owning, tr *trust, sent *sendlog.Log) *ownership {
	return &ownership{shared: sh, flight: fl, trust: tr, sent: sent, waits: map[int]wait{}, seeing: make(chan struct{}, 1)}
}

// run keeps the owned slots in step with the assignment: it gives drained slots to their new
// owners, and takes slots assigned here, once the owner has let go or is gone.
func (o *ownership) run(ctx context.Context) {
	const again = 50 * time.Millisecond // while slots are waited for
	failures := 0
	for ctx.Err() == nil {
		pause := time.Second
		switch settled, err := o.follow(ctx); {
		case err != nil:
			failures++
			if ctx.Err() == nil {
				o.log.Warn("taking slots failed, trying again", zap.Error(err))
			}
			pause = pauseAfter(failures)
		case !settled:
			failures, pause = 0, again
		default:
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-o.trust.members.Watch():
		case <-o.kicks.Own:
		case <-time.After(pause):
		}
	}
}

// follow tells whether ownership is as assigned.
func (o *ownership) follow(ctx context.Context) (bool, error) {
	if !o.trust.members.Trusted() {
		o.trust.suspended.lose()
		o.waitFor(nil) // what is assigned is not known
		return false, nil
	}
	if o.trust.suspended.active() {
		if err := o.verify(ctx); err != nil {
			return false, err
		}
	}
	assigned := o.trust.members.Current()
	if o.flight.Stopping() {
		assigned.Slots = nil
	}
	if done, err := o.giveAway(ctx, assigned); !done || err != nil {
		return false, err
	}
	missing := o.flight.Missing(assigned.Slots)
	if o.waitFor(missing); len(missing) > 0 {
		if err := o.take(ctx, assigned, missing); err != nil {
			return false, err
		}
	}
	return o.flight.AsAssigned(assigned.Slots), nil
}

// verify ends a suspension: slots taken by another meanwhile are abandoned, with all their staged
// tasks.
func (o *ownership) verify(ctx context.Context) error {
	look, had := o.trust.suspended.look(), o.flight.Known()
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	slots, err := o.store.Slots(bound)
	if err != nil {
		return err
	}
	if err := o.compare(ctx, slots, had); err != nil {
		return err
	}
	o.trust.suspended.end(look)
	o.kicks.Claim.Now()
	o.kicks.Release.Now()
	o.log.Info("the slots are as the election says")
	return nil
}

// compare holds slots, as they were read, against their state before the reading.
func (o *ownership) compare(ctx context.Context, slots []store.Slot, before flight.Known) error {
	if err := o.confirm(ctx, o.flight.SlotsRead(slots, before)); err != nil {
		return err
	}
	return o.catchUp(ctx, slots)
}

// confirm makes slots sure again: the database was started anew, and has not forgotten a claim of
// them. An earlier claim confirms as well. A slot that has turned, or is not ours any more, is
// looked at again. Cancels may have waited for the slots: they are decided before the next claim.
func (o *ownership) confirm(ctx context.Context, slots []flight.Unsure) error {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if len(slots) == 0 {
		return nil
	}
	o.trust.copies.Settle()
	defer o.trust.copies.Settle() // a look may have come before the slots were sure
	for _, s := range slots {
		err := o.claim(bound, s.Turn, []int{s.Slot.Slot}, []int64{s.From}, s.Epoch, s.Claimed)
		if errors.Is(err, line.ErrLife) {
			return nil // confirmed by the sweep that follows the look
		}
		if err != nil && !errors.Is(err, store.ErrFenced) && !errors.Is(err, line.ErrTurned) {
			return err
		}
	}
	return nil
}

// claim claims in the life of the database at the last look for what it may have forgotten. In
// another one nothing is claimed before the next look.
func (o *ownership) claim(ctx context.Context, turn int64, slots []int, from []int64, epoch, to int64) error {
	life := o.trust.copies.Life()
	err := o.line.In(life).Claim(ctx, turn, slots, from, epoch, to)
	if errors.Is(err, line.ErrLife) {
		o.trust.copies.Renew(life)
	}
	return err
}

// lookAtSlots takes in how far slots may be claimed while their number changes.
func (o *ownership) lookAtSlots(ctx context.Context) error {
	_, err := o.readSlots(ctx)
	return err
}

func (o *ownership) readSlots(ctx context.Context) ([]store.Slot, error) {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	select {
	case o.seeing <- struct{}{}:
		defer func() { <-o.seeing }()
	case <-bound.Done():
		return nil, bound.Err()
	}
	rows, err := o.store.Slots(bound)
	if err == nil && o.flight.Turned(rows) { // perhaps to something that this program does not know
		err = o.store.CheckRequired(bound)
	}
	if err == nil {
		o.flight.SlotsSeen(rows)
	}
	return rows, err
}

// fenced abandons slots that the database has under another epoch.
func (o *ownership) fenced(ctx context.Context) {
	o.metrics.fenced.Inc()
	o.trust.suspended.lose()
	if err := o.verify(ctx); err != nil && ctx.Err() == nil {
		o.log.Warn("checking the slots failed", zap.Error(err))
	}
}

// take acquires the missing slots that are free: released, or their owner is gone from the
// election, or it was this process, also in the forgotten past of a database that was set back.
// Other owners get the time to drain, and are fenced when they do not.
func (o *ownership) take(ctx context.Context, assigned election.Assignment, missing []int) error {
	bound, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	slots, err := o.rows(bound, missing)
	if err != nil {
		return err
	}
	if o.mustAsk(slots) {
		return nil
	}
	var free []int
	for _, s := range slots {
		overdue := o.waited(s) > o.cfg.DrainTimeout+5*time.Second
		if s.Owner == "" || s.Owner == o.cfg.MemberID || !o.trust.members.Alive(s.Owner) || o.flight.HeldLater(s) || overdue {
			free = append(free, s.Slot)
		}
	}
	if len(free) == 0 {
		return nil
	}
	o.unsure = o.unsure || slices.ContainsFunc(slots, func(s store.Slot) bool { return s.Unsure })
	o.flight.Taking(free, assigned.Epoch)
	got, err := o.line.Acquire(bound, free, assigned.Epoch, o.cfg.MemberID, o.had(free))
	if err != nil {
		return err
	}
	if err := faultpoint.At(faultpoint.DispatcherAcquired); err != nil {
		return err
	}
	if o.unsure { // cancels may wait for this owner
		o.trust.copies.Settle()
		o.unsure = false
	}
	if err := o.store.CheckRequired(bound); err != nil { // they may have turned to something that this program does not know
		return err
	}
	if err := o.begin(ctx, got, assigned.Epoch); err != nil {
		return err
	}
	o.flight.Clear(free, assigned.Epoch)
	if slices.ContainsFunc(got, func(s store.Slot) bool { return s.Changing() }) { // they may be claimed now; the changer may be busy for seconds
		return o.lookAtSlots(ctx)
	}
	return nil
}

// rows reads the rows of slots that are named in order.
func (o *ownership) rows(ctx context.Context, wanted []int) ([]store.Slot, error) {
	slots, err := o.store.Slots(ctx)
	return slices.DeleteFunc(slots, func(s store.Slot) bool { _, found := slices.BinarySearch(wanted, s.Slot); return !found }), err
}

// mustAsk says whether a look at what was committed comes before slots are taken or given away: the
// database has forgotten claims, and maybe requests as well.
func (o *ownership) mustAsk(slots []store.Slot) bool {
	before := o.asked
	o.asked = slices.ContainsFunc(slots, o.flight.Forgotten)
	if o.asked && !before {
		o.trust.copies.Ask()
	}
	asking, _ := o.trust.copies.Verdict()
	return o.asked && asking
}

// had is the knowledge here of slots about to be taken or given away. If the database lacks
// requests, had leaves out how far slots were claimed: tasks cancelled since would be in doubt, and
// sent. Tasks delivered and settled since can be cancelled, or are sent again, with the same key.
func (o *ownership) had(slots []int) line.Known {
	known := o.flight.Had(slots)
	if _, behind := o.trust.copies.Verdict(); behind {
		for i := range known.Slots {
			known.Slots[i].Pos, known.Slots[i].Reach = 0, 0
		}
	}
	return known
}

// wait is for one owner to let go of a slot.
type wait struct {
	epoch int64 // of its owner
	since time.Time
}

// waited returns how long a slot's owner has been waited for. The assignment may have changed
// since, as long as it gives the slot to us.
func (o *ownership) waited(s store.Slot) time.Duration {
	w, ok := o.waits[s.Slot]
	if !ok || w.epoch != s.Epoch {
		w = wait{s.Epoch, time.Now()}
		o.waits[s.Slot] = w
	}
	return time.Since(w.since)
}

// waitFor ends the waits for all slots but the missing ones, ascending: owners may keep the rest.
// Where none is missing, what the database forgets next is asked about anew.
func (o *ownership) waitFor(missing []int) {
	o.asked = o.asked && len(missing) > 0
	maps.DeleteFunc(o.waits, func(slot int, _ wait) bool {
		_, waits := slices.BinarySearch(missing, slot)
		return !waits
	})
}

// readWithin bounds a reading of tasks claimed or in doubt, after so many failures: there may be
// millions of tasks.
func readWithin(failures int) time.Duration { return answerWithin * time.Duration(min(failures+1, 8)) }

// readEntries reads tasks claimed or in doubt. After a failure it has longer, because every caller
// calls again.
func (o *ownership) readEntries(ctx context.Context, read func(context.Context, []line.Range) ([]line.Entry, error), ranges []line.Range) ([]line.Entry, error) {
	bound, cancel := context.WithTimeout(ctx, readWithin(int(o.failed.Load())))
	defer cancel()
	entries, err := read(bound, ranges)
	if err != nil {
		o.failed.Add(1)
	} else {
		o.failed.Store(0)
	}
	return entries, err
}

// begin starts on acquired slots. Tasks claimed and not closed by the previous owner are in doubt:
// they are sent again, with the same id and attempt, less those acknowledged by the send log here.
func (o *ownership) begin(ctx context.Context, got []store.Slot, epoch int64) error {
	var doubts []line.Range
	for _, s := range got {
		if s.Done < s.Claimed {
			doubts = append(doubts, line.Range{Slot: s.Slot, From: s.Done, To: s.Claimed})
		}
	}
	entries, err := o.readEntries(ctx, o.line.Doubts, doubts)
	if err != nil {
		return err
	}
	proven := o.proofsOf(ctx, entries)
	o.flight.Took(got, epoch, entries, proven)
	slots := make([]int, len(got))
	for i, s := range got {
		slots[i] = s.Slot
	}
	o.log.Info("took slots", zap.Ints("slots", slots), zap.Int64("epoch", epoch), zap.Int("in_doubt", len(entries)))
	return nil
}

const (
	// proofsWithin bounds how long a takeover waits for its send log: tasks without a proof by then
	// are sent again.
	proofsWithin = 10 * time.Second
	// proofsBack is how far back the send log is read at most.
	proofsBack = time.Hour
	// proofsSlack is for the database's clock, which may have been corrected since an entry of the
	// send log. It also covers tasks that stand behind a long look-ahead, later than they are due.
	proofsSlack = 2 * time.Minute
)

// loggedSince returns from when on the send log is read for tasks of which the first stands at a
// place. Nothing is sent before it is due. But a place beyond every look-ahead says nothing: it
// lies behind claims made before the database's clock was set back.
func (o *ownership) loggedSince(first int64) time.Time {
	now := o.clock.Now()
	since, back := time.UnixMilli(first).Add(-proofsSlack), now.Add(-proofsBack)
	if ahead := max(o.cfg.LookAhead, o.cfg.BurstLookAhead); since.Before(back) || first > now.Add(ahead).UnixMilli() {
		since = back
	}
	return since
}

// proofsOf reads what the send log proves of tasks in doubt.
func (o *ownership) proofsOf(ctx context.Context, entries []line.Entry) flight.Proofs {
	if len(entries) == 0 {
		return nil
	}
	doubted := make(map[int64]struct{}, len(entries))
	first := int64(math.MaxInt64)
	for _, e := range entries {
		doubted[e.Seq] = struct{}{}
		first = min(first, e.Pos)
	}
	bound, cancel := context.WithTimeout(ctx, proofsWithin)
	defer cancel()
	acked, err := o.sent.Acked(bound, o.loggedSince(first), func(seq int64) bool { _, ok := doubted[seq]; return ok })
	if err != nil {
		o.log.Warn("reading the send log failed: what it does not prove is sent again", zap.Error(err))
	}
	return flight.ProofsOf(acked)
}
