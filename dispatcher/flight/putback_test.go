package flight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// The end of a wait is judged a little later, so that a report of the last moment has reached the database. The backoff counts from the end
// of the wait all the same, and never less.
func TestBackoffCountsFromTheEndOfTheWait(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, transit  time.Duration // the look-ahead, and what is to follow from it
		judged          time.Duration // after the end of the wait
		backoff, resent time.Duration // the latter after the end of the wait
	}{
		"usual":                       {400 * time.Millisecond, 400 * time.Millisecond, 400 * time.Millisecond, time.Second, time.Second},
		"a backoff shorter than that": {400 * time.Millisecond, 400 * time.Millisecond, 400 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond},
		"a long look-ahead":           {time.Minute, longestTransit, longestTransit, 5 * time.Second, 5 * time.Second},
		"judged much later":           {400 * time.Millisecond, 400 * time.Millisecond, time.Hour, time.Second, time.Hour + 600*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl := newFlight(t, Config{LookAhead: c.ahead})
				end := nowMillis()
				settings := schemas.Settings{Ack: schemas.AckReport, MaxAttempts: 3, AckTimeout: time.Second, Backoff: schemas.Backoff{First: c.backoff, Max: c.backoff}}
				row := &task.Task{Topic: "orders", ID: "a", Due: 1, Pos: end, Attempt: 1, State: task.StateReport, Body: schemas.EncodeBody(nil, nil, nil, nil, settings)}
				waiting := &Task{slot: &ownedSlot{}, pos: end, content: &content{}}
				require.NoError(t, fl.prepare(waiting, waiting.content, row, nil, nil))
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
