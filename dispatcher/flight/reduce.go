package flight

import "github.com/notyet/notyet/schemas"

// Step is how often the transition has been reduced, and once more.
func (e Transition) Step() int { return e.reduced + 1 }

// Reduce leaves out of a transition what the database may have refused: first long texts, then the
// body of its dead letter, which the row still has. In the end a task that was to become a dead
// letter stays in its line, and comes again in a minute. False: nothing is left to leave out.
func (e *Transition) Reduce(now int64) bool {
	e.reduced++
	switch e.reduced {
	case 1:
		e.cutReasons(shortReason)
	case 2:
		e.cutReasons(0)
		if e.Dead != nil {
			dead := *e.Dead
			dead.Body, dead.Reason = nil, "the database refused its body and its reason here; the task's row has the body until the retention ends"
			e.Dead = &dead
		}
	case 3:
		if e.Dead == nil {
			return false
		}
		e.Dead, e.Events, e.State, e.Attempt, e.Pos = nil, nil, e.alive, e.tried, now+refusedPause.Milliseconds()
	default:
		return false
	}
	return true
}

func (e *Transition) cutReasons(n int) {
	events := make([]schemas.Event, len(e.Events)) // another try may still hold the old ones
	for i, ev := range e.Events {
		ev.Reason = cutASCII(ev.Reason, n)
		events[i] = ev
	}
	e.Events = events
	if e.Dead != nil {
		dead := *e.Dead
		dead.Reason = cutASCII(dead.Reason, n)
		e.Dead = &dead
	}
}

// cutASCII shortens s to n bytes and writes a question mark for whatever is not printable ASCII.
func cutASCII(s string, n int) string {
	b := []byte(s[:min(n, len(s))])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
