package flight

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/line"
)

// lineOf makes a line that is done up to 100 and claimed up to 200, of (pos, status).
func lineOf(tasks ...Task) *ownedSlot {
	l := &ownedSlot{done: 100, claimed: 200}
	for i := range tasks {
		tasks[i].slot, tasks[i].seq = l, int64(i+1)
		l.tasks = append(l.tasks, &tasks[i])
	}
	return l
}

func at(pos int64, s status) Task { return Task{pos: pos, status: s} }

// A task that is called back while a claim is under way comes to stand right behind it.
func TestUrgentBehindAClaim(t *testing.T) {
	l := &ownedSlot{claimed: 100, next: 201, urgent: 50}
	l.claimTo(200)
	require.Equal(t, int64(50), l.urgent)
	l.claimTo(205)
	require.Equal(t, int64(never), l.urgent)
	require.Equal(t, int64(never), l.next)
}

func TestClosable(t *testing.T) {
	for name, c := range map[string]struct {
		tasks []Task
		to    int64
		count int
	}{
		"nothing claimed moves to claimed":       {nil, 200, 0},
		"all settled":                            {[]Task{at(120, settled), at(150, settled)}, 200, 2},
		"exits are not counted":                  {[]Task{at(120, left), at(150, settled), at(160, left)}, 200, 1},
		"the head holds up all behind it":        {[]Task{at(120, sending), at(150, settled)}, 119, 0},
		"up to before the first that is open":    {[]Task{at(120, settled), at(130, left), at(140, staged), at(150, settled)}, 139, 1},
		"an exit on its way is waited for":       {[]Task{at(120, settled), at(130, leaving), at(150, settled)}, 129, 1},
		"an entered one is open":                 {[]Task{at(120, settled), at(140, entered)}, 139, 1},
		"ties close together":                    {[]Task{at(120, settled), at(130, settled), at(130, sending), at(130, settled)}, 129, 1},
		"ties that are settled close":            {[]Task{at(130, settled), at(130, left), at(130, settled), at(131, staged)}, 130, 2},
		"an open task at the first place":        {[]Task{at(101, sending), at(102, settled)}, 100, 0},
		"an open task at the last claimed place": {[]Task{at(150, settled), at(200, sending)}, 199, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := lineOf(c.tasks...)
			to, tally := l.closable()
			require.Equal(t, c.to, to)
			require.Equal(t, c.count, tally.Count)
			again, _ := l.closable()
			require.Equal(t, to, again, "asking changes nothing")
		})
	}
}

func TestCloseToLetsGoOfWhatIsClosed(t *testing.T) {
	l := lineOf(at(110, settled), at(110, left), at(120, settled), at(150, sending), at(160, settled))
	to, tally := l.closable()
	require.Equal(t, int64(149), to)
	require.Equal(t, line.Tally{Count: 2, Sum: l.tasks[0].seq + l.tasks[2].seq}, tally)
	require.Equal(t, 3, l.closeTo(to), "exits are let go of too")
	require.Equal(t, int64(149), l.done)
	require.False(t, l.drained())
	require.Len(t, l.open(), 2)
	require.Equal(t, int64(150), l.open()[0].pos)

	to, tally = l.closable()
	require.Equal(t, int64(149), to, "nothing further")
	require.Zero(t, tally)

	l.open()[0].status = settled
	to, tally = l.closable()
	require.Equal(t, int64(200), to)
	require.Equal(t, 2, tally.Count, "what was closed before is not counted again")
	require.Equal(t, 2, l.closeTo(to))
	require.Empty(t, l.open())
	require.True(t, l.drained())
}

// A line that never empties must not keep what it has let go of.
func TestClosedTasksLeaveMemory(t *testing.T) {
	l := &ownedSlot{}
	for pos := int64(1); pos <= 10_000; pos++ {
		l.claimed = pos
		l.tasks = append(l.tasks, &Task{slot: l, pos: pos, status: settled})
		if pos > 5 {
			l.closeTo(pos - 5)
		}
		require.LessOrEqual(t, len(l.tasks), 12)
	}
	require.Len(t, l.open(), 5)
}

func TestClaimToKeepsWhatLiesBeyond(t *testing.T) {
	l := &ownedSlot{claimed: 100, next: 150, urgent: 300} // settling or a wake may have told of a place while the claim ran
	l.claimTo(200)
	require.Equal(t, ownedSlot{claimed: 200, before: 100, next: never, urgent: 300}, *l)
	l.next = 250
	l.claimTo(300)
	require.Equal(t, ownedSlot{claimed: 300, before: 200, next: never, urgent: never}, *l)
}
