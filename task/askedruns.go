package task

import (
	"fmt"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

// Range is a range of runs that a caller asks for after the fact.
type Range struct {
	From, To   int64 // runs that lie at or after, and before, Unix ms
	Remembered int64 // of earlier runs nobody remembers whether they were made,
	Forgotten  bool  // and they are made all the same
	Room       int   // how many runs are looked at, at least 1
	Bytes      int   // of the bodies of the runs, about
}

// Asked are the runs that a timer makes for a caller.
type Asked struct {
	Tasks     []*Task // without seq, in order; some of them may exist
	Forgotten int     // runs that are left out because they may have been made
	Coming    int     // runs that the timer itself has still to make
	BeforeSet int     // of Tasks, those from before the timer was set
	Next      int64   // the first run that was not looked at; 0: none
}

// AskRun returns the run at an instant, whatever the expression says, due now.
func (t *Timer) AskRun(at, now int64) (Asked, error) {
	_, body, err := t.read()
	if err != nil {
		return Asked{}, err
	}
	return Asked{Tasks: []*Task{t.askedRun(body, at, now, now)}}, nil
}

// Backfill returns the runs of a past range. A run keeps a past due time. A run that the timer has
// still to make is left to the timer.
func (t *Timer) Backfill(r Range, now int64) (out Asked, err error) {
	_, body, err := t.read()
	if err != nil {
		return out, err
	}
	s, err := t.Definition.Reaching(r.From)
	if err != nil {
		return out, fmt.Errorf("reading the definition of timer %q: %w", t.ID, err)
	}
	for run, ok := s.Next(r.From - 1); ok && run < r.To; run, ok = s.Next(run) {
		switch {
		case len(out.Tasks)+out.Forgotten+out.Coming >= r.Room || r.Bytes <= 0:
			out.Next = run
			return out, nil
		case run > now || t.Makes(run):
			out.Coming++
		case run < r.Remembered && !r.Forgotten:
			out.Forgotten++
		default:
			if run < t.Created {
				out.BeforeSet++
			}
			again := t.askedRun(body, run, min(s.Due(t.Topic, t.ID, run), now), now)
			r.Bytes -= len(again.Body)
			out.Tasks = append(out.Tasks, again)
		}
	}
	return out, nil
}

// Makes tells whether the timer has still to make, or to drop, its expression's run at an instant.
func (t *Timer) Makes(run int64) bool {
	return t.State == TimerEnabled && run >= t.Next && run >= t.Definition.From
}

// askedRun returns a run's task for a caller, who knows that it is late. So it cannot be missed,
// and does not expire.
func (t *Timer) askedRun(body schemas.Body, run, due, now int64) *Task {
	body.Settings.MaxLateness = 0
	return t.task(body, run, due, 0, now)
}

// PlaceIn puts a new task into its slot.
func (t *Task) PlaceIn(spread slots.Spread) { t.Slot = t.line(spread) }

// WasDropped: a task without a dead letter is an unsent run. It was dropped, or its letter purged.
func (t *Task) WasDropped() bool {
	return IsRun(t.Seq) && t.Slot == OutOfLine && t.State == StateDead && t.Attempt == 0 && t.Replay == 0
}

func (t *Timer) read() (s timer.Schedule, body schemas.Body, err error) {
	if s, err = timer.Parse(t.Definition); err != nil {
		return s, body, fmt.Errorf("reading the definition of timer %q: %w", t.ID, err)
	}
	if body, err = schemas.DecodeBody(t.Body); err != nil {
		return s, body, fmt.Errorf("reading the body of timer %q: %w", t.ID, err)
	}
	return s, body, nil
}
