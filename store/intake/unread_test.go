package intake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// unread is a report about a task that cannot be read.
func unread(id string) task.Change {
	return task.Change{Report: &schemas.Report{Topic: target, ID: id}, Unread: "notyet-status is missing: a report needs it"}
}

func TestAReportThatCannotBeRead(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport, maxAttempts(3)), s.schedule("b"))
		told := func(want int) {
			t.Helper()
			events := s.do(unread("a"), unread("a"), unread("none"))
			require.Len(t, events, want)
			for _, e := range events {
				require.Equal(t, []string{"a", "rejected", schemas.KindReport, "notyet-status is missing: a report needs it"}, []string{e.ID, string(e.State), e.Kind, e.Reason})
			}
			require.Len(t, s.do(unread("a")), 0, "once for each delivery")
		}
		line := func(attempt int) {
			t.Helper()
			_, h, err := look.New(s.Store).GetHistory(s.ctx, target, "a")
			require.NoError(t, err)
			found := 0
			for _, e := range h.Events {
				if e.Kind == schemas.KindReport {
					require.Equal(t, []any{schemas.StateRejected, attempt, s.now}, []any{e.State, e.Attempt, e.At})
					found++
				}
			}
			require.Equal(t, 1, found)
		}
		s.now = t0 + 1000
		s.claim(s.now)
		claimed := s.row("a")
		told(1)
		require.Equal(t, claimed, s.row("a"), "its owner has it")
		s.settle(s.now, s.transition("a", task.StateReport, s.now+60_000, 1))
		told(1)
		line(1)
		require.Equal(t, schemas.StateRetrying, s.answer(says("a", 1, schemas.StatusRetry)))
		line(1)
		told(0)
		s.awaitReport("a", 2)
		told(1)
		events := s.do(says("a", 2, schemas.StatusOK), unread("b"))
		require.Len(t, events, 2, "of a task that wants no report it is told as well")
		told(0)
		require.Equal(t, "succeeded", s.state("a"))
		require.Zero(t, s.count("dead_letters"))
		require.Zero(t, s.count("waiting"))
	})
}

// Each consumer of a topic may write what nobody can read. That costs a statement for many of them.
func TestManyReportsThatCannotBeRead(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		const n = 250
		var asked, reports []any
		for i := range n {
			asked, reports = append(asked, s.schedule(fmt.Sprint(i), wantReport)), append(reports, unread(fmt.Sprint(i)))
		}
		s.do(asked...)
		before := s.dump()["tasks"]
		require.Len(t, s.do(reports...), n)
		require.NotEqual(t, before, s.dump()["tasks"])
		for _, id := range []int{0, 99, 100, n - 1} {
			_, h, err := look.New(s.Store).GetHistory(s.ctx, target, fmt.Sprint(id))
			require.NoError(t, err)
			require.Len(t, h.Events, 2)
			require.Equal(t, schemas.KindReport, h.Events[1].Kind)
		}
	})
}
