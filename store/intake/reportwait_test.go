package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
)

// A report that is there when the wait for it ends is in time, and decides what becomes of the task. Nothing is told of an end that did
// not come.
func TestReportAtTheEndOfItsWait(t *testing.T) {
	for name, c := range map[string]struct {
		report  schemas.Status
		attempt int
		counts  bool
		then    string
		told    []schemas.State // of the task
	}{
		"ok":                        {schemas.StatusOK, 3, true, "succeeded", []schemas.State{schemas.StateSucceeded}},
		"retry":                     {schemas.StatusRetry, 3, true, "waiting_retry", []schemas.State{schemas.StateRetrying}},
		"fail":                      {schemas.StatusFail, 3, true, "dead", []schemas.State{schemas.StateDead}},
		"ok on an earlier one":      {schemas.StatusOK, 2, true, "succeeded", []schemas.State{schemas.StateSucceeded}},
		"retry of an earlier one":   {schemas.StatusRetry, 2, false, "dead", []schemas.State{schemas.StateDead}},
		"fail of an earlier one":    {schemas.StatusFail, 2, false, "dead", []schemas.State{schemas.StateDead}},
		"ok on one that is to come": {schemas.StatusOK, 4, false, "dead", []schemas.State{schemas.StateDead}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport), s.schedule("b", wantReport))
				s.claim(t0 + 1000)
				s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 3), s.transition("b", task.StateReport, t0+61_000, 3))
				s.claim(t0 + 61_000)
				require.Empty(t, s.do(says("a", c.attempt, c.report)))
				require.Equal(t, 1, s.count("waiting"))
				var exits []line.Transition
				for _, id := range []string{"a", "b"} {
					e := s.transition(id, task.StateDead, 0, 3)
					e.Dead = &task.DeadLetter{Seq: e.Seq, Kind: schemas.KindDead, Topic: target, TaskID: id, Reason: "no report"}
					e.EndsWait = true
					e.Events = []schemas.Event{{Topic: target, ID: id, State: schemas.StateDead}}
					exits = append(exits, e)
				}
				got, err := s.Settle(s.ctx, nil, exits, store.At(t0+61_400))
				require.NoError(t, err)
				require.Equal(t, c.then, s.state("a"))
				require.Equal(t, "dead", s.state("b"), "of which nobody has reported")
				require.Equal(t, c.counts, len(got.Reported) == 1)
				require.Equal(t, c.told, toldOf(got, "a"))
				require.Equal(t, []schemas.State{schemas.StateDead}, toldOf(got, "b"))
				require.Zero(t, s.count("waiting"))
				dead := 1
				if c.then == "dead" {
					dead = 2
				}
				require.Equal(t, dead, s.count("dead_letters"))
			})
		})
	}
}

func toldOf(got line.Settled, id string) (states []schemas.State) {
	for _, box := range got.Events {
		for _, e := range box.Events {
			if e.ID == id {
				states = append(states, e.State)
			}
		}
	}
	return states
}

// A report that comes before its delivery is settled is decided with the settlement, in the order of arrival, once.
func TestReportsBeforeTheSettlement(t *testing.T) {
	for name, c := range map[string]struct {
		reports []schemas.Status
		then    string
		told    []schemas.State
	}{
		"ok":              {[]schemas.Status{schemas.StatusOK}, "succeeded", []schemas.State{schemas.StateDispatched, schemas.StateSucceeded}},
		"ok twice":        {[]schemas.Status{schemas.StatusOK, schemas.StatusOK}, "succeeded", []schemas.State{schemas.StateDispatched, schemas.StateSucceeded}},
		"ok, then fail":   {[]schemas.Status{schemas.StatusOK, schemas.StatusFail}, "succeeded", []schemas.State{schemas.StateDispatched, schemas.StateSucceeded}},
		"retry":           {[]schemas.Status{schemas.StatusRetry}, "waiting_retry", []schemas.State{schemas.StateDispatched, schemas.StateRetrying}},
		"retry, then ok":  {[]schemas.Status{schemas.StatusRetry, schemas.StatusOK}, "succeeded", []schemas.State{schemas.StateDispatched, schemas.StateRetrying, schemas.StateSucceeded}},
		"snooze, then ok": {[]schemas.Status{schemas.StatusSnooze, schemas.StatusOK}, "succeeded", []schemas.State{schemas.StateDispatched, schemas.StateRetrying, schemas.StateSucceeded}},
		"fail, then ok":   {[]schemas.Status{schemas.StatusFail, schemas.StatusOK}, "dead", []schemas.State{schemas.StateDispatched, schemas.StateDead}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport, maxAttempts(3), fixedBackoff(5*time.Second)), s.schedule("b", wantReport))
				s.now = t0 + 1000
				s.claim(s.now)
				for _, status := range c.reports {
					require.Empty(t, s.do(s.about(s.row("a"), 1, status)))
				}
				require.Equal(t, len(c.reports), s.count("waiting"))
				exits := []line.Transition{s.transition("a", task.StateReport, s.now+60_000, 1), s.transition("b", task.StateReport, s.now+60_000, 1)}
				exits[0].Events = []schemas.Event{{Topic: target, ID: "a", State: schemas.StateDispatched}}
				got, err := s.Settle(s.ctx, s.doneUpTo(s.now, exits...), exits, store.At(s.now))
				require.NoError(t, err)
				require.Empty(t, got.Mismatch)
				require.Equal(t, c.then, s.state("a"))
				require.Equal(t, c.told, toldOf(got, "a"))
				require.Zero(t, s.count("waiting"))
				require.Equal(t, c.reports[0] == schemas.StatusSnooze, s.row("a").Snoozed == 1)
				require.Equal(t, "waiting_report", s.state("b"))
				before := s.dump()
				again, err := s.Settle(s.ctx, nil, exits, store.At(s.now))
				require.NoError(t, err)
				require.Equal(t, before, s.dump(), "a settlement that is repeated changes nothing")
				require.Empty(t, again.Reported)
				if c.then == "waiting_retry" {
					require.Equal(t, s.now+5000, s.row("a").Pos)
					require.Contains(t, got.Moved, handle.NewPlace(s.row("a").Slot, s.now+5000, s.row("a").Seq, s.now+5000))
				}
			})
		})
	}
}

// A report of a delivery that was another task's, or has not been made, does not count here either.
func TestForeignReportBeforeTheSettlement(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.now = t0 + 1000
		s.claim(s.now)
		require.Empty(t, s.do(says("a", 1, schemas.StatusOK)))
		foreign := says("a", 1, schemas.StatusFail)
		foreign.Delivery = "another"
		require.Empty(t, s.do(foreign))
		s.settle(s.now, s.transition("a", task.StateRetry, s.now+5000, 0))
		require.Equal(t, 1, s.count("waiting"), "the task does not wait for a report: the scanners look")
		require.Equal(t, "waiting_retry", s.state("a"))
	})
}

// More reports than a transaction takes stay where they are. But no wait is ended while one may be left.
func TestMoreReportsThanASettlementTakes(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprint("ends a wait: ", ends), func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				const tasks = waitingReports/schemas.MaxWaitingReports + 5
				exits := func(state task.State) (out []line.Transition) {
					for n := range tasks {
						e := s.transition(fmt.Sprint(n), state, s.now+60_000, 1)
						e.EndsWait = state != task.StateReport
						out = append(out, e)
					}
					return out
				}
				for n := range tasks {
					s.do(s.schedule(fmt.Sprint(n), wantReport))
				}
				s.now = t0 + 1000
				s.claim(s.now)
				if ends {
					s.settle(s.now, exits(task.StateReport)...)
					s.now += 60_000
					s.claim(s.now)
				}
				for n := range tasks {
					reports := make([]any, schemas.MaxWaitingReports)
					for i := range reports {
						reports[i] = says(fmt.Sprint(n), 1, schemas.StatusOK)
					}
					s.do(reports...)
				}
				require.Equal(t, tasks*schemas.MaxWaitingReports, s.count("waiting"))
				if !ends {
					s.settle(s.now, exits(task.StateReport)...)
					require.Equal(t, tasks*schemas.MaxWaitingReports-waitingReports, s.count("waiting"))
					s.resolve()
				} else {
					_, err := s.Settle(s.ctx, nil, exits(task.StateRetry), store.At(s.now))
					require.ErrorIs(t, err, errKnown)
					require.True(t, BadRecord(err), "whoever settles halves the piece")
					for _, e := range exits(task.StateRetry) {
						_, err := s.Settle(s.ctx, nil, []line.Transition{e}, store.At(s.now))
						require.NoError(t, err)
					}
				}
				require.Zero(t, s.count("waiting"))
				for n := range tasks {
					require.Equal(t, "succeeded", s.state(fmt.Sprint(n)))
				}
			})
		})
	}
}
