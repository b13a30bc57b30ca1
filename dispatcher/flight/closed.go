package flight

import (
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// An outlet is closed while it takes nothing. Its tasks are put off, and one at a time is sent to
// ask whether the outlet takes records again, longer and longer after the one before. When the
// outlet does, the others are called back.

// cause says why an outlet is closed.
type cause int

const (
	// silent: a partition does not answer. A producer of its own asks, so that nobody else's
	// records share a request, a connection or a buffer. An origin of callbacks is silent when
	// package callback calls the origin down.
	silent cause = iota
	// refused: the topic does not exist, or may not be written. A moment later the topic may be
	// there, so until patience has passed its tasks wait. After that each is sent, and is a dead
	// letter if refused. The memory is this process's own: a new owner of a slot begins its own
	// count.
	refused
	// clockDiffers: the broker refuses the database's time. The tasks wait until somebody corrects
	// one of the two clocks.
	clockDiffers
)

// causes are how long nothing is sent at first, and at most. An outlet without traffic for quiet
// longer counts as any other: it may have come and gone meanwhile.
var causes = [...]struct{ first, longest, quiet time.Duration }{
	silent:       {5 * time.Second, 47 * time.Second, 10 * time.Minute}, // a probe may take 25 s: so an outlet that answers again is asked within 72 s
	refused:      {time.Second, 10 * time.Second, 2 * time.Minute},
	clockDiffers: {time.Second, 10 * time.Second, 2 * time.Minute},
}

// probesAtOnce bounds the asking producers: each is a connection or more.
const probesAtOnce = 32

// closed is the time of an outlet that takes nothing.
type closed struct {
	cause     cause
	ends      time.Time     // the patience with a topic that refuses; zero: never
	first     time.Duration // for how long nothing is sent before the first task that asks
	asked     int           // how often a task was sent to ask
	next      time.Time     // nothing is sent before
	probing   bool          // a task is on its way
	probeRead time.Time     // when the latest one was read for that
	refusal   *closed       // of a silent outlet: what it said before
}

func newClosed(why cause, now time.Time) *closed {
	first := causes[why].first
	return &closed{cause: why, first: first, next: now.Add(first)}
}

// final says whether the patience is over: each task is sent, and ends by the answer.
func (c *closed) final(now time.Time) bool { return !c.ends.IsZero() && !now.Before(c.ends) }

// claim reports whether a task may be sent to ask the outlet, and takes the right to.
func (c *closed) claim(now time.Time) bool {
	if !c.mayAsk(now) {
		return false
	}
	c.probing = true
	c.asked++
	c.next = now.Add(c.pause(now))
	return true
}

func (c *closed) pause(now time.Time) time.Duration {
	return c.within(loop.Pause(c.asked+1, c.first, causes[c.cause].longest), now)
}

// within cuts a pause to the end of the patience.
func (c *closed) within(pause time.Duration, now time.Time) time.Duration {
	if left := c.ends.Sub(now); left > 0 {
		return min(pause, left)
	}
	return pause
}

func (c *closed) mayAsk(now time.Time) bool { return !c.probing && !now.Before(c.next) }

// readsProbe reports whether a task's body is to be read to ask the outlet with, and takes the
// right to for a moment.
func (c *closed) readsProbe(now time.Time) bool {
	if !c.mayAsk(now) || now.Sub(c.probeRead) < time.Second {
		return false
	}
	c.probeRead = now
	return true
}

// wait is for how long a task is put off: until the outlet is asked again, or just before a
// question, for as long as the pause before.
func (c *closed) wait(now time.Time) time.Duration {
	if !now.Before(c.next) {
		return c.pause(now)
	}
	return c.within(max(c.next.Sub(now), time.Second), now)
}

func (c *closed) over(now time.Time) bool { return now.Sub(c.next) > causes[c.cause].quiet }
