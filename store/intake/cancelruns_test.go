package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// listRuns sets a timer, makes its runs, and lists them for a record that cancels them.
func (f *fixture) listRuns() task.Cancels {
	f.t.Helper()
	f.do(f.timerRequest(schemas.OpTimer))
	f.own()
	f.makeRuns()
	many, _, err := f.sweeper().list(f.ctx, look.ListFilter{Topic: target})
	require.NoError(f.t, err)
	require.NotEmpty(f.t, many.Tasks)
	return many
}

func (f *fixture) makeRuns() {
	f.t.Helper()
	_, err := f.MakeRuns(f.ctx, f.owned(f.epoch), f.now+20_000, f.now, time.Minute, nil)
	require.NoError(f.t, err)
}

func (f *fixture) sql(statements ...string) {
	f.t.Helper()
	for _, s := range statements {
		_, err := f.db.ExecContext(f.ctx, s)
		require.NoError(f.t, err)
	}
}

// A run of a timer that was forgotten and made again has another seq, and is the same run.
func TestCancelManyOfRunsThatAreMadeAgain(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		many := s.listRuns()
		set := many.Tasks[0].Timer
		require.Positive(t, set)
		s.sql("DELETE FROM tasks", fmt.Sprintf("UPDATE timers SET next = %d", t0))
		s.makeRuns()
		again := s.live()
		require.NotContains(t, []int64{again[0].Seq}, many.Tasks[0].Seq)
		s.sql("UPDATE timers SET seq = seq - 1") // that of an earlier definition
		many.Tasks[0].Timer = set + 1
		_, err := s.sweeper().decide(s.ctx, many)
		require.ErrorIs(t, err, ErrLater, "the timer is to be set again")
		many.Tasks[0].Timer = set
		s.sql("UPDATE timers SET seq = seq + 1")
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.EqualValues(t, len(many.Tasks), done.Cancelled)
	})
}

// A timer that is set anew makes runs of its own at the instants of those that were listed.
func TestCancelManyLeavesAloneRunsOfATimerSetAnew(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		many := s.listRuns()
		s.do(s.timerRequest(schemas.OpTimer, func(r *schemas.Request) { r.Value = []byte("new") }))
		s.makeRuns()
		runs := len(s.live())
		require.Len(t, many.Tasks, runs)
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.Zero(t, done.Cancelled)
		require.EqualValues(t, runs, s.cancelAll(look.ListFilter{Topic: target}).Cancelled, "once they are listed")
	})
}

// A record of the version before does not say by which definition a run was made.
func TestCancelManyOfRunsOfTheVersionBefore(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		many := s.listRuns()
		for i := range many.Tasks {
			many.Tasks[i].Timer, many.Tasks[i].Seq = 0, many.Tasks[i].Seq-1
		}
		done, err := s.sweeper().decide(s.ctx, many)
		require.NoError(t, err)
		require.EqualValues(t, len(many.Tasks), done.Cancelled)
	})
}
