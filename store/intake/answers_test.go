package intake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// TestAnswersNameTheirRequest: who asked can tell its answer from those to others about the same task.
func TestAnswersNameTheirRequest(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		named := func() map[string]schemas.State {
			out := map[string]schemas.State{}
			for _, box := range s.last.Events {
				for _, e := range box.Events {
					out[e.Request] = e.State
				}
			}
			return out
		}
		s.do(s.schedule("a"), s.cancel("a"), s.cancel("a"), s.fire("a"), &task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: "in/0/4", Reason: "bad"})
		require.Equal(t, map[string]schemas.State{
			"in/0/0": schemas.StateScheduled, "in/0/1": schemas.StateCancelled, "in/0/2": schemas.StateCancelled, "in/0/3": schemas.StateNotFound, "in/0/4": schemas.StateRejected,
		}, named())

		// One that waits for a delivery names itself too, in a process that has never read its partition.
		s.own()
		s.do(s.schedule("b", in(1000)))
		s.claim(t0 + 2000)
		s.do(s.schedule("b", in(9000)))
		s.deliver(t0 + 2000)
		s.known.learn(nil)
		require.Equal(t, []schemas.State{schemas.StateScheduled}, s.resolve())
		require.Equal(t, map[string]schemas.State{"in/0/6": schemas.StateScheduled}, named())

		// A report is no request.
		s.do(s.schedule("c", wantReport, in(10_000)))
		s.awaitReport("c", 1)
		s.do(says("c", 1, schemas.StatusOK))
		require.Equal(t, map[string]schemas.State{"": schemas.StateSucceeded}, named())
	})
}
