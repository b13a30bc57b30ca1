package flight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// TestPutBackKeepsTheOrder: bodies are read in the order of seq and released in the order of place, so a read that ends
// early must not let a later place go ahead of an earlier one.
func TestPutBackKeepsTheOrder(t *testing.T) {
	fl := newFlight(t, Config{StageTasks: 100, StageBytes: 1 << 20})
	l := &ownedSlot{}
	read := map[int64]*Task{}
	for seq, pos := range []int64{50, 10, 40, 20, 30} { // read: seq 0, 1, 2; not read: 3, 4
		read[int64(seq)] = &Task{slot: l, seq: int64(seq), pos: pos}
	}
	rows := (&Batch{machine: fl.machine, bySeq: read}).readAgain([]task.Task{{Seq: 0}, {Seq: 1}, {Seq: 2}}, []int64{3, 4})
	require.Equal(t, []task.Task{{Seq: 1}}, rows, "only what comes before everything that was not read")
	require.Len(t, read, 1)
	var places []int64
	for len(fl.backlog.unread) > 0 {
		batch, _ := fl.Bodies.Next()
		require.Len(t, batch.tasks, 1, "a bite of half of what was read")
		places = append(places, batch.tasks[0].pos)
	}
	require.Equal(t, []int64{20, 30, 40, 50}, places)
}

// With nine tenths of the room taken by what is due later, what is due now still finds a place.
func TestReadingAheadLeavesRoom(t *testing.T) {
	fl := newFlight(t, Config{StageTasks: 100, StageBytes: 1 << 20})
	l := &ownedSlot{number: 0}
	now := nowMillis()
	var later []line.Entry
	for i := range 200 {
		later = append(later, line.Entry{Place: slots.Place{Slot: 0, Pos: now + 30_000 + int64(i), Seq: int64(i)}})
	}
	l.claimTo(now + 50_000)
	fl.enter(map[int]*ownedSlot{0: l}, later, false)
	fl.staging.tasks = 89
	batch, _ := fl.Bodies.Next()
	require.NotNil(t, batch)
	fl.staging.tasks = 90
	batch, wait := fl.Bodies.Next()
	require.Nil(t, batch)
	require.Equal(t, time.Second, wait)

	l.claimTo(now + 51_000)
	fl.enter(map[int]*ownedSlot{0: l}, []line.Entry{{Place: slots.Place{Slot: 0, Pos: now + 50_001, Seq: 500}}, {Place: slots.Place{Slot: 0, Pos: now + 50_002, Seq: 501}}}, false)
	batch, _ = fl.Bodies.Next()
	require.Len(t, batch.tasks, 1, "the one that stands behind what was claimed came late")
	require.Equal(t, int64(500), batch.tasks[0].seq)
	fl.backlog.push([]*Task{&Task{slot: l, seq: 600, at: now + 25 + 200, lane: task.LaneKey{}.Lane("t", task.ClassNormal)}})
	_, wait = fl.Bodies.Next()
	require.LessOrEqual(t, wait, 200*time.Millisecond, "until it is due")
}

// What belongs at the first place behind what was claimed waits its turn: the tasks before it may have its key.
func TestFirstOfAClaimOvertakesNobody(t *testing.T) {
	fl := newFlight(t, Config{StageTasks: 100, StageBytes: 1 << 20})
	l, now := &ownedSlot{number: 0}, nowMillis()
	entry := func(seq, pos, due int64) line.Entry {
		return line.Entry{Place: slots.Place{Slot: 0, Pos: pos, Seq: seq}, Due: due}
	}
	enter := func(to int64, entries ...line.Entry) {
		l.claimTo(to)
		fl.enter(map[int]*ownedSlot{0: l}, entries, false)
	}
	enter(now+2000, entry(1, now+1990, 0), entry(2, now+2000, 0))
	enter(now+3000, entry(3, now+2001, now+2001), entry(4, now+2001, now+10), entry(5, now+2002, 0))
	batch, _ := fl.Bodies.Next()
	var order []int64
	for _, task := range batch.tasks {
		order = append(order, task.seq)
	}
	require.Equal(t, []int64{4, 1, 2, 3, 5}, order, "4 came late and goes first; 3 was always to be behind 1 and 2")
}

// Tasks that came when their places were claimed already stand at one place. They go by their due times, though a turn takes only a part of them. So
// they do where their owner has died since.
func TestLateTasksOfAClaimGoByTheirDueTimes(t *testing.T) {
	for name, doubt := range map[string]bool{"claimed": false, "in doubt": true} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{StageTasks: 1000, StageBytes: 1 << 20})
			const n = 3 * 128
			l, now := &ownedSlot{number: 0}, nowMillis()
			var entries []line.Entry
			for seq := range int64(n) {
				entries = append(entries, line.Entry{Place: slots.Place{Slot: 0, Pos: now + 2, Seq: seq}, Due: now - 1000 - seq})
			}
			if !doubt {
				l.claimTo(now + 1)
			}
			l.claimTo(now + 2)
			fl.enter(map[int]*ownedSlot{0: l}, entries, doubt)
			due := int64(0)
			for range n {
				batch, _ := fl.backlog.take(1, never)
				require.Len(t, batch, 1)
				require.Greater(t, now-1000-batch[0].seq, due)
				due = now - 1000 - batch[0].seq
			}
		})
	}
}
