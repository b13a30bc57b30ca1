package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// TestPutBackKeepsTheOrder: bodies are read in the order of seq and released in the order of place, so a read that ends
// early must not let a later place go ahead of an earlier one.
func TestPutBackKeepsTheOrder(t *testing.T) {
	fl := newInFlight(alone(t, Config{StageTasks: 100, StageBytes: 1 << 20}))
	f := newFetcher(fl, newParking(fl, newOutlets(fl)), nil, nil)
	l := &ownedSlot{}
	read := map[int64]*claimedTask{}
	for seq, pos := range []int64{50, 10, 40, 20, 30} { // read: seq 0, 1, 2; not read: 3, 4
		read[int64(seq)] = &claimedTask{slot: l, seq: int64(seq), pos: pos}
	}
	rows := f.putBack(read, []task.Task{{Seq: 0}, {Seq: 1}, {Seq: 2}}, []int64{3, 4})
	require.Equal(t, []task.Task{{Seq: 1}}, rows, "only what comes before everything that was not read")
	require.Len(t, read, 1)
	var places []int64
	for len(f.backlog.unread) > 0 {
		batch, _, _ := f.nextFetch()
		require.Len(t, batch, 1, "a bite of half of what was read")
		places = append(places, batch[0].pos)
	}
	require.Equal(t, []int64{20, 30, 40, 50}, places)
}

// With nine tenths of the room taken by what is due later, what is due now still finds a place.
func TestReadingAheadLeavesRoom(t *testing.T) {
	fl := newInFlight(alone(t, Config{StageTasks: 100, StageBytes: 1 << 20}))
	f := newFetcher(fl, newParking(fl, newOutlets(fl)), nil, nil)
	l := &ownedSlot{number: 0}
	now := nowMillis()
	var later []store.Entry
	for i := range 200 {
		later = append(later, store.Entry{Place: slots.Place{Slot: 0, Pos: now + 30_000 + int64(i), Seq: int64(i)}})
	}
	l.claimTo(now + 50_000)
	fl.enter(map[int]*ownedSlot{0: l}, later, false)
	fl.staging.tasks = 89
	batch, _, _ := f.nextFetch()
	require.NotEmpty(t, batch)
	fl.staging.tasks = 90
	batch, _, wait := f.nextFetch()
	require.Empty(t, batch)
	require.Equal(t, time.Second, wait)

	l.claimTo(now + 51_000)
	fl.enter(map[int]*ownedSlot{0: l}, []store.Entry{{Place: slots.Place{Slot: 0, Pos: now + 50_001, Seq: 500}}, {Place: slots.Place{Slot: 0, Pos: now + 50_002, Seq: 501}}}, false)
	batch, _, _ = f.nextFetch()
	require.Len(t, batch, 1, "the one that stands behind what was claimed came late")
	require.Equal(t, int64(500), batch[0].seq)
	fl.backlog.queue.push(&claimedTask{slot: l, seq: 600, at: now + 25 + 200, lane: task.LaneKey{}.Lane("t", task.ClassNormal)})
	_, _, wait = f.nextFetch()
	require.LessOrEqual(t, wait, 200*time.Millisecond, "until it is due")
}

// What belongs at the first place behind what was claimed waits its turn: the tasks before it may have its key.
func TestFirstOfAClaimOvertakesNobody(t *testing.T) {
	fl := newInFlight(alone(t, Config{StageTasks: 100, StageBytes: 1 << 20}))
	f := newFetcher(fl, newParking(fl, newOutlets(fl)), nil, nil)
	l, now := &ownedSlot{number: 0}, nowMillis()
	entry := func(seq, pos, due int64) store.Entry {
		return store.Entry{Place: slots.Place{Slot: 0, Pos: pos, Seq: seq}, Due: due}
	}
	enter := func(to int64, entries ...store.Entry) {
		l.claimTo(to)
		fl.enter(map[int]*ownedSlot{0: l}, entries, false)
	}
	enter(now+2000, entry(1, now+1990, 0), entry(2, now+2000, 0))
	enter(now+3000, entry(3, now+2001, now+2001), entry(4, now+2001, now+10), entry(5, now+2002, 0))
	batch, _, _ := f.nextFetch()
	var order []int64
	for _, task := range batch {
		order = append(order, task.seq)
	}
	require.Equal(t, []int64{4, 1, 2, 3, 5}, order, "4 came late and goes first; 3 was always to be behind 1 and 2")
}

// A claim has been read; before its tasks enter, the late answer to an earlier sending of one is settled, and nobody remembers that
// sending any more. The task is not sent again, and does not hold up its line.
func TestEndedBetweenReadAndEntryIsNotSent(t *testing.T) {
	for name, end := range map[string]store.Transition{
		"delivered":          {State: task.StateSucceeded, Attempt: 1},
		"waits for a report": {State: task.StateReport, Attempt: 1, Pos: nowMillis() + 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, "orders")
			_, d := f.owning(Config{})
			f.schedule(askMany(2, "orders", "o", time.Now())...)
			d.claimer.sweep(t.Context())
			ready, _ := d.claimer.beginClaim()
			require.Len(t, ready, 1)
			require.NoError(t, claimTo(t.Context(), f.store, []int{0}, 5, ready[0].to))
			entries, err := d.claimer.readClaimed(t.Context(), ready)
			require.NoError(t, err)
			require.Len(t, entries, 2)

			end.Seq, end.Epoch, end.Lane = entries[0].Seq, 5, entries[0].Lane
			_, err = f.store.Settle(t.Context(), nil, []store.Transition{end}, nil, nowMillis)
			require.NoError(t, err)

			d.flight.takeIn(ready, entries)
			d.flight.endClaim(ready)
			batch, bytes, _ := d.fetcher.nextFetch()
			require.Len(t, batch, 2)
			d.fetcher.fetch(t.Context(), batch, bytes)
			require.Len(t, d.sender.due, 1)
			require.Equal(t, entries[1].Seq, d.sender.due[0].seq)

			d.sender.due[0].status = settled
			d.settler.settle(t.Context())
			require.Zero(t, counted(d.metrics.mismatch))
			require.True(t, d.flight.slots[0].drained())
			require.Zero(t, d.flight.entries)
		})
	}
}
