package schemas

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"
)

// Timer says when a timer runs.
type Timer struct {
	// Cron has 5 fields, or 6 with seconds first, or is a nickname such as @daily. The timer
	// package reads it, not Decode. Exactly one of Cron and Every is set.
	Cron string

	// Every is the time from one run to the next, at least 1 s. Runs are at From + k × Every.
	Every time.Duration

	// Timezone is the IANA name of Cron's zone. Default UTC. Decode checks it against its own data.
	Timezone string

	// From and Until are the first and the last instant at which a run may be, in Unix ms. nil:
	// when the request was accepted, and for ever.
	From, Until *int64

	// Jitter is how much later than planned a run is due, at most. Default 0.
	Jitter time.Duration

	// Misfire is the fate of missed runs.
	Misfire Misfire

	// Overlap is the fate of a run due while an earlier one is unfinished. Only with AckReport.
	Overlap Overlap
}

// shortestEvery is the shortest time between two runs.
const shortestEvery = time.Second

// set reads one of a timer's headers, but for the times, which need the time zone.
func (t *Timer) set(h header, v []byte) *Rejection {
	switch h {
	case hCron:
		return t.setCron(v)
	case hEvery:
		return t.setEvery(v)
	case hJitter:
		return setFromZero(h, v, &t.Jitter)
	case hMisfire:
		return parseEnum(h, misfireNames, v, &t.Misfire)
	case hOverlap:
		return parseEnum(h, overlapNames, v, &t.Overlap)
	}
	return nil
}

// setCron takes an expression for the timer package to read, without white space at its ends.
func (t *Timer) setCron(v []byte) *Rejection {
	if v = bytes.TrimSpace(v); len(v) == 0 || len(v) > MaxIDLen || !utf8.Valid(v) {
		return bad(hCron, v, "is not a cron expression", "write 5 fields (minute hour day month weekday), 6 with seconds in front, or a nickname such as @daily")
	}
	t.Cron = string(v)
	return nil
}

func (t *Timer) setEvery(v []byte) *Rejection {
	d, problem := parsePositive(v)
	if problem == "" && d < shortestEvery {
		problem = "is too short"
	}
	if problem != "" {
		return bad(hEvery, v, problem, "write a duration of at least "+shortestEvery.String()+", such as 90s or PT30M")
	}
	t.Every = d
	return nil
}

func (t *Timer) addHeaders(add func(present bool, name, value string)) {
	add(t.Cron != "" || t.Every == 0, HeaderCron, t.Cron)
	add(t.Every != 0, HeaderEvery, t.Every.String())
	add(t.Timezone != "" && t.Timezone != "UTC", HeaderTimezone, t.Timezone)
	if t.From != nil {
		add(true, HeaderFrom, string(appendAt(nil, *t.From)))
	}
	if t.Until != nil {
		add(true, HeaderUntil, string(appendAt(nil, *t.Until)))
	}
	add(t.Jitter != 0, HeaderJitter, t.Jitter.String())
	add(t.Misfire != MisfireOnce, HeaderMisfire, t.Misfire.String())
	add(t.Overlap != OverlapAllow, HeaderOverlap, t.Overlap.String())
}

// timer checks a timer's headers against each other and the limits.
func (d *decoder) timer(l *Limits) *Rejection {
	t := &d.req.Timer
	value := func(h header) []byte {
		v, _ := only(d.rec.Headers, h.name())
		return v
	}
	switch d.seen & (hCron | hEvery) {
	case 0:
		return missing(hCron, "send "+HeaderCron+" or "+HeaderEvery)
	case hCron | hEvery:
		return bad(hEvery, value(hEvery), "stands beside "+HeaderCron, "send one of them")
	}
	if d.seen&(hEvery|hTimezone) == hEvery|hTimezone {
		return bad(hTimezone, value(hTimezone), "means nothing beside "+HeaderEvery+", which counts elapsed time", "leave it out, or send "+HeaderCron+" instead")
	}
	t.Timezone = "UTC"
	if d.zone != nil {
		t.Timezone = d.zone.String()
	}
	from := d.req.Accepted
	for _, bound := range []struct {
		h    header
		into **int64
	}{{hFrom, &t.From}, {hUntil, &t.Until}} {
		if d.seen&bound.h != 0 {
			at, rej := d.time(bound.h, value(bound.h))
			if rej != nil {
				return rej
			}
			*bound.into = &at
		}
	}
	if t.From != nil {
		from = *t.From
	}
	switch {
	case from-d.req.Accepted > l.maxDelay():
		return beyond(hFrom, value(hFrom), l, d.req.Accepted)
	case t.Until != nil && *t.Until < from:
		return bad(hUntil, value(hUntil), "lies before the first run can be", "write a time after "+HeaderFrom+", which is now where it is not given")
	case t.Overlap == OverlapSkip && d.req.Settings.Ack != AckReport:
		return bad(hOverlap, value(hOverlap), "means nothing without "+HeaderAck+" report", "leave it out, or add "+HeaderAck+" report")
	}
	return nil
}

// String gives the form in a task's body.
func (r Run) String() string {
	alone := ""
	if r.Alone {
		alone = runAlone
	}
	return strconv.FormatInt(r.DropFrom, 10) + alone + ":" + r.Timer
}

const runAlone = ",alone"

// set reads what String wrote.
func (r *Run) set(v []byte) *Rejection {
	from, timer, found := bytes.Cut(v, []byte(":"))
	from, alone := bytes.CutSuffix(from, []byte(runAlone))
	n, isInt, fits := parseInt(from)
	if !found || !isInt || !fits || len(timer) == 0 {
		return bad(hTimer, v, "does not name a run", "expected a time, a colon and a timer's id")
	}
	r.Timer, r.DropFrom, r.Alone = string(timer), n, alone
	return nil
}
