package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
)

func TestDecideReports(t *testing.T) {
	const retryAfter = 1500 * time.Microsecond
	for name, c := range map[string]struct {
		phase     Phase
		state     State
		attempt   int // deliveries that the row knows of
		rep       schemas.Report
		plain     bool // the task wants no report
		want      State
		event     schemas.State
		wait      bool
		unchanged bool
	}{
		"ok":                  {phase: Between, state: StateReport, attempt: 1, rep: schemas.Report{Attempt: 1, Status: schemas.StatusOK}, want: StateSucceeded, event: schemas.StateSucceeded},
		"permanent failure":   {phase: Between, state: StateReport, attempt: 1, rep: schemas.Report{Attempt: 1, Status: schemas.StatusFail}, want: StateDead, event: schemas.StateDead},
		"another attempt":     {phase: Between, state: StateReport, attempt: 1, rep: schemas.Report{Attempt: 1, Status: schemas.StatusRetry}, want: StateRetry, event: schemas.StateRetrying},
		"attempts exhausted":  {phase: Between, state: StateReport, attempt: 2, rep: schemas.Report{Attempt: 2, Status: schemas.StatusRetry}, want: StateDead, event: schemas.StateDead},
		"snoozed, the last":   {phase: Between, state: StateReport, attempt: 2, rep: schemas.Report{Attempt: 2, Status: schemas.StatusSnooze}, want: StateRetry, event: schemas.StateRetrying},
		"a late snooze":       {phase: Between, state: StateRetry, attempt: 1, rep: schemas.Report{Attempt: 1, Status: schemas.StatusSnooze}, unchanged: true},
		"a late ok":           {phase: Between, state: StateRetry, attempt: 1, rep: schemas.Report{Attempt: 1, Status: schemas.StatusOK}, want: StateSucceeded, event: schemas.StateSucceeded},
		"a late failure":      {phase: Between, state: StateRetry, attempt: 1, rep: schemas.Report{Attempt: 1, Status: schemas.StatusFail}, unchanged: true},
		"of an attempt ahead": {phase: Between, state: StateReport, attempt: 1, rep: schemas.Report{Attempt: 2, Status: schemas.StatusOK}, unchanged: true},
		"of no attempt":       {phase: Between, state: StateReport, attempt: 1, rep: schemas.Report{Attempt: 0, Status: schemas.StatusOK}, unchanged: true},
		"no report is wanted": {phase: Between, state: StateReport, attempt: 1, rep: schemas.Report{Attempt: 1, Status: schemas.StatusOK}, plain: true, unchanged: true},
		"of a pending task":   {phase: Pending, state: StateLine, rep: schemas.Report{Attempt: 1, Status: schemas.StatusOK}, unchanged: true},
		"of an ended task":    {phase: Ended, state: StateReport, attempt: 1, rep: schemas.Report{Attempt: 1, Status: schemas.StatusOK}, unchanged: true},
		"in flight":           {phase: InFlight, state: StateLine, rep: schemas.Report{Attempt: 1, Status: schemas.StatusOK}, wait: true, unchanged: true},
		"in flight, proven, and its delivery is told too": {phase: InFlight, state: StateLine, rep: schemas.Report{Attempt: 1, Delivery: "d", Status: schemas.StatusOK}, wait: true, unchanged: true},
		"in flight, ahead": {phase: InFlight, state: StateLine, rep: schemas.Report{Attempt: 2, Status: schemas.StatusOK}, unchanged: true},
		"of a delivery without an answer from Kafka": {phase: Between, state: StateRetry, attempt: 0, rep: schemas.Report{Attempt: 1, Delivery: "d", Status: schemas.StatusOK},
			want: StateSucceeded, event: schemas.StateSucceeded},
		"its failure": {phase: Between, state: StateRetry, attempt: 0, rep: schemas.Report{Attempt: 1, Delivery: "d", Status: schemas.StatusFail},
			want: StateDead, event: schemas.StateDead},
		"of a delivery of a task that is pending again": {phase: Pending, state: StateLine, rep: schemas.Report{Attempt: 1, Delivery: "d", Status: schemas.StatusOK},
			want: StateSucceeded, event: schemas.StateSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schemas.DefaultSettings()
			settings.Ack, settings.MaxAttempts, settings.Events = schemas.AckReport, 2, schemas.EventsAll
			if c.plain {
				settings.Ack = schemas.DefaultSettings().Ack
			}
			cur, _ := stored(c.phase, c.state, -1)
			cur.Attempt, cur.Body = c.attempt, schemas.EncodeBody(nil, nil, nil, nil, settings)
			before := *cur
			c.rep.Topic, c.rep.ID, c.rep.RetryAfter = "orders", "a", retryAfter
			v := Decide(cur, c.phase, Change{Seq: 8, Report: &c.rep}, slots.Even(testSlots), testNow)
			require.Equal(t, before, *cur, "what came in is only read")
			require.Equal(t, c.wait, v.Wait)
			require.Equal(t, c.event, v.Event.State)
			if c.unchanged {
				require.Same(t, cur, v.Next)
				return
			}
			require.Equal(t, c.want, v.Next.State)
			require.Equal(t, c.rep.Attempt, v.Next.Attempt)
			require.False(t, v.Event.KnowsLateness(), "the row does not know it")
			if c.want == StateRetry {
				require.Equal(t, int64(testNow+2), v.Next.Pos, "rounding is only ever late")
				require.Equal(t, ClassRetried, v.Next.Class)
				require.True(t, v.Next.Idle)
				require.Equal(t, c.rep.Status == schemas.StatusSnooze, v.Next.Snoozed == 1)
				return
			}
			require.Equal(t, OutOfLine, v.Next.Slot)
			require.Equal(t, int64(testNow), v.Next.Pos)
			if c.want == StateDead {
				require.Equal(t, schemas.KindDead, v.Dead.Kind)
				require.Equal(t, v.Event.Reason, v.Dead.Reason)
				require.Equal(t, c.rep.Attempt, v.Dead.Attempt)
			} else {
				require.Nil(t, v.Dead)
			}
		})
	}
}

// A report of a task that nobody knows changes nothing.
func TestDecideReportOfNoTask(t *testing.T) {
	v := Decide(nil, Ended, Change{Seq: 8, Report: &schemas.Report{Topic: "orders", ID: "a", Attempt: 1, Status: schemas.StatusOK}}, slots.Even(testSlots), testNow)
	require.Equal(t, Verdict{}, v)
}

// A snoozed attempt does not count, and lengthens no backoff. Beyond the most of them a snooze is a retry.
func TestSnoozes(t *testing.T) {
	const most = schemas.MaxSnoozes
	for name, c := range map[string]struct {
		attempt, snoozed int
		status           schemas.Status
		want             State
		after            int   // snoozed
		pause            int64 // ms
	}{
		"the first":                        {1, 0, schemas.StatusSnooze, StateRetry, 1, 700},
		"after the last attempt":           {2, 0, schemas.StatusSnooze, StateRetry, 1, 700},
		"the most":                         {most + 1, most - 1, schemas.StatusSnooze, StateRetry, most, 700},
		"one more, and an attempt is left": {most + 1, most, schemas.StatusSnooze, StateRetry, most, 700},
		"one more, and none is left":       {most + 2, most, schemas.StatusSnooze, StateDead, most, 0},
		"a retry behind many":              {most + 1, most, schemas.StatusRetry, StateRetry, most, 1000},
		"the last retry behind many":       {most + 2, most, schemas.StatusRetry, StateDead, most, 0},
		"the last retry behind few":        {5, 3, schemas.StatusRetry, StateDead, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schemas.DefaultSettings()
			settings.Ack, settings.MaxAttempts, settings.Backoff = schemas.AckReport, 2, schemas.BackoffSteps(time.Second, time.Hour)
			cur, _ := stored(Between, StateReport, -1)
			cur.Attempt, cur.Snoozed, cur.Body = c.attempt, c.snoozed, schemas.EncodeBody(nil, nil, nil, nil, settings)
			rep := schemas.Report{Topic: "orders", ID: "a", Attempt: c.attempt, Status: c.status, RetryAfter: 700 * time.Millisecond}
			if c.status == schemas.StatusRetry {
				rep.RetryAfter = schemas.NoRetryAfter
			}
			v := Decide(cur, Between, Change{Seq: 8, Report: &rep}, slots.Even(testSlots), testNow)
			require.Equal(t, c.want, v.Next.State)
			require.Equal(t, c.after, v.Next.Snoozed)
			require.Equal(t, int64(testNow)+c.pause, v.Next.Pos)
			if v.Dead != nil {
				require.Equal(t, "attempts exhausted (2); the last: ", v.Dead.Reason)
				require.Equal(t, c.attempt, v.Dead.Attempt, "deliveries made")
			}
		})
	}
}

// A retry waits as long as the report asks for, otherwise as its task's backoff says, and from the 10th attempt on 100 ms at least.
func TestPauseAfterAReport(t *testing.T) {
	for name, c := range map[string]struct {
		attempt int
		asked   time.Duration
		want    int64 // ms
	}{
		"the first step":              {1, schemas.NoRetryAfter, 5000},
		"the second":                  {2, schemas.NoRetryAfter, 20},
		"the last, again":             {9, schemas.NoRetryAfter, 20},
		"the 10th attempt":            {10, schemas.NoRetryAfter, 100},
		"asked for":                   {1, time.Millisecond, 1},
		"asked for, nothing":          {9, 0, 0},
		"asked for, the 10th attempt": {10, 0, 100},
		"asked for, a late attempt":   {5000, 99 * time.Millisecond, 100},
		"asked for more, the same":    {5000, time.Hour, 3_600_000},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schemas.DefaultSettings()
			settings.Ack, settings.MaxAttempts, settings.Backoff = schemas.AckReport, schemas.MaxAttempts, schemas.BackoffSteps(5*time.Second, 20*time.Millisecond)
			cur, _ := stored(Between, StateReport, -1)
			cur.Attempt, cur.Body = c.attempt, schemas.EncodeBody(nil, nil, nil, nil, settings)
			rep := schemas.Report{Topic: "orders", ID: "a", Attempt: c.attempt, Status: schemas.StatusRetry, RetryAfter: c.asked}
			v := Decide(cur, Between, Change{Seq: 8, Report: &rep}, slots.Even(testSlots), testNow)
			require.Equal(t, StateRetry, v.Next.State)
			require.Equal(t, testNow+c.want, v.Next.Pos)
		})
	}
}
