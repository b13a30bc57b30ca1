package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func TestGetHistory(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		states := func(id string) (out []schemas.State) {
			t.Helper()
			v, h, err := look.New(s.Store).GetHistory(s.ctx, target, id)
			require.NoError(t, err)
			plain, err := look.New(s.Store).Get(s.ctx, target, id)
			require.NoError(t, err)
			require.Equal(t, plain, v)
			for _, e := range h.Events {
				out = append(out, e.State)
			}
			return out
		}
		s.do(s.schedule("plain"), s.schedule("other", in(time.Hour)))
		require.Equal(t, []schemas.State{schemas.StateScheduled}, states("plain"))
		before := s.dump()
		s.deliver(t0 + 2000)
		after := s.dump()
		require.Equal(t, before["outbox"], after["outbox"], "nothing is written for a plain delivery")
		require.Equal(t, before["tasks"], after["tasks"])
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateSucceeded}, states("plain"))

		s.now = t0 + 3000
		s.do(s.schedule("r", wantReport, in(0)))
		s.awaitReport("r", 1)
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateDispatched}, states("r"))
		_, h, err := look.New(s.Store).GetHistory(s.ctx, target, "r")
		require.NoError(t, err)
		require.Equal(t, s.now, h.Events[1].At)
		require.Empty(t, s.do(s.schedule("r"), s.stop("r"), s.cancel("r")), "they wait")
		waits := func() (out []string) {
			_, h, err := look.New(s.Store).GetHistory(s.ctx, target, "r")
			require.NoError(t, err)
			require.Equal(t, len(h.Waiting), h.Waits)
			for i, w := range h.Waiting {
				require.Equal(t, schemas.DefaultID(s.source.Topic, s.source.Partition, s.offset-int64(h.Waits-i)), w.Request)
				out = append(out, w.Op+": "+w.For)
			}
			return out
		}
		require.Equal(t, []string{"schedule: the end of the task's attempts: the task waits for a report on attempt 1 until " + time.UnixMilli(s.now+60_000).UTC().Format(time.RFC3339Nano),
			"stop: the request before it", "cancel: the request before it"}, waits())
		many := make([]any, 30)
		for i := range many {
			many[i] = s.schedule("r")
		}
		require.Empty(t, s.do(many...))
		_, h, err = look.New(s.Store).GetHistory(s.ctx, target, "r")
		require.NoError(t, err)
		require.Equal(t, []int{20, 33}, []int{len(h.Waiting), h.Waits})

		s.die("d")
		require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateDead}, states("d"))
		for range 3 {
			require.NoError(t, s.Audit(s.ctx, []admin.AuditEntry{{Actor: admin.Actor{Who: "ann"}, What: "cancel", Topic: target, TaskID: "d", Detail: "{}"}, {Topic: "bills", TaskID: "d"}}))
		}
		s.replay()
		_, h, err = look.New(s.Store).GetHistory(s.ctx, target, "d")
		require.NoError(t, err)
		require.Len(t, h.Changes, 3, "of this topic")
		require.Equal(t, schemas.StateScheduled, h.Events[1].State)
		require.Contains(t, h.Events[1].Reason, "replayed by")

		// Attempts that failed are remembered, whoever ended them, also behind a success.
		s.do(s.schedule("f", wantReport, maxAttempts(20)))
		for n := 1; n <= 7; n++ {
			s.awaitReport("f", n)
			failed := says("f", n, schemas.StatusRetry)
			failed.Error = fmt.Sprint("boom ", n)
			require.Equal(t, schemas.StateRetrying, s.answer(failed))
		}
		s.now = s.row("f").Pos
		s.claim(s.now)
		e := s.transition("f", task.StateRetry, s.now+1000, 8)
		e.Idle, e.Failure = true, task.NewNote(0, 8, 0, "no report")
		s.settle(s.now, e)
		s.awaitReport("f", 9)
		s.answer(says("f", 9, schemas.StatusOK))
		_, h, err = look.New(s.Store).GetHistory(s.ctx, target, "f")
		require.NoError(t, err)
		var told []string
		for _, e := range h.Events {
			told = append(told, fmt.Sprint(e.State, " ", e.Attempt, " ", e.Reason))
			require.Positive(t, e.At)
		}
		require.Equal(t, []string{"scheduled 0 ", "retrying 4 boom 4", "retrying 5 boom 5", "retrying 6 boom 6", "retrying 7 boom 7", "retrying 8 no report", "succeeded 9 "}, told)
		s.now++
		s.do(s.schedule("f", in(time.Hour)))
		require.Equal(t, []schemas.State{schemas.StateScheduled}, states("f"), "a new task has had no attempts")

		_, _, err = look.New(s.Store).GetHistory(s.ctx, target, "none")
		require.ErrorIs(t, err, look.ErrNotFound)
	})
}
