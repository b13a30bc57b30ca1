package schemas

import (
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Settings control a task's delivery and its consequences. The zero value is not the default: start
// from DefaultSettings. After decoding, all durations are whole milliseconds (rounded up).
type Settings struct {
	// Priority orders tasks that are due together.
	Priority Priority

	// Ack is what completes the task.
	Ack Ack

	// AckTimeout is how long a delivery waits for its report, at least MinAckTimeout. Default 1m;
	// 30s for an HTTP callback, whose request it limits as well. Otherwise only with AckReport.
	AckTimeout time.Duration

	// MaxAttempts is the total number of deliveries, 1 to MaxAttempts. Default 16.
	MaxAttempts int

	// Backoff is the pause before the next attempt, from the report or the end of AckTimeout on.
	Backoff Backoff

	// MaxLateness bounds the lateness of a delivery; then the task is dead ("expired"). Default 0:
	// none.
	MaxLateness time.Duration

	// Tag is up to MaxTags tags, comma-separated, by which lists, forecasts, cancels and replays
	// select. Default none.
	Tag string

	// Events selects events for the results topic. Default: EventsFinal for a task with a caller's
	// id, EventsNone for others. See DefaultEvents.
	Events Events

	// MaxWait limits how far merging may move the due time, counted from the first schedule.
	// Default 0: no limit. Only with IfExists Merge.
	MaxWait time.Duration

	// IfExists is what happens if a pending task has the same identity.
	IfExists IfExists

	// Merge is how values are merged. Only with IfExists Merge.
	Merge MergeMode

	// Callback is set for a task delivered as an HTTP request, which AckTimeout then limits too.
	// Start from CallbackSettings.
	Callback Callback

	// Run is set by notyet for a timer's run. No request can set it.
	Run Run
}

// Run marks a task as a timer's run.
type Run struct {
	Timer    string // the timer's id; "": the task is no run
	DropFrom int64  // see timer.Schedule.DropFrom
	Alone    bool   // it is dropped while an earlier run is unfinished: notyet-overlap skip
}

// defaults are part of the contract and of the body's format. A body stores only other settings, so
// changing a default needs a new format version.
var defaults = Settings{
	AckTimeout:  time.Minute,
	MaxAttempts: 16,
	Backoff:     Backoff{Exponential: true, First: time.Second, Max: 10 * time.Minute},
	Events:      EventsFinal,
}

// DefaultSettings returns the settings of a task with a caller's id whose request sets nothing.
func DefaultSettings() Settings { return defaults }

// DefaultEvents returns the events for the results topic if a request does not say.
func DefaultEvents(givenID bool) Events {
	if givenID {
		return EventsFinal
	}
	return EventsNone
}

// set reads one settings header.
func (s *Settings) set(h header, v []byte) *Rejection {
	switch h {
	case hPriority:
		return parseEnum(h, priorityNames, v, &s.Priority)
	case hAck:
		return parseEnum(h, ackNames, v, &s.Ack)
	case hEvents:
		return parseEnum(h, eventsNames, v, &s.Events)
	case hIfExists:
		return parseEnum(h, ifExistsNames, v, &s.IfExists)
	case hMerge:
		return parseEnum(h, mergeNames, v, &s.Merge)
	case hAckTimeout:
		return setPositive(h, v, &s.AckTimeout)
	case hMaxLateness:
		return setPositive(h, v, &s.MaxLateness)
	case hMaxWait:
		return setPositive(h, v, &s.MaxWait)
	case hTag:
		s.Tag = string(v)
		return tagRejection(v)
	case hMaxAttempts:
		return s.setMaxAttempts(v)
	case hBackoff:
		return s.setBackoff(v)
	case hRetryAfter: // of a body: the steps of the backoff
		b, problem := parseSteps(v)
		if problem != "" {
			return bad(h, v, problem, durationFix)
		}
		s.Backoff = b
	case hURL:
		if len(v) > 0 {
			s.Callback.set(string(v))
			s.AckTimeout = DefaultCallbackTimeout // appendHeaders writes another one behind it
		}
	case hMethod:
		if len(v) > 0 {
			s.Callback.Method = string(v)
		}
	case hTimer:
		return s.Run.set(v)
	}
	return nil
}

func (s *Settings) setMaxAttempts(v []byte) *Rejection {
	n, isInt, fits := parseInt(v)
	if !isInt || !fits || n < 1 || n > math.MaxInt32 {
		return bad(hMaxAttempts, v, "is not a number of deliveries", attemptsFix)
	}
	s.MaxAttempts = int(n)
	return nil
}

// Bounds of a request's settings. Older versions had none, so stored settings need clamp.
const (
	// MaxAttempts is the highest Settings.MaxAttempts.
	MaxAttempts = 10_000
	// MinAckTimeout is the shortest Settings.AckTimeout.
	MinAckTimeout = 100 * time.Millisecond

	attemptsFix = "write an integer from 1 to 10000"
)

// beyond returns what is wrong with a request's setting.
func (s *Settings) beyond(h header, v []byte) *Rejection {
	switch {
	case h == hMaxAttempts && s.MaxAttempts > MaxAttempts:
		return bad(h, v, "is above "+strconv.Itoa(MaxAttempts), attemptsFix)
	case h == hAckTimeout && s.AckTimeout < MinAckTimeout:
		return bad(h, v, "is below "+MinAckTimeout.String(), "write at least "+MinAckTimeout.String())
	}
	return nil
}

// clamp brings stored settings within the bounds.
func (s *Settings) clamp() {
	s.MaxAttempts, s.AckTimeout = min(s.MaxAttempts, MaxAttempts), max(s.AckTimeout, MinAckTimeout)
}

// Pause returns the pause after the n-th attempt, n from 1. snoozed of the attempts do not lengthen
// the backoff. asked replaces the backoff; NoRetryAfter: nothing does. No task may come again all
// the time: from the 10th attempt on, a pause is at least 100 ms.
func (s *Settings) Pause(attempt, snoozed int, asked time.Duration) time.Duration {
	if asked < 0 {
		asked = s.Backoff.Pause(attempt - snoozed)
	}
	if attempt >= 10 {
		asked = max(asked, 100*time.Millisecond)
	}
	return asked
}

func setPositive(h header, v []byte, into *time.Duration) *Rejection {
	d, problem := parsePositive(v)
	if problem != "" {
		return bad(h, v, problem, durationFix)
	}
	*into = d
	return nil
}

// setFromZero reads a duration that may be 0.
func setFromZero(h header, v []byte, into *time.Duration) *Rejection {
	if d, problem := parseDuration(v); problem == "" && d == 0 {
		*into = 0
		return nil
	}
	return setPositive(h, v, into)
}

// longestWhole is the longest duration of whole milliseconds. A duration within it stays within it
// when rounded up, so a body or a waiting request with it can be read again.
const longestWhole = math.MaxInt64 / time.Millisecond * time.Millisecond

// parsePositive reads a duration above 0 and rounds it up to a millisecond.
func parsePositive(v []byte) (time.Duration, string) {
	d, problem := parseDuration(v)
	if problem != "" {
		return 0, problem
	}
	if d == 0 {
		return 0, "is zero"
	}
	if d > longestWhole {
		return 0, tooLong
	}
	return time.Duration(CeilMillis(d)) * time.Millisecond, ""
}

// appendHeaders adds a header for each setting other than its default, events for Events.
func (s Settings) appendHeaders(dst []kgo.RecordHeader, events Events) []kgo.RecordHeader {
	add := func(differs bool, name string, value func() string) {
		if differs {
			dst = append(dst, kgo.RecordHeader{Key: name, Value: []byte(value())})
		}
	}
	ackTimeout, c := defaults.AckTimeout, s.Callback
	if c.URL != "" {
		ackTimeout = DefaultCallbackTimeout
	}
	add(c.URL != "", HeaderURL, func() string { return c.URL })
	add(c.Method != "" && (c.URL == "" || c.Method != DefaultMethod), HeaderMethod, func() string { return c.Method })
	add(s.IfExists != defaults.IfExists, HeaderIfExists, s.IfExists.String)
	add(s.Merge != defaults.Merge, HeaderMerge, s.Merge.String)
	add(s.MaxWait != defaults.MaxWait, HeaderMaxWait, s.MaxWait.String)
	add(s.Priority != defaults.Priority, HeaderPriority, s.Priority.String)
	add(s.Ack != defaults.Ack, HeaderAck, s.Ack.String)
	add(s.AckTimeout != ackTimeout, HeaderAckTimeout, s.AckTimeout.String)
	add(s.MaxAttempts != defaults.MaxAttempts, HeaderMaxAttempts, func() string { return strconv.Itoa(s.MaxAttempts) })
	add(s.Backoff != defaults.Backoff, HeaderBackoff, s.Backoff.String)
	add(s.MaxLateness != defaults.MaxLateness, HeaderMaxLateness, s.MaxLateness.String)
	add(s.Tag != "", HeaderTag, func() string { return s.Tag })
	add(s.Events != events, HeaderEvents, s.Events.String)
	add(s.Run.Timer != "", HeaderTimer, s.Run.String)
	return dst
}
