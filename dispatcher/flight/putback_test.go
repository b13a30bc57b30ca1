package flight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// The end of a wait is judged a little later, so that a report of the last moment has reached the database. The backoff counts from the end
// of the wait all the same, and never less.
func TestBackoffCountsFromTheEndOfTheWait(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, transit  time.Duration // the look-ahead, and what is to follow from it
		attempt         int
		judged          time.Duration // after the end of the wait
		backoff, resent time.Duration // the latter after the end of the wait
	}{
		"usual":                        {400 * time.Millisecond, 400 * time.Millisecond, 1, 400 * time.Millisecond, time.Second, time.Second},
		"a backoff shorter than that":  {400 * time.Millisecond, 400 * time.Millisecond, 1, 400 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond},
		"a long look-ahead":            {time.Minute, longestTransit, 1, longestTransit, 5 * time.Second, 5 * time.Second},
		"a short one, again and again": {time.Millisecond, time.Millisecond, 10, time.Millisecond, time.Millisecond, 100 * time.Millisecond},
		"judged much later":            {400 * time.Millisecond, 400 * time.Millisecond, 1, time.Hour, time.Second, time.Hour + 600*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl := newFlight(t, Config{LookAhead: c.ahead})
				end := nowMillis()
				settings := schemas.Settings{Ack: schemas.AckReport, MaxAttempts: 30, AckTimeout: time.Second, Backoff: schemas.Backoff{First: c.backoff, Max: c.backoff}}
				row := &task.Task{Topic: "orders", ID: "a", Due: 1, Pos: end, Attempt: c.attempt, State: task.StateReport, Body: schemas.EncodeBody(nil, nil, nil, nil, settings)}
				waiting := &Task{slot: &ownedSlot{}, pos: end, content: &content{}}
				require.NoError(t, fl.prepare(waiting, waiting.content, row, someKeys{}, nil))
				require.Equal(t, end+c.transit.Milliseconds(), waiting.at)

				time.Sleep(c.judged)
				fl.unreported(waiting)
				require.Len(t, fl.inbox.transitions, 1)
				e := fl.inbox.transitions[0]
				require.Equal(t, task.StateRetry, e.State)
				require.GreaterOrEqual(t, e.Pos, end+c.resent.Milliseconds())
				require.LessOrEqual(t, e.Pos, end+c.resent.Milliseconds()+500, "what clocks may be apart in an hour")
				require.True(t, e.EndsWait)
			})
		})
	}
}

// A callback that fails again and again pauses 100 ms at least from its 10th attempt on.
func TestPauseOfACallbackThatFailsAgainAndAgain(t *testing.T) {
	for made, pause := range map[int]int64{9: 1, 10: 100, 11: 100} {
		synctest.Test(t, func(t *testing.T) {
			fl, now := newFlight(t, Config{}), nowMillis()
			settings := schemas.Settings{MaxAttempts: 30, Backoff: schemas.BackoffSteps(time.Millisecond)}
			one := &Task{slot: &ownedSlot{}, content: &content{attempt: made - 1, settings: settings}}
			fl.Outcomes.callFailed(one, outcome{task: one, at: now, latest: now}, &CallError{Outcome: callback.Outcome{Verdict: callback.Retry, Sent: true}})
			require.Len(t, fl.inbox.transitions, 1)
			require.Equal(t, made, fl.inbox.transitions[0].Attempt)
			require.Equal(t, now+1+pause, fl.inbox.transitions[0].Pos)
		})
	}
}

// A stop may end a retry only where nothing of the task is under way, here or from an earlier owner.
func TestWhichRetriesAreIdle(t *testing.T) {
	retried := content{attempt: 2, state: task.StateRetry, idle: true}
	failed := func(verdict callback.Verdict, sent bool) func(fl *Flight, t *Task) {
		return func(fl *Flight, t *Task) {
			fl.Outcomes.callFailed(t, outcome{task: t}, &CallError{Outcome: callback.Outcome{Verdict: verdict, Sent: sent}})
		}
	}
	notSent := func(fl *Flight, t *Task) { fl.Outcomes.sendLater(t, kafka.ErrNotSent) }
	for name, c := range map[string]struct {
		doubt   bool
		content content
		end     func(fl *Flight, t *Task)
		state   task.State // StateLine: as the row says, which also says whether it is idle
		idle    bool
	}{
		"no report came":                        {false, content{attempt: 1, state: task.StateReport, idle: true}, (*Flight).unreported, task.StateRetry, true},
		"no report came, taken in doubt":        {true, content{attempt: 1, state: task.StateReport, idle: true}, (*Flight).unreported, task.StateRetry, false},
		"the call failed":                       {false, content{}, failed(callback.Retry, true), task.StateRetry, true},
		"the call failed, taken in doubt":       {true, content{}, failed(callback.Retry, true), task.StateRetry, true},
		"the call was never made":               {false, retried, failed(callback.Interrupted, false), task.StateRetry, true},
		"it was not made, and may have before":  {false, content{attempt: 2, state: task.StateRetry}, failed(callback.Interrupted, false), task.StateRetry, false},
		"it was not made, taken in doubt":       {true, retried, failed(callback.Interrupted, false), task.StateRetry, false},
		"a retry was not sent":                  {false, retried, notSent, task.StateLine, false},
		"a retry was not sent, taken in doubt":  {true, retried, notSent, task.StateRetry, false},
		"a retry was sent, perhaps":             {false, retried, func(fl *Flight, t *Task) { fl.Outcomes.sendLater(t, kerr.RequestTimedOut) }, task.StateRetry, false},
		"a retry is with the producer for long": {false, retried, (*Flight).setAsideSent, task.StateRetry, false},
	} {
		t.Run(name, func(t *testing.T) {
			fl := newFlight(t, Config{})
			c.content.settings = schemas.DefaultSettings()
			c.end(fl, &Task{slot: &ownedSlot{}, seq: 7, doubt: c.doubt, content: &c.content})
			out, _, _ := fl.inbox.takeLeaving(0)
			require.Len(t, out, 1)
			require.Equal(t, c.state, out[0].State)
			require.Equal(t, c.idle, out[0].Idle)
		})
	}
}

// What a consumer has snoozed counts neither as an attempt nor for the backoff, whatever the next one comes to.
func TestSnoozedAttemptsDoNotCount(t *testing.T) {
	fail := func(fl *Flight, t *Task) {
		fl.Outcomes.callFailed(t, outcome{task: t, at: nowMillis(), latest: nowMillis()}, &CallError{Outcome: callback.Outcome{Verdict: callback.Retry, Sent: true}})
	}
	for name, c := range map[string]struct {
		attempt int // of the row
		end     func(fl *Flight, t *Task)
		want    task.State
	}{
		"no report came":                   {20, (*Flight).unreported, task.StateRetry},
		"no report came, and none is left": {21, (*Flight).unreported, task.StateDead},
		"a call failed":                    {19, fail, task.StateRetry},
		"a call failed, and none is left":  {20, fail, task.StateDead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl, now := newFlight(t, Config{}), nowMillis()
				settings := schemas.Settings{Ack: schemas.AckReport, MaxAttempts: 3, AckTimeout: time.Second, Backoff: schemas.BackoffSteps(time.Minute, time.Hour, 24*time.Hour)}
				row := &task.Task{Topic: "orders", ID: "a", Attempt: c.attempt, Snoozed: 18, State: task.StateReport, Body: schemas.EncodeBody(nil, nil, nil, nil, settings)}
				one := &Task{slot: &ownedSlot{}, pos: now, content: &content{}}
				require.NoError(t, fl.prepare(one, one.content, row, someKeys{}, nil))
				c.end(fl, one)
				out, _, _ := fl.inbox.takeLeaving(0)
				require.Equal(t, c.want, out[0].State)
				if c.want == task.StateDead {
					require.Contains(t, out[0].Dead.Reason, "attempts exhausted (3)")
					require.Equal(t, 21, out[0].Dead.Attempt, "deliveries made")
					return
				}
				require.InDelta(t, now+time.Hour.Milliseconds(), out[0].Pos, 1000, "the second step")
			})
		})
	}
}
