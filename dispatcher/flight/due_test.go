package flight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// What falls due in the last moments of a slot that is to be given away is left to its next owner: sent now, it could not be settled
// before the slot goes, and would be sent twice.
func TestNothingIsSentInTheLastMoments(t *testing.T) {
	fl := newFlight(t, Config{DrainTimeout: time.Hour})
	l := &ownedSlot{number: 0, epoch: 5, claimed: 100}
	fl.slots[0] = l
	due := &Task{slot: l, seq: 7, pos: 50, at: 40, status: staged, content: &content{topic: "x", due: 40, settings: schemas.DefaultSettings(), record: &kgo.Record{Topic: "x"}}}
	l.tasks, fl.entries = append(l.tasks, due), 1
	fl.due.push(due)
	require.Empty(t, fl.Owning.Leavers(nil))
	l.leaving = time.Now().Add(time.Second/2 - time.Hour)
	send, more := fl.Due.Take()
	require.Empty(t, send)
	require.False(t, more)
	transitions := fl.Settling.Begin().Transitions
	require.Len(t, transitions, 1)
	require.Equal(t, task.StateLine, transitions[0].State, "it can be cancelled")
	fl.Settling.Ours(transitions).Settled(line.Settled{}, time.Millisecond)
	fl.Settling.Closable().Settled(line.Settled{}, time.Millisecond)
	require.Equal(t, map[int64][]int{5: {0}}, fl.Owning.Leavers(nil), "so it drains")
	require.Zero(t, fl.entries)
}

// admitsRun has only the check of runs judge a task, and does what follows.
func (fl *Flight) admitsRun(t *Task, now int64) bool {
	l := &look{machine: fl.machine, now: now, task: t}
	v := l.run()
	return v == sends || fl.Due.act(l, v)
}

// TestWhichRunsAreMissed: late ones, but not what may have been sent, and not what was fired when it was late. The database is asked about
// them.
func TestWhichRunsAreMissed(t *testing.T) {
	for name, c := range map[string]struct {
		late    time.Duration
		change  func(t *Task)
		dropped bool
	}{
		"in time":                 {late: time.Minute},
		"late":                    {late: time.Minute + time.Millisecond, dropped: true},
		"late, in doubt":          {late: time.Hour, change: func(t *Task) { t.doubt = true }},
		"late, second attempt":    {late: time.Hour, change: func(t *Task) { t.attempt = 1 }},
		"late, a replay":          {late: time.Hour, change: func(t *Task) { t.replay = 1 }},
		"late, set aside":         {late: time.Hour, change: func(t *Task) { t.state = task.StateRetry }},
		"late, fired":             {late: time.Hour, change: func(t *Task) { t.due = t.settings.Run.DropFrom + 1 }},
		"late, started":           {late: time.Hour, change: func(t *Task) { t.started = true }},
		"late, but never dropped": {late: time.Hour, change: func(t *Task) { t.settings.Run.DropFrom = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{})
			g := fl
			now := g.clock.Millis()
			run := &Task{slot: &ownedSlot{}, content: &content{settings: schemas.DefaultSettings()}}
			run.settings.Run = schemas.Run{Timer: "t", DropFrom: now - c.late.Milliseconds()}
			if c.change != nil {
				c.change(run)
			}
			require.Equal(t, !c.dropped, g.admitsRun(run, now))
			if !c.dropped {
				require.Nil(t, g.Runs.Take())
				return
			}
			require.True(t, g.Runs.Take().Starts()[0].Missed)
			(&Asked{machine: fl.machine}).dropRun(run, line.RunMissed)
			require.Equal(t, task.StateDead, fl.inbox.transitions[0].State)
			require.Nil(t, fl.inbox.transitions[0].Dead)
			require.Equal(t, 1, counted(fl.metrics.DroppedRuns.WithLabelValues(DropMissed)))
		})
	}
}

// TestAMissedRunIsNoDeadLetter: where it is too late for its notyet-max-lateness too.
func TestAMissedRunIsNoDeadLetter(t *testing.T) {
	fl := newFlight(t, Config{})
	s := fl
	run := &Task{slot: &ownedSlot{}, content: &content{settings: schemas.DefaultSettings()}}
	run.settings.MaxLateness, run.settings.Run = time.Second, schemas.Run{Timer: "t", DropFrom: 1}
	require.False(t, s.admits(run, s.clock.Millis()))
	(&Asked{machine: fl.machine}).dropRun(run, line.RunMissed)
	require.Nil(t, fl.inbox.transitions[0].Dead)
	require.Equal(t, schemas.KindMissed, fl.inbox.transitions[0].Events[0].Kind)
}

// TestRunsThatMustBeAloneWait: in the order in which they are due, a bounded number at a time; the slots that were lost meanwhile are left out.
func TestRunsThatMustBeAloneWait(t *testing.T) {
	fl := newFlight(t, Config{})
	g := fl
	now := g.clock.Millis()
	var all []*Task
	for i := range overlapMost + 3 {
		run := &Task{seq: int64(i), slot: &ownedSlot{abandoned: i == 1}, content: &content{settings: schemas.DefaultSettings()}}
		run.settings.Run = schemas.Run{Timer: "t", Alone: true}
		require.False(t, g.admitsRun(run, now))
		all = append(all, run)
	}
	first := g.Runs.Take()
	require.Equal(t, all[:overlapMost], first.tasks)
	require.Len(t, first.Starts(), overlapMost-1)
	require.Len(t, g.Runs.Take().tasks, 3)
	require.Nil(t, g.Runs.Take())
	all[0].started = true
	require.True(t, g.admitsRun(all[0], now))
}

// TestARunThatIsMissedBeforeTheDatabaseAnswers: the database lets a run go that must be alone, and its answer takes longer than the run may
// wait. The run is asked about once more, as missed.
func TestARunThatIsMissedBeforeTheDatabaseAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl := newFlight(t, Config{MisfireAfter: time.Second})
		run := &Task{slot: &ownedSlot{}, content: &content{settings: schemas.DefaultSettings(), due: nowMillis()}}
		run.settings.Run = schemas.Run{Timer: "t", DropFrom: nowMillis(), Alone: true}
		require.False(t, fl.admitsRun(run, nowMillis()))
		asked := fl.Runs.Take()
		require.False(t, asked.Starts()[0].Missed)
		time.Sleep(10 * time.Second)
		require.True(t, asked.Starts()[0].Missed, "a second try says how late the run is by now")

		run.missed = false // the first try was answered
		asked.Started(nil)
		require.False(t, fl.admitsRun(run, nowMillis()), "the run is not released late")
		require.True(t, fl.Runs.Take().Starts()[0].Missed)
		asked.Started(nil)
		require.True(t, fl.admitsRun(run, nowMillis()), "the database let the missed run go")
	})
}
