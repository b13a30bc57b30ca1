package flight

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
)

// refusals remembers which targets refuse every record: the topic does not exist, may not be written, or its broker's clock is far from
// the database's. It may be there in a moment, so until patience has passed since the first refusal in a row, its tasks are put off, and one of them at a time is sent
// to ask again. After that each is sent, and is a dead letter if it is refused. The memory is this process's own: a new owner of
// a slot begins its own count.
type refusals struct {
	patience time.Duration
	topics   map[string]*refusal
}

type refusal struct {
	clock         bool      // the clocks of the database and the broker differ: the tasks wait until somebody corrects one
	since, latest time.Time // of the refusals in a row
	next          time.Time // nothing is sent before
	rests         int       // in a row: after each task that asked
}

const (
	firstRefusedPause   = time.Second
	longestRefusedPause = 10 * time.Second
	// refusedQuiet ends a row: a target that nothing was sent to for so long may have come and gone meanwhile.
	refusedQuiet = 2 * time.Minute
)

// refused notes a refusal, and reports whether it is one too many. A refusal for the clock never is.
func (r *refusals) refused(topic string, clock bool, now time.Time) (final bool) {
	e := r.topics[topic]
	if e == nil || e.clock != clock || now.Sub(e.latest) > refusedQuiet {
		if r.topics == nil {
			r.topics = map[string]*refusal{}
		}
		e = &refusal{clock: clock, since: now}
		r.topics[topic] = e
	}
	if e.latest = now; !now.Before(e.next) { // not one of many that were sent together
		e.rests++
		e.next = now.Add(r.rest(e, now))
	}
	return r.final(e, now)
}

func (r *refusals) final(e *refusal, now time.Time) bool {
	return !e.clock && now.Sub(e.since) >= r.patience
}

// count returns how many targets refuse records for the clock, or for another reason.
func (r *refusals) count(clock bool) (n int) {
	for _, e := range r.topics {
		if e.clock == clock {
			n++
		}
	}
	return n
}

// accepted ends a row, and reports whether there was one.
func (r *refusals) accepted(topic string) bool {
	if len(r.topics) == 0 || r.topics[topic] == nil {
		return false
	}
	delete(r.topics, topic)
	return true
}

// putsOff reports whether a due task is to be put off unsent; asking says that another is with the producer.
func (r *refusals) putsOff(topic string, now time.Time, asking bool) bool {
	if len(r.topics) == 0 {
		return false
	}
	e := r.topics[topic]
	return e != nil && !r.final(e, now) && (asking || now.Before(e.next))
}

// pause is for how long a task of the target is put off.
func (r *refusals) pause(topic string, now time.Time) time.Duration {
	if e := r.topics[topic]; e != nil {
		return r.rest(e, now)
	}
	return unsentPause
}

// rest grows, and ends with the patience: the tasks are decided on then.
func (r *refusals) rest(e *refusal, now time.Time) time.Duration {
	pause := loop.Pause(e.rests, firstRefusedPause, longestRefusedPause)
	if left := r.patience - now.Sub(e.since); !e.clock && left > 0 {
		return min(pause, left)
	}
	return pause
}

// forget drops rows that have ended by silence, and returns their topics.
func (r *refusals) forget(now time.Time) (topics []string) {
	for topic, e := range r.topics {
		if now.Sub(e.latest) > refusedQuiet {
			delete(r.topics, topic)
			topics = append(topics, topic)
		}
	}
	return topics
}

// refusedForNow takes note of an answer to a record, and reports whether its target refused it and may take it in a moment.
func (outs *outlets) refusedForNow(topic string, err error) bool {
	switch {
	case err == nil:
		if outs.refusals.accepted(topic) {
			outs.log.Info("a target takes records again", zap.String("topic", topic))
		}
	case kafka.TopicMayCome(err):
		if _, known := outs.refusals.topics[topic]; !known {
			outs.log.Warn("a target does not exist or may not be written: its tasks are tried for a while, then they are dead letters",
				zap.String("topic", topic), zap.Duration("undeliverable_after", outs.cfg.UndeliverableAfter), zap.Error(err))
		}
		return !outs.refusals.refused(topic, false, time.Now())
	case kafka.ClockDiffers(err):
		if e := outs.refusals.topics[topic]; e == nil || !e.clock {
			outs.log.Error("a broker refuses the database's time: one of the two clocks is wrong, and tasks of the topic wait until it is corrected",
				zap.String("topic", topic), zap.Time("database_clock", outs.clock.Now()), zap.Duration("database_ahead_of_this_machine", outs.clock.Offset()), zap.Error(err))
		}
		outs.refusals.refused(topic, true, time.Now())
	}
	return false
}

// forgetRefused forgets refusals that have ended by silence, and returns the topics that the producer is to forget as well: it would ask
// the brokers for each name that anybody ever mistyped, four times a second. One that has something in flight answers for itself.
func (outs *outlets) forgetRefused(now time.Time) []string {
	gone := outs.refusals.forget(now)
	if len(gone) == 0 {
		return nil
	}
	used := map[string]bool{}
	for _, g := range outs.byKey {
		used[g.topic] = used[g.topic] || g.sending > 0 || len(g.waiting) > 0
	}
	return slices.DeleteFunc(gone, func(topic string) bool { return used[topic] })
}
