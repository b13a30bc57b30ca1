// Package target knows whether a target, or a part of one, takes anything now. Answers to sent
// tasks go in; whether a task may be sent, and otherwise for how long it waits, comes out. The
// package has no lock, no loop and no clock: package flight calls it under the lock there.
package target

import (
	"time"

	"github.com/notyet/notyet/internal/loop"
)

// Why says why a Bar is closed.
type Why uint8

const (
	// Nothing is against it: the Bar is open.
	Nothing Why = iota
	// Silent: a partition does not answer. A producer of its own asks, so that nobody else's
	// records share a request, a connection or a buffer.
	Silent
	// Refused: the topic does not exist, or may not be written. A moment later the topic may be
	// there, so until patience has passed its tasks wait. After that each is sent, and is a dead
	// letter if refused. The memory is this process's own: a new owner of a slot begins its own
	// count.
	Refused
	// ClockDiffers: the broker refuses the database's time. The tasks wait until somebody corrects
	// one of the two clocks.
	ClockDiffers
	// Down: an origin of callbacks has failed ten times in a row.
	Down
)

// pauses are how long nothing is sent at first, and at most. A Bar without a question for quiet
// longer says nothing any more: the target may have come and gone meanwhile.
var pauses = [...]struct{ first, longest, quiet time.Duration }{
	Silent:       {5 * time.Second, 47 * time.Second, 10 * time.Minute}, // a question may take 25 s: so what answers again is asked within 72 s
	Refused:      {time.Second, 10 * time.Second, 2 * time.Minute},
	ClockDiffers: {time.Second, 10 * time.Second, 2 * time.Minute},
	Down:         {time.Second, time.Minute, 10 * time.Minute},
}

// Bar is in front of a target, or of a part of one. It is closed while that takes nothing: its
// tasks are put off, and one at a time is sent to ask whether the target takes tasks again, longer
// and longer after the one before. When the target does, the Bar opens. The zero Bar is open.
type Bar struct {
	why    Why
	asking bool          // a task is on its way to ask, maybe since before the Bar was closed
	asked  int           // how often a task was sent to ask
	first  time.Duration // for how long nothing is sent before the first such task
	next   time.Time     // nothing is sent before
	read   time.Time     // when the body of the latest such task was read
	ends   time.Time     // of the patience; zero: never
}

// Why says why the Bar is closed.
func (b *Bar) Why() Why { return b.why }

// IsOpen says whether nothing is against sending.
func (b *Bar) IsOpen() bool { return b.why == Nothing }

// PutsOff says whether tasks are put off. After the end of the patience each task is sent, and ends
// by the answer.
func (b *Bar) PutsOff(now time.Time) bool {
	return b.why != Nothing && (b.ends.IsZero() || now.Before(b.ends))
}

// Close closes the Bar.
func (b *Bar) Close(why Why, now time.Time) {
	first := pauses[why].first
	*b = Bar{why: why, asking: b.asking, first: first, next: now.Add(first)}
}

// Refuse closes the Bar because of a refusal, or notes one more, and says whether it is news. The
// patience of a Bar that was closed before stays; zero: it is endless. Each of many that refuse
// asks more seldom.
func (b *Bar) Refuse(why Why, ends time.Time, many int, now time.Time) (news bool) {
	if news = b.why != why || b.IsOver(now); news {
		b.Close(why, now)
		b.ends, b.first = ends, min(b.first*time.Duration(1+many/100), pauses[why].longest)
		b.next = now.Add(b.within(b.first, now))
	} else if !now.Before(b.next) { // not one of many that were sent together
		b.next = now.Add(b.pause(now))
	}
	return news
}

// Open opens the Bar.
func (b *Bar) Open() { *b = Bar{asking: b.asking} }

// Rest begins a pause anew, with the answer to a question, and says how long it is at least.
func (b *Bar) Rest(least time.Duration, now time.Time) {
	b.next = now.Add(max(b.pause(now), least))
}

// Unasked notes that a task which was to ask has asked nothing. The next one may go after the first
// pause.
func (b *Bar) Unasked(now time.Time) {
	if b.why != Nothing {
		b.asked--
		b.next = now.Add(b.first)
	}
}

// MayAsk says whether a task may be sent to ask.
func (b *Bar) MayAsk(now time.Time) bool { return !b.asking && !now.Before(b.next) }

// Ask notes that a task is sent to ask. The next one may go after its answer.
func (b *Bar) Ask(now time.Time) {
	b.asking = true
	b.asked++
	b.next = now.Add(b.pause(now))
}

// Asked notes that the task on its way has its answer, or gets none.
func (b *Bar) Asked() { b.asking = false }

// ReadToAsk says whether the body of a task is to be read to ask with: one at a time, and another
// if nothing came of it within a second.
func (b *Bar) ReadToAsk(now time.Time) bool {
	if !b.MayAsk(now) || now.Sub(b.read) < time.Second {
		return false
	}
	b.read = now
	return true
}

// Wait is for how long a task is put off: until somebody may ask, or just before a question for as
// long as the pause before.
func (b *Bar) Wait(now time.Time) time.Duration {
	if !now.Before(b.next) {
		return b.pause(now)
	}
	return b.within(max(b.next.Sub(now), time.Second), now)
}

// IsOver says whether nothing was asked for so long that nobody knows the state.
func (b *Bar) IsOver(now time.Time) bool {
	return b.why != Nothing && now.Sub(b.next) > pauses[b.why].quiet
}

func (b *Bar) pause(now time.Time) time.Duration {
	return b.within(loop.Pause(b.asked+1, b.first, pauses[b.why].longest), now)
}

// within cuts a pause to the end of the patience.
func (b *Bar) within(pause time.Duration, now time.Time) time.Duration {
	if left := b.ends.Sub(now); left > 0 {
		return min(pause, left)
	}
	return pause
}
