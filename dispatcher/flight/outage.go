package flight

import (
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/loop"
)

// An outlet that does not answer is asked by one task at a time, from a producer made for that, so that nobody else's records share
// a request, a connection or a buffer with it. Its other tasks are put off until about the next time it is asked, longer and longer.

const (
	firstProbePause   = 5 * time.Second
	longestProbePause = 47 * time.Second // and a probe may take 25 s: so a target that answers again is asked within 72 s
	// outageForgotten is how long nothing may be there to ask an unresponsive outlet with, before it counts as any other.
	outageForgotten = 10 * time.Minute
	// probesAtOnce bounds the producers that ask: each is a connection or more.
	probesAtOnce = 32
)

// outage is the time in which an outlet does not answer.
type outage struct {
	first     time.Duration // for how long nothing is sent before the first task that asks
	asked     int           // how often a task was sent to ask
	next      time.Time     // nothing is sent before
	probing   bool          // a task is on its way
	probeRead time.Time     // when the latest one was read for that
}

func newOutage(now time.Time) *outage {
	return &outage{first: firstProbePause, next: now.Add(firstProbePause)}
}

// claim reports whether a task may be sent to ask the outlet, and takes the right to.
func (o *outage) claim(now time.Time) bool {
	if !o.mayAsk(now) {
		return false
	}
	o.probing = true
	o.asked++
	o.next = now.Add(o.pause())
	return true
}

func (o *outage) pause() time.Duration { return loop.Pause(o.asked+1, o.first, longestProbePause) }

func (o *outage) mayAsk(now time.Time) bool { return !o.probing && !now.Before(o.next) }

// readsProbe reports whether the body of a task is to be read to ask the outlet with, and takes the right to for a moment.
func (o *outage) readsProbe(now time.Time) bool {
	if !o.mayAsk(now) || now.Sub(o.probeRead) < time.Second {
		return false
	}
	o.probeRead = now
	return true
}

// wait is for how long a task is put off: until the outlet is asked again, or if that is about to happen, for as long as the pause
// before was.
func (o *outage) wait(now time.Time) time.Duration {
	if !now.Before(o.next) {
		return o.pause()
	}
	return max(o.next.Sub(now), time.Second)
}

func (o *outage) over(now time.Time) bool { return now.Sub(o.next) > outageForgotten }

// fallsSilent begins an outage.
func (outs *outlets) fallsSilent(g *Outlet) {
	g.outage = newOutage(time.Now())
	outs.metrics.Unresponsive.Inc()
	outs.log.Warn("a target does not answer: its tasks are set aside", zap.String("topic", g.topic), zap.Int32("partition", g.partition), zap.Int("in_flight", g.sending))
}
