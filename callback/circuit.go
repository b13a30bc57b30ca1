package callback

import (
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// circuit counts an origin's failures. After failuresToOpen in a row the circuit is open: one
// request at a time asks the origin, after a doubling pause, until the origin answers one. Waiting
// requests make no attempt, so an outage does not use up the attempts of all tasks.
//
// The known libraries do not tell a caller for how long to put a task off. Their pause neither
// grows nor follows Retry-After. The room's lock guards a circuit.
type circuit struct {
	failures int
	open     bool
	probing  bool      // the request that asks is under way
	next     time.Time // when the next one may
}

const (
	failuresToOpen = 10
	firstPause     = time.Second
	longestPause   = time.Minute
)

// wait returns 0 if a request may be sent now, otherwise for how long to put it off.
func (c *circuit) wait(now time.Time) time.Duration {
	if c.open && (c.probing || now.Before(c.next)) {
		return max(c.next.Sub(now), firstPause)
	}
	return 0
}

// enter notes a sent request, and whether it probes an open origin. wait must have returned 0.
func (c *circuit) enter() (probe bool) {
	c.probing = c.probing || c.open
	return c.open
}

// change is the effect of an outcome on a circuit.
type change uint8

const (
	unchanged change = iota
	opened
	closed
)

func (c *circuit) leave(o Outcome, probe bool, now time.Time) change {
	if probe {
		c.probing = false
	}
	switch {
	case o.Verdict == NotSent && probe: // it asked nothing, and another one asks
		c.next = now.Add(o.After)
	case o.Verdict == Retry && c.open && !probe:
		return unchanged // it was sent before the circuit opened
	case o.Verdict == Retry:
		c.failures++
		if c.failures < failuresToOpen {
			return unchanged
		}
		before := c.open
		c.open = true
		rest := loop.Pause(c.failures-failuresToOpen+1, firstPause, longestPause)
		c.next = now.Add(max(rest, min(o.After, longestPause))) // Retry-After is for its task; others of the origin may be answered
		if before {
			return unchanged
		}
		return opened
	case o.Status != 0: // it answered, and not that it is in trouble
		before := c.open
		*c = circuit{probing: c.probing}
		if before {
			return closed
		}
	}
	return unchanged // interrupted, or refused before a connection: nothing is known
}
