package flight

import (
	"time"

	"github.com/notyet/notyet/callback"
	"github.com/notyet/notyet/internal/kafka"
)

// Answer is what a producer said of a record, or a receiver of a callback.
type Answer struct {
	At        int64 // Unix ms, by the database's clock
	Partition int32
	Offset    int64
	Err       error
	Alone     bool // it was sent by itself: an error is about nothing else
}

// Answered takes Kafka's answer. Conclude decides what follows for the task.
func (fl *Flight) Answered(t *Task, a Answer) {
	fl.mu.Lock()
	g := fl.outlets.endSending(t)
	// The producer itself may refuse a record as too large: only an answer to one sent alone shows that its target is there.
	if a.Err == nil || kafka.ClockDiffers(a.Err) || kafka.Permanent(a.Err) && (a.Alone || !kafka.MaybeCollateral(a.Err)) {
		g.since = time.Now()
		fl.respondsAgain(g)
	}
	again := fl.refusedForNow(t.topic, a.Err)
	fl.concludes(outcome{task: t, at: a.At, partition: a.Partition, offset: a.Offset, err: a.Err, alone: a.Alone, again: again})
	kickRelease := len(g.waiting) > 0 || fl.outlets.buffered.tasks > fl.cfg.StageTasks/2 // or tasks of other outlets wait for room
	fl.outlets.forgetIdle(g)
	fl.mu.Unlock()
	fl.kicks.Settle.Now()
	if kickRelease {
		fl.kicks.Release.Now()
	}
}

// CallError is what came of a request that was not delivered.
type CallError struct{ callback.Outcome }

func (e *CallError) Error() string { return e.Reason }

// Called takes what came of a request, as Answered does for a record: the answer, and what it says of the origin.
func (fl *Flight) Called(t *Task, a Answer, o callback.Outcome) {
	fl.mu.Lock()
	delete(fl.underWay, t)
	g := fl.outlets.endSending(t)
	switch {
	case o.Down > 0:
		fl.originDown(g, o.Down)
	case o.Status != 0:
		g.since = time.Now()
		g.answers++
		fl.respondsAgain(g)
	}
	fl.concludes(outcome{task: t, at: a.At, err: a.Err, alone: true})
	fl.outlets.forgetIdle(g)
	fl.mu.Unlock()
	fl.kicks.Settle.Now()
	fl.kicks.Release.Now() // there is room again, perhaps for another origin
}

// concludes hands an outcome to the settle loop.
func (fl *Flight) concludes(o outcome) {
	if t := o.task; o.err == nil && t.status == sending {
		fl.unsettled.delivered(t)
	} else {
		fl.unsettled.ends(t)
	}
	fl.inbox.concludes(o)
}

// Probed counts a probe that is over.
func (fl *Flight) Probed() {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.outlets.probes--
}
