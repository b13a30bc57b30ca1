package flight

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// releaseBatch bounds how many tasks are sent between two looks at whether the election still trusts us, which is how
// many a paused owner may send on waking.
const releaseBatch = 256

// Sendable is a task that is to be sent now. It keeps the record, for the task may be abandoned while it is handed to the producer.
type Sendable struct {
	Task    *Task
	Record  *kgo.Record
	IsProbe bool // its outlet does not answer: it is sent apart

	Call *callback.Request // of a callback, with the room that it takes at its origin
	Seat *callback.Seat
}

// Origins give room for requests to the origins of callbacks. Enter does not block.
type Origins interface {
	Enter(origin string) (*callback.Seat, callback.Absence)
}

// UntilRelease is how long until something is to be sent, if nothing else happens; at most a second.
func (fl *Flight) UntilRelease() time.Duration {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return min(fl.due.untilDue(fl.clock.Now()), fl.gates.untilRelease())
}

// TakeDue takes what is to be sent now, at most a batch. more says that there may be more.
func (fl *Flight) TakeDue() (send []Sendable, more bool) {
	now := fl.clock.Millis()
	send = make([]Sendable, 0, releaseBatch)
	fl.mu.Lock()
	defer fl.mu.Unlock()
	take := func(t *Task, waited bool) {
		if !t.slot.abandoned && fl.admit(t, now, waited) {
			send = append(send, fl.sendable(t))
		}
	}
	for len(send) < releaseBatch && len(fl.due) > 0 && fl.due[0].at <= now {
		take(fl.due.pop(), false)
	}
	fl.gates.release(func() bool { return len(send) < releaseBatch }, func(t *Task) { take(t, false) })
	for _, g := range fl.outlets.byKey {
		for len(send) < releaseBatch && len(g.waiting) > 0 && fl.room(g, g.waiting[0]) {
			t := g.waiting[0]
			g.waiting = g.waiting[1:]
			take(t, true)
		}
		g.leaveSeat()
	}
	return send, len(send) == releaseBatch
}

// sendable hands out an admitted task. A callback takes along the room that was taken for it at its origin.
func (fl *Flight) sendable(t *Task) Sendable {
	t.trace.begins()
	if t.call != nil {
		one := Sendable{Task: t, Record: t.record, Call: t.call, Seat: t.with.seat}
		t.with.seat = nil
		fl.underWay[t] = time.Now()
		return one
	}
	isProbe := t.with.silent()
	if isProbe {
		fl.outlets.probes++
	}
	return Sendable{Task: t, Record: t.record, IsProbe: isProbe}
}

// admit decides what becomes of a due task: true means that it is to be sent now. One that has waited for its target goes
// before one that has not.
func (fl *Flight) admit(t *Task, now int64, waited bool) bool {
	fl.gates.arrives(t)
	if t.state == task.StateReport {
		fl.unreported(t)
		return false
	}
	if t.slot.leavingFor() > fl.cfg.lastSend() {
		fl.postpone(t, now, time.Millisecond) // its next owner sends it
		return false
	}
	if t.settings.Run.Timer != "" && !fl.admitsRun(t, now) {
		return false
	}
	if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && now > t.due+bound && !t.maybeSent() {
		fl.deadLetter(t, schemas.KindExpired, fmt.Sprintf("it could not be delivered within notyet-max-lateness %v of its due time", t.settings.MaxLateness))
		return false
	}
	if t.call != nil && fl.origins == nil {
		fl.deadLetter(t, schemas.KindCallback, "this dispatcher makes no HTTP callbacks: set callback.enabled")
		return false
	}
	if fl.gates.detains(t, now) {
		return false
	}
	g := fl.outlets.of(t)
	fl.rejudgeParked(t, g)
	switch closed := g.putsOff(time.Now()); {
	case closed && g.refuses() && !fl.outlets.hasRoom(g, t): // others may ask
		fl.putOff(t, g)
		return false
	case closed && (g.silent() && !g.origin && fl.outlets.probes >= probesAtOnce || !g.closed.claim(time.Now())):
		fl.putOff(t, g)
		return false
	case closed && g.origin && !fl.room(g, t):
		g.closed.probing = false
		fl.putOff(t, g)
		return false
	case closed:
	case !waited && len(g.waiting) > 0 || !fl.room(g, t):
		if g.silent() { // an origin, and it is known now
			fl.putOff(t, g)
		} else {
			g.waiting = append(g.waiting, t)
		}
		return false
	}
	fl.outlets.beginSending(g, t)
	t.status = sending
	return true
}

// room says whether a task may be sent through its outlet. At an origin it takes the room for it.
func (fl *Flight) room(g *Outlet, t *Task) bool {
	switch {
	case !fl.outlets.hasRoom(g, t):
		return false
	case !g.origin || g.seat != nil:
		return true
	}
	seat, absence := fl.origins.Enter(g.topic)
	if absence.Down {
		fl.originDown(g, absence.Wait)
	}
	g.seat = seat
	return seat != nil
}

// leaveSeat gives back room at an origin that no task has used.
func (g *Outlet) leaveSeat() {
	if g.seat != nil {
		g.seat.Leave()
		g.seat = nil
	}
}
