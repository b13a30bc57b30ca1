package flight

import (
	"time"

	"github.com/notyet/notyet/task"
)

// verdict says why a due task is not sent now, and so decides what becomes of the task: see act.
type verdict uint8

const (
	sends         verdict = iota // nothing is against it
	reportMissing                // no report has come: another attempt, or a dead letter
	ownerLeaves                  // put off: the slot leaves before an answer could be settled
	runAsked                     // the run waits until the database has said whether it may begin
	expired                      // a dead letter: too late
	noCallbacks                  // a dead letter: nobody here makes callbacks
	paused                       // held: an operator has paused the target
	behindHeld                   // held: earlier tasks of the target are held, or too many wait
	limited                      // waits at the gate of the target
	tooManyNames                 // put off: the tenant has too many topics that no producer has met
	asks                         // sent to a closed outlet, to ask whether it takes records again
	outletClosed                 // put off: the outlet takes nothing for now
	behindEarlier                // waits: earlier tasks wait for the outlet
	outletFull                   // waits: the outlet has enough in flight
)

// look is what a check sees of a due task. Take makes one for all tasks of a batch.
type look struct {
	*machine
	now    int64     // by the database's clock, Unix ms
	at     time.Time // by this machine's clock
	task   *Task
	waited bool    // for room: the task goes before those that have not
	outlet *Outlet // set before the checks of outlets; the idle one, if no outlet is in use
	idle   Outlet
}

// checks are all questions to a due task, in this order: the first answer but sends counts. A check
// changes nothing.
var checks = [...]func(*look) verdict{
	(*look).report, (*look).owner, (*look).run, (*look).lateness, (*look).callbacks, (*look).policy,
	(*look).names, (*look).closure, (*look).rooms,
}

func (l *look) judge(t *Task, waited bool) verdict {
	l.task, l.waited = t, waited
	for _, check := range checks {
		if v := check(l); v != sends {
			return v
		}
	}
	return sends
}

func (l *look) report() verdict { return unless(l.task.state != task.StateReport, reportMissing) }

func (l *look) owner() verdict {
	return unless(l.task.slot.leavingFor() <= l.cfg.lastSend(), ownerLeaves)
}

// run asks the database about a missed run, and about one that must be alone. The latter asks in
// doubt too: a run that was not started was not sent.
func (l *look) run() verdict {
	t := l.task
	alone := t.settings.Run.Alone && t.first()
	return unless(t.settings.Run.Timer == "" || t.started || !alone && !l.missed(t, l.now), runAsked)
}

func (l *look) lateness() verdict {
	t := l.task
	bound := t.settings.MaxLateness.Milliseconds()
	return unless(bound <= 0 || l.now <= t.due+bound || t.maybeSent(), expired)
}

func (l *look) callbacks() verdict {
	return unless(l.task.call == nil || l.cfg.CallLimits != nil, noCallbacks)
}

func (l *look) policy() verdict { return l.gates.judge(l.task, l.at) }

// names finds the outlet, and checks whether the tenant may have one more topic looked up.
func (l *look) names() verdict {
	key := l.outlets.goesTo(l.task)
	if l.outlet = l.outlets.byKey[key]; l.outlet == nil {
		l.idle = Outlet{outletKey: key}
		if l.task.call != nil {
			l.idle.origin = l.outlets.origins.Known(key.topic)
		}
		l.outlet = &l.idle
	}
	return unless(!l.outlets.oneTooMany(l.outlet, l.task), tooManyNames)
}

func (l *look) closure() verdict {
	switch g := l.outlet; {
	case !g.putsOff(l.at):
		return sends
	case g.silence.IsOpen() && !l.outlets.hasRoom(g, l.task), // others may ask
		!g.silence.IsOpen() && l.outlets.probes >= probesAtOnce,
		!g.bar().MayAsk(l.at):
		return outletClosed
	}
	return asks
}

// rooms looks at the room of this process.
func (l *look) rooms() verdict {
	if !l.waited && len(l.outlet.waiting) > 0 {
		return behindEarlier
	}
	return unless(l.outlets.hasRoom(l.outlet, l.task), outletFull)
}

func unless(fine bool, v verdict) verdict {
	if fine {
		return sends
	}
	return v
}
