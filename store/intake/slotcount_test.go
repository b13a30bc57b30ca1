package intake

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	spreads "github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// takeAll makes me the owner of all slots under a new epoch, as after a takeover, and forgets what the owner before knew.
func (f *fixture) takeAll() {
	f.t.Helper()
	f.own()
}

func (f *fixture) slotRow(slot int) store.Slot {
	f.t.Helper()
	rows, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	return rows[slot]
}

// drain settles all that is claimed of the slots.
func (f *fixture) drain() {
	f.t.Helper()
	rows, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	var done []line.Done
	for _, s := range rows {
		entries, err := f.Entries(f.ctx, []line.Range{{Slot: s.Slot, From: s.Done, To: s.Claimed}})
		require.NoError(f.t, err)
		if s.Claimed > s.Done {
			done = append(done, line.Done{Slot: s.Slot, Epoch: f.epoch, From: s.Done, To: s.Claimed, Tally: tallyOf(entries)})
		}
	}
	settled, err := f.Settle(f.ctx, done, nil, store.At(f.now))
	require.NoError(f.t, err)
	require.Empty(f.t, settled.Mismatch)
}

// claimFar claims all slots as far as an owner may that has just looked, up to pos.
func (f *fixture) claimFar(pos int64) {
	f.t.Helper()
	rows, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	most := map[int]int64{}
	least := int64(math.MaxInt64)
	for _, r := range rows {
		if r.Split() {
			least = min(least, r.Moved)
		}
	}
	for _, r := range rows {
		most[r.Slot] = pos
		switch {
		case r.Split():
			most[r.Slot] = min(pos, r.Moved)
		case r.Changing() && !spreads.Leaving(r.Slot, r.Base, r.Target):
			most[r.Slot] = min(pos, least)
		}
		if r.Owner == "me" && r.Slot < r.Count() && most[r.Slot] > r.Claimed {
			require.NoError(f.t, f.Claim(f.ctx, r.Turn, []int{r.Slot}, []int64{r.Claimed}, f.epoch, most[r.Slot]))
		}
	}
}

// live reads all tasks that are to come, or in flight.
func (f *fixture) live() []task.Task {
	f.t.Helper()
	rows, err := tables.Fetch(f.ctx, f.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks t WHERE slot >= 0 AND pos > (SELECT done FROM slots s WHERE s.slot = t.slot) ORDER BY seq")
	require.NoError(f.t, err)
	return rows
}

func hashOf(t *testing.T, row task.Task) (key []byte, id string) {
	t.Helper()
	body, err := schemas.DecodeBody(row.Body)
	require.NoError(t, err)
	return body.Key, task.Hashed(row.Seq, row.Replay, row.ID)
}

// inPlace verifies that each task stands where the spread wants it, or in a slot that is split, further on than that slot is in order. Timers
// stand where the spread wants them.
func (f *fixture) inPlace(t *testing.T) {
	t.Helper()
	rows, err := f.Slots(f.ctx)
	require.NoError(t, err)
	required, err := f.h.Required(f.ctx)
	require.NoError(t, err)
	if rows[0].Changing() {
		require.Equal(t, []string{handle.Spread}, required)
	} else {
		require.Empty(t, required)
	}
	spread := handle.SpreadOf(rows)
	least := int64(math.MaxInt64)
	for _, r := range rows {
		if r.Split() {
			least = min(least, r.Moved)
		}
	}
	for _, r := range rows {
		if r.Split() {
			require.LessOrEqual(t, r.Claimed, r.Moved, "slot %d is claimed beyond what is in place", r.Slot)
		} else if r.Changing() && r.Slot < r.Count() && !spreads.Leaving(r.Slot, r.Base, r.Target) {
			require.LessOrEqual(t, r.Claimed, least, "slot %d takes tasks over and is claimed beyond what is in place", r.Slot)
		}
	}
	for _, row := range f.live() {
		key, id := hashOf(t, row)
		want := spread.Of(row.Topic, key, id)
		if row.Slot == want {
			continue
		}
		at := rows[row.Slot]
		first := spreads.Of(row.Topic, key, id, spread.Base())
		require.True(t, row.Slot == first && at.Split() && !at.InPlace(row.Pos), "task %s stands in slot %d at %d, and belongs to %d: that slot is in place up to %d, %d", row.ID, row.Slot, row.Pos, want, at.Moved, at.MovedHeld)
	}
	timers, err := tables.Fetch(f.ctx, f.db, tables.ScanTimer, "SELECT "+tables.TimerColumns+" FROM timers WHERE slot >= 0")
	require.NoError(t, err)
	for _, v := range timers {
		body, err := schemas.DecodeBody(v.Body)
		require.NoError(t, err)
		require.Equal(t, spread.Of(v.Topic, body.Key, v.ID), v.Slot, "timer %s", v.ID)
	}
}

// TestSlotsChangeWhileAllGoesOn draws steps of callers and owners, and of takeovers, between the steps of changes: after each of them every task
// stands where it belongs, or where it is not claimed. In the end all of them do, and none is lost.
func TestSlotsChangeWhileAllGoesOn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for seed := range uint64(4) {
			r := rand.New(rand.NewPCG(seed, 5))
			f.takeAll()
			shifts := map[int]*line.Shift{}
			splits, moves, finished := 0, 0, 0
			n := 0
			for step := range 250 {
				switch p := r.IntN(100); {
				case p < 30:
					f.someRequests(r, seed, &n)
				case p < 34:
					_, err := f.SetSlots(f.ctx, 1+r.IntN(9))
					require.NoError(t, err)
					f.takeAll()
				case p < 38: // a takeover: what the owner before knew is gone
					f.takeAll()
					clear(shifts)
				case p < 50:
					f.now += r.Int64N(5000)
					f.claimFar(f.now + 400)
				case p < 62:
					f.drain()
				case p < 66:
					f.make()
				case p < 70:
					f.holdSome(r)
				case p < 80:
					rows, err := f.Slots(f.ctx)
					require.NoError(t, err)
					s := rows[r.IntN(len(rows))]
					moved, err := f.Split(f.ctx, s.Slot, f.epoch, s.Claimed, f.now, nobodyWaits)
					if s.Owner == "me" && spreads.Leaving(s.Slot, s.Base, s.Target) && !s.Split() && s.Done < s.Claimed {
						require.ErrorIs(t, err, line.ErrBusy)
					} else if err == nil && f.slotRow(s.Slot).Split() && !s.Split() {
						splits++
						moves += len(moved.Added)
					}
				case p < 96:
					rows, err := f.Slots(f.ctx)
					require.NoError(t, err)
					for _, s := range rows {
						if s.Split() && !s.Whole() {
							if shifts[s.Slot] == nil || shifts[s.Slot].Epoch != f.epoch {
								shifts[s.Slot] = line.NewShift(s.Slot, f.epoch)
							}
							moved, err := f.MoveOn(f.ctx, shifts[s.Slot], f.now, nobodyWaits)
							require.NoError(t, err)
							moves += len(moved.Added)
							break
						}
					}
				default:
					done, err := f.FinishSlots(f.ctx)
					require.NoError(t, err)
					if done {
						finished++
						f.takeAll()
						clear(shifts)
					}
				}
				if step%5 == 0 {
					f.inPlace(t)
				}
			}
			f.finishAll(t)
			f.inPlace(t)
			g, err := f.Growth(f.ctx)
			require.NoError(t, err)
			require.True(t, g.Settled())
			require.Positive(t, splits)
			require.Positive(t, moves)
		}
	})
}

// finishAll carries a change out, and those that follow it.
func (f *fixture) finishAll(t *testing.T) {
	t.Helper()
	for range 2000 {
		g, err := f.Growth(f.ctx)
		require.NoError(t, err)
		if g.Settled() {
			return
		}
		f.takeAll()
		f.drain()
		rows, err := f.Slots(f.ctx)
		require.NoError(t, err)
		for _, s := range rows {
			if !spreads.Leaving(s.Slot, s.Base, s.Target) {
				continue
			}
			if !s.Split() {
				_, err := f.Split(f.ctx, s.Slot, f.epoch, s.Claimed, f.now, nobodyWaits)
				require.NoError(t, err)
			}
			sh := line.NewShift(s.Slot, f.epoch)
			for range 1000 {
				moved, err := f.MoveOn(f.ctx, sh, f.now, nobodyWaits)
				require.NoError(t, err)
				if moved.Whole {
					break
				}
			}
		}
		_, err = f.FinishSlots(f.ctx)
		require.NoError(t, err)
	}
	require.FailNow(t, "the change does not end")
}

// someRequests are of every kind, with keys and without.
func (f *fixture) someRequests(r *rand.Rand, seed uint64, n *int) {
	f.t.Helper()
	var records []any
	for range 1 + r.IntN(20) {
		id := fmt.Sprintf("%d-%d", seed, *n)
		if r.IntN(3) == 0 && *n > 0 {
			id = fmt.Sprintf("%d-%d", seed, r.IntN(*n)) // one that is known
		}
		*n++
		op := schemas.OpSchedule
		switch r.IntN(12) {
		case 0:
			op = schemas.OpCancel
		case 1:
			op = schemas.OpFire
		case 2:
			op = schemas.OpTimer
		case 3:
			op = schemas.OpTimerDisable
		}
		req := schemas.NewRequest(op, target, id)
		req.Accepted, req.Due, req.Value = f.now, f.now+r.Int64N(40_000), []byte("v")
		if r.IntN(10) == 0 {
			req.Due += 3_600_000
		}
		switch r.IntN(3) {
		case 0:
			req.Key = fmt.Appendf(nil, "k%d", r.IntN(20))
		case 1:
			req.Key = slices.Repeat([]byte{byte(r.IntN(5))}, 400) // longer than what is read of a body at first
		}
		if op == schemas.OpTimer {
			req.Timer = schemas.Timer{Every: time.Duration(5+r.IntN(20)) * time.Second, Timezone: "UTC"}
		}
		records = append(records, &req)
	}
	f.do(records...)
}

// holdSome moves some claimed tasks to held places, and puts some off.
func (f *fixture) holdSome(r *rand.Rand) {
	f.t.Helper()
	rows, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	var exits []line.Transition
	for _, row := range f.live() {
		if s := rows[row.Slot]; row.Pos > s.Claimed || row.Pos <= s.Done || r.IntN(2) == 0 {
			continue
		}
		e := line.Transition{Seq: row.Seq, Slot: row.Slot, Epoch: f.epoch, From: row.Pos, State: task.StateLine, Pos: task.Held(row.Due), Lane: f.lane(row.Topic, row.Class)}
		if r.IntN(3) == 0 {
			e.State, e.Pos, e.Attempt = task.StateRetry, f.now+r.Int64N(10_000), row.Attempt+1
		}
		exits = append(exits, e)
	}
	_, err = f.Settle(f.ctx, nil, exits, store.At(f.now))
	require.NoError(f.t, err)
}

// nobodyWaits says that no answer is waited for.
func nobodyWaits(int64) bool { return false }

// someThatLeave schedules tasks with keys of their own, due in a second, and returns those of one slot that belong to other ones of n slots.
func (f *fixture) someThatLeave(t *testing.T, n int) (slot int, ids []string) {
	t.Helper()
	var asked []any
	for i := range 60 {
		asked = append(asked, f.schedule(fmt.Sprintf("t%d", i)))
	}
	f.do(asked...)
	for _, row := range f.live() {
		if key, id := hashOf(t, row); row.Slot == 0 && spreads.Of(row.Topic, key, id, n) != 0 {
			ids = append(ids, row.ID)
		}
	}
	require.Greater(t, len(ids), 2)
	return 0, ids
}

// TestASplitLeavesWhatItsOwnerWaitsFor: a task that is with the producer was set aside, to a place that is near. Its answer is about the place in
// the slot that sent it. In another slot the answer would count for nothing, and the task would be sent once more.
func TestASplitLeavesWhatItsOwnerWaitsFor(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		_, err := f.SetSlots(f.ctx, 8)
		require.NoError(t, err)
		f.takeAll()
		slot, ids := f.someThatLeave(t, 8)
		f.now += time.Second.Milliseconds()
		f.claimFar(f.now)
		var aside []line.Transition
		for _, id := range ids {
			aside = append(aside, f.transition(id, task.StateRetry, f.now+10_000, 0))
		}
		f.settle(f.now, aside...)
		answered, unsent := f.row(ids[0]), f.row(ids[1])
		late := f.transition(answered.ID, task.StateSucceeded, f.now, 1)

		held := map[int64]bool{answered.Seq: true, unsent.Seq: true}
		waits := func(seq int64) bool { return held[seq] }
		moved, err := f.Split(f.ctx, slot, f.epoch, f.now, f.now, waits)
		require.NoError(t, err)
		require.Len(t, moved.Added, len(ids)-len(held))
		settled, err := f.Settle(f.ctx, nil, []line.Transition{late}, store.At(f.now))
		require.NoError(t, err)
		require.Empty(t, settled.Ignored, "the answer counts")
		require.Equal(t, "succeeded", f.state(answered.ID))

		sh := line.NewShift(slot, f.epoch)
		for range 5 {
			moved, err = f.MoveOn(f.ctx, sh, f.now, waits)
			require.NoError(t, err)
			require.False(t, moved.Whole)
		}
		require.Equal(t, slot, f.row(unsent.ID).Slot)
		clear(held)
		moved, err = f.MoveOn(f.ctx, sh, f.now, waits)
		require.NoError(t, err)
		require.True(t, moved.Whole)
		f.inPlace(t)
	})
}

// TestASlotThatAnOlderProgramClaimed: an owner that knows nothing of the change has claimed a split slot, and one that takes tasks over,
// beyond what is in place. The next owner delivers that, and moves the rest on.
func TestASlotThatAnOlderProgramClaimed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.scheduleMany(2000)
		_, err := f.SetSlots(f.ctx, 2*testSlots)
		require.NoError(t, err)
		f.takeAll()
		_, err = f.Split(f.ctx, 0, f.epoch, f.slotRow(0).Claimed, f.now, nobodyWaits)
		require.NoError(t, err)
		far := f.now + (time.Hour + 500*time.Second).Milliseconds()
		require.Less(t, f.slotRow(0).Moved, far)
		_, err = f.db.ExecContext(f.ctx, "UPDATE slots SET claimed = ? WHERE slot IN (0, ?)", far, testSlots)
		require.NoError(t, err)

		f.takeAll()
		sh := line.NewShift(0, f.epoch)
		for range 20 {
			moved, err := f.MoveOn(f.ctx, sh, f.now, nobodyWaits)
			require.NoError(t, err)
			require.False(t, moved.Whole)
		}
		require.True(t, sh.Waits(), "some are claimed here")
		require.Greater(t, f.slotRow(0).Moved, far, "others are not held up")
		f.drain()
		moved, err := f.MoveOn(f.ctx, sh, f.now, nobodyWaits)
		require.NoError(t, err)
		require.True(t, moved.Whole)
		f.finishAll(t)
		f.inPlace(t)
	})
}

// TestSlotsThatCameAndWent: a process that has placed nothing meanwhile knows a spread that is right, but none of the slots that were made and
// given up since. A task that was delivered there has ended for it as for others.
func TestSlotsThatCameAndWent(t *testing.T) {
	for name, ask := range map[string]struct {
		request func(f *fixture, id string) *schemas.Request
		want    schemas.State
	}{
		"cancel": {func(f *fixture, id string) *schemas.Request { return f.cancel(id) }, schemas.StateTooLate},
		"fire":   {func(f *fixture, id string) *schemas.Request { return f.fire(id) }, schemas.StateTooLate},
		"keep":   {func(f *fixture, id string) *schemas.Request { return f.schedule(id, keep) }, schemas.StateScheduled},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *fixture) {
				f.takeAll()
				f.do(f.schedule("first"))
				before := handle.New(f.h.Config)
				_, err := before.SpreadIn(f.ctx, f.db)
				require.NoError(t, err)
				_, err = f.SetSlots(f.ctx, 2*testSlots)
				require.NoError(t, err)
				f.finishAll(t)
				n := 0
				for spreads.Of(target, fmt.Appendf(nil, "t%d", n), "", 2*testSlots) < testSlots {
					n++
				}
				id := fmt.Sprintf("t%d", n)
				f.takeAll()
				f.do(f.schedule(id))
				f.now += time.Second.Milliseconds()
				f.deliver(f.now)
				_, err = f.SetSlots(f.ctx, testSlots)
				require.NoError(t, err)
				f.finishAll(t)
				require.GreaterOrEqual(t, f.row(id).Slot, testSlots)

				f.handleAs(before)
				require.Equal(t, ask.want, f.answer(ask.request(f, id)))
				if ask.want == schemas.StateScheduled {
					require.Less(t, f.row(id).Slot, testSlots)
				}
			})
		})
	}
}

// TestMovesThatTheDatabaseForgot: a database that was set back has tasks in the slot that its owner has moved on. Their owner begins anew.
func TestMovesThatTheDatabaseForgot(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		_, err := f.SetSlots(f.ctx, 8)
		require.NoError(t, err)
		f.takeAll()
		slot, ids := f.someThatLeave(t, 8)
		early := f.now - 2*line.SplitAhead // the tasks are due later than a split looks ahead
		_, err = f.Split(f.ctx, slot, f.epoch, 0, early, nobodyWaits)
		require.NoError(t, err)
		before := f.slotRow(slot)
		sh := line.NewShift(slot, f.epoch)
		moved, err := f.MoveOn(f.ctx, sh, early, nobodyWaits)
		require.NoError(t, err)
		require.Len(t, moved.Added, len(ids))

		forget := []string{fmt.Sprintf("UPDATE slots SET moved = %d, moved_held = %d WHERE slot = %d", before.Moved, before.MovedHeld, slot)}
		for _, p := range moved.Removed {
			forget = append(forget, fmt.Sprintf("UPDATE tasks SET slot = %d, pos = %d WHERE seq = %d", slot, p.Pos, p.Seq))
		}
		f.restart(forget...)
		_, err = f.Acquire(f.ctx, f.allSlots(), f.epoch, "me")
		require.NoError(t, err)
		for !moved.Whole {
			moved, err = f.MoveOn(f.ctx, sh, early, nobodyWaits)
			require.NoError(t, err)
		}
		f.inPlace(t)
	})
}

// forgetSplit is how the database is set back to before a slot was split: the slots of before, and where tasks stood that have left since.
func (f *fixture) forgetSplit(before []store.Slot, moved ...line.Moved) (forget []string) {
	for _, s := range before {
		forget = append(forget, fmt.Sprintf("UPDATE slots SET claimed = %d, done = %d, spread = %d, moved = %d, moved_held = %d, turn = %d WHERE slot = %d", s.Claimed, s.Done, s.Spread, s.Moved, s.MovedHeld, s.Turn, s.Slot))
	}
	for _, m := range moved {
		for _, p := range m.Removed {
			forget = append(forget, fmt.Sprintf("UPDATE tasks SET slot = %d, pos = %d WHERE seq = %d", p.Slot, p.Pos, p.Seq))
		}
	}
	return forget
}

// TestASplitThatTheDatabaseForgot: the owner of a new slot has claimed tasks that stand, after a set-back, in the slot that they had left. The
// owner of that one knows of no claim, and yet they are not pending: another one may be about to deliver them, or has.
func TestASplitThatTheDatabaseForgot(t *testing.T) {
	for name, ask := range map[string]func(*fixture, string) *schemas.Request{
		"cancel": func(f *fixture, id string) *schemas.Request { return f.cancel(id) },
		"fire":   func(f *fixture, id string) *schemas.Request { return f.fire(id) },
	} {
		for forgotten, steps := range map[string]struct{ begin, split bool }{"a page": {}, "the split": {split: true}, "all of it": {begin: true}} {
			t.Run(name+", "+forgotten, func(t *testing.T) {
				each(t, func(t *testing.T, f *fixture) {
					f.takeAll()
					first, err := f.Slots(f.ctx)
					require.NoError(t, err)
					_, err = f.SetSlots(f.ctx, 8)
					require.NoError(t, err)
					f.takeAll()
					slot, ids := f.someThatLeave(t, 8)
					early := f.now - 2*line.SplitAhead
					before, err := f.Slots(f.ctx)
					require.NoError(t, err)
					split, err := f.Split(f.ctx, slot, f.epoch, 0, early, nobodyWaits)
					require.NoError(t, err)
					if !steps.split && !steps.begin {
						before, err = f.Slots(f.ctx)
						require.NoError(t, err)
					}
					moved, err := f.MoveOn(f.ctx, line.NewShift(slot, f.epoch), early, nobodyWaits)
					require.NoError(t, err)
					require.Len(t, moved.Added, len(ids))
					had := f.slotRow(slot)
					due := f.now + time.Second.Milliseconds()
					_, err = f.db.ExecContext(f.ctx, fmt.Sprintf("UPDATE slots SET claimed = %d WHERE slot > 3", due)) // their owners claim them
					require.NoError(t, err)

					forget := f.forgetSplit(before, split, moved)
					if steps.begin {
						forget = append(f.forgetSplit(first, split, moved), "DELETE FROM slots WHERE slot > 3", "UPDATE slots SET base = 4, target = 4, spread = 4")
					}
					f.restart(forget...)
					require.Empty(t, f.do(ask(f, ids[0])), "it waits")
					now := f.slotRow(slot)
					if !steps.begin { // otherwise its owner knows better: see flight
						require.ErrorIs(t, f.Claim(f.ctx, now.Turn, []int{slot}, []int64{now.Claimed}, f.epoch, now.Claimed), store.ErrFenced)
						require.ErrorIs(t, f.Claim(f.ctx, now.Turn, []int{slot}, []int64{now.Claimed}, f.epoch, due), store.ErrFenced)
						_, err = f.Split(f.ctx, slot, f.epoch, now.Claimed, f.now, nobodyWaits)
						if steps.split {
							require.ErrorIs(t, err, store.ErrFenced)
						}
						_, err = f.MoveOn(f.ctx, line.NewShift(slot, f.epoch), f.now, nobodyWaits)
						if !steps.split {
							require.ErrorIs(t, err, store.ErrFenced)
						}
						done, err := f.FinishSlots(f.ctx)
						require.NoError(t, err)
						require.False(t, done)
					}
					require.Nil(t, f.resolve())

					taken, err := f.Acquire(f.ctx, []int{slot}, f.epoch, "me", line.Known{Slots: []line.Had{{Slot: slot, Pos: had.Claimed, Turn: had.Turn, Reach: due}}})
					require.NoError(t, err)
					require.Equal(t, due, taken[0].Claimed)
					require.Equal(t, []schemas.State{schemas.StateTooLate}, f.resolve())
					require.Equal(t, "claimed", f.state(ids[0]))
				})
			})
		}
	}
}

// TestGivenUpSlotsOfADeadOwner: a slot that was given up is forgotten although its owner has died with it.
func TestGivenUpSlotsOfADeadOwner(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.takeAll()
		_, err := f.SetSlots(f.ctx, 2)
		require.NoError(t, err)
		f.finishAll(t)
		require.Equal(t, "me", f.slotRow(3).Owner)
		for _, held := range []bool{true, false} {
			n, err := f.DropSlots(f.ctx, func(store.Slot) bool { return held })
			require.NoError(t, err)
			require.Equal(t, held, n == 0)
		}
		rows, err := f.Slots(f.ctx)
		require.NoError(t, err)
		require.Len(t, rows, 2)
	})
}

// TestTasksInSlotsThatWereGivenUp: a program of an older version spreads keys over all rows of slots. What it has placed in slots that nobody
// owns goes to where it belongs, but for what an owner of that version has claimed and delivers.
func TestTasksInSlotsThatWereGivenUp(t *testing.T) {
	for name, held := range map[string][]bool{"its owner is alive": {true}, "its owner has died": {false}, "its owner came when it was read": {false, true}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *fixture) {
				f.takeAll()
				_, err := f.SetSlots(f.ctx, 2)
				require.NoError(t, err)
				f.finishAll(t)
				f.takeAll()
				f.claimFar(f.now)
				many := []any{f.timerRequest(schemas.OpTimer)}
				for i := range tables.MaxRows + 100 {
					many = append(many, f.schedule(fmt.Sprintf("t%d", i)))
				}
				f.do(many...)
				late := f.schedule("late")
				f.do(late)
				for _, q := range []string{"UPDATE tasks SET slot = 3", "UPDATE timers SET slot = 3", fmt.Sprintf("UPDATE tasks SET pos = %d WHERE id = x'6c617465'", f.now-10), fmt.Sprintf("UPDATE slots SET done = %d, claimed = %d, owner = 'old' WHERE slot = 3", f.now-20, f.now-5)} {
					_, err := f.db.ExecContext(f.ctx, q)
					require.NoError(t, err)
				}
				old := f.slotRow(3)
				asked := 0
				alive := func(s store.Slot) bool {
					require.Equal(t, "old", s.Owner)
					asked++
					return held[min(asked, len(held))-1]
				}
				for again := true; again; {
					moved, err := f.BringHome(f.ctx, 3, alive)
					require.NoError(t, err)
					again = len(moved.Added)+len(moved.Timers) > 0
				}
				if held[len(held)-1] {
					require.Equal(t, old, f.slotRow(3))
					require.Equal(t, 3, f.row("late").Slot)
					_, err := f.db.ExecContext(f.ctx, "DELETE FROM tasks WHERE id = x'6c617465'")
					require.NoError(t, err)
				} else {
					require.Equal(t, f.now+1, f.row("late").Pos)
					require.Equal(t, schemas.StateTooLate, f.answer(f.cancel("late")), "it may have been delivered")
					require.Equal(t, schemas.StateCancelled, f.answer(f.cancel("t1")), "this one was not claimed")
					require.ErrorIs(t, f.Claim(f.ctx, old.Turn, []int{3}, []int64{old.Claimed}, old.Epoch, f.now), store.ErrFenced)
				}
				f.inPlace(t)
				moved, err := f.BringHome(f.ctx, 1, func(store.Slot) bool { return false })
				require.NoError(t, err)
				require.Empty(t, moved.Added, "of a slot that has an owner, nothing is moved")
				require.Equal(t, "me", f.slotRow(1).Owner)
			})
		})
	}
}

// TestSlotsAreSetOnceTheirOwnersHaveLooked: the turns of another change would hide from an owner that the database has forgotten one.
func TestSlotsAreSetOnceTheirOwnersHaveLooked(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.claim(t0)
		f.restart()
		ctx, cancel := context.WithTimeout(f.ctx, 2*time.Second)
		defer cancel()
		_, err := f.SetSlots(ctx, 8)
		require.ErrorIs(t, err, admin.ErrNotCompared)
		require.ErrorContains(t, err, "start one", "perhaps no dispatcher is alive that could look")
		f.claim(t0)
		g, err := f.SetSlots(f.ctx, 8)
		require.NoError(t, err)
		require.Equal(t, 8, g.Target)
	})
}
