package flight

import (
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// longestTransit is for how long, at most, a report that was accepted in time is still on its way to the database when the wait ends.
const longestTransit = time.Second

// transit is how long after the end of a wait it is judged whether a report came in time: as long as the look-ahead, by which a
// redelivery may be late.
func (c Config) transit() time.Duration { return min(c.LookAhead, longestTransit) }

// unreported ends the wait for a report: another attempt after its backoff, or none is left. Only the settlement knows whether a
// report came in time: see store/intake/reportwait.go.
func (fl *Flight) unreported(t *Task) {
	_ = faultpoint.At(faultpoint.DispatcherUnreported)
	reason := fmt.Sprintf("no report on attempt %d within %v", t.attempt, t.settings.AckTimeout)
	now := fl.clock.Millis()
	var e Transition
	if t.attempt >= t.settings.MaxAttempts {
		e = fl.deadTransition(t, schemas.KindDead, task.Exhausted(t.attempt, reason))
	} else {
		waited := min(max(now-t.pos, 0), fl.cfg.transit().Milliseconds()) // the backoff counts from the end of the wait
		e = t.retry(fl.clock.Latest()+max(t.settings.Backoff.Pause(t.attempt).Milliseconds()-waited, 0)+1, t.attempt, reason)
	}
	e.EndsWait = true
	fl.leave(t, e)
}
