package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// A report that is there when the wait for it ends is in time: the task waits on, and the report takes effect. Nothing is told of an end
// that did not come.
func TestReportAtTheEndOfItsWait(t *testing.T) {
	for name, c := range map[string]struct {
		report  schemas.Status
		attempt int
		waitsOn bool
		then    string
	}{
		"ok":                        {schemas.StatusOK, 3, true, "succeeded"},
		"retry":                     {schemas.StatusRetry, 3, true, "waiting_retry"},
		"fail":                      {schemas.StatusFail, 3, true, "dead"},
		"ok on an earlier one":      {schemas.StatusOK, 2, true, "succeeded"},
		"retry of an earlier one":   {schemas.StatusRetry, 2, false, "dead"},
		"fail of an earlier one":    {schemas.StatusFail, 2, false, "dead"},
		"ok on one that is to come": {schemas.StatusOK, 4, false, "dead"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport), s.schedule("b", wantReport))
				s.claim(t0 + 1000)
				s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 3), s.transition("b", task.StateReport, t0+61_000, 3))
				s.claim(t0 + 61_000)
				require.Empty(t, s.do(says("a", c.attempt, c.report)))
				var exits []Transition
				var events []schemas.Event
				for _, id := range []string{"a", "b"} {
					e := s.transition(id, task.StateDead, 0, 3)
					e.Dead = &task.DeadLetter{Seq: e.Seq, Kind: schemas.KindDead, Topic: target, TaskID: id, Reason: "no report"}
					e.Again = t0 + 70_000
					exits = append(exits, e)
					events = append(events, schemas.Event{Topic: target, ID: id, State: schemas.StateDead})
				}
				got, err := s.Settle(s.ctx, nil, exits, events, t0+61_400)
				require.NoError(t, err)
				seq := exits[0].Seq
				if !c.waitsOn {
					require.Empty(t, got.Reported)
					require.Equal(t, "dead", s.state("a"))
					require.Len(t, got.Events[0].Events, 2)
					return
				}
				require.Contains(t, got.Reported, seq)
				require.Len(t, got.Reported, 1)
				require.Equal(t, "waiting_report", s.state("a"))
				require.Equal(t, "dead", s.state("b"), "of which nobody has reported")
				require.Len(t, got.Events, 1)
				require.Equal(t, []schemas.Event{events[1]}, got.Events[0].Events)
				require.Equal(t, 1, s.count("dead_letters"))
				s.resolve()
				require.Equal(t, c.then, s.state("a"))
			})
		})
	}
}
