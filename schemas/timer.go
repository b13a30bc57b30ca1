package schemas

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"
)

// Timer says when a timer runs.
type Timer struct {
	// Cron has 5 fields, or 6 with seconds first, or is a nickname such as @daily. Decode checks
	// only the number of fields and their characters. The timer package checks the expression's
	// meaning. Exactly one of Cron and Every is set.
	Cron string

	// Every is the time from one run to the next, at least 1 s. Runs are at From + k × Every.
	Every time.Duration

	// Timezone is an IANA name. Default UTC. Decode checks it against the program's time zone data.
	Timezone string

	// From and Until are the first and the last instant at which a run may be, in Unix ms. nil: when
	// the request was accepted, and for ever.
	From, Until *int64

	// Jitter is how much later than planned a run is due, at most. Default 0.
	Jitter time.Duration

	// Misfire is what happens to missed runs.
	Misfire Misfire

	// Overlap is what happens to a run that is due while an earlier one is unfinished. Only with
	// AckReport.
	Overlap Overlap
}

// shortestEvery is the shortest time between two runs.
const shortestEvery = time.Second

// set reads one of a timer's headers.
func (t *Timer) set(h header, v []byte) *Rejection {
	switch h {
	case hCron:
		return t.setCron(v)
	case hEvery:
		return t.setEvery(v)
	case hTimezone:
		return t.setTimezone(v)
	case hFrom:
		return setTime(h, v, &t.From)
	case hUntil:
		return setTime(h, v, &t.Until)
	case hJitter:
		return setFromZero(h, v, &t.Jitter)
	case hMisfire:
		return parseEnum(h, misfireNames, v, &t.Misfire)
	case hOverlap:
		return parseEnum(h, overlapNames, v, &t.Overlap)
	}
	return nil
}

// setCron checks what needs no dates: a nickname, or 5 or 6 fields of the characters that cron
// dialects use.
func (t *Timer) setCron(v []byte) *Rejection {
	const fix = "write 5 fields (minute hour day month weekday), 6 with seconds in front, or a nickname such as @daily"
	fields := bytes.Fields(v)
	nickname := len(fields) == 1 && fields[0][0] == '@'
	if n := len(fields); n != 5 && n != 6 && !nickname || len(v) > MaxIDLen {
		return bad(hCron, v, "is not a cron expression", fix)
	}
	for i, c := range v {
		at := nickname && c == '@' && bytes.IndexByte(v, '@') == i
		if !at && !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') && !strings.ContainsRune(" \t*/,-?#", rune(c)) {
			return bad(hCron, v, "is not a cron expression", fix)
		}
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

func (t *Timer) setTimezone(v []byte) *Rejection {
	name := string(v)
	_, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return bad(hTimezone, v, "is not a time zone", "write an IANA name such as Europe/Berlin, or UTC")
	}
	t.Timezone = name
	return nil
}

func setTime(h header, v []byte, into **int64) *Rejection {
	at, rej := parseTime(h, v)
	if rej == nil {
		*into = &at
	}
	return rej
}

// addHeaders writes what differs from the defaults.
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
	from := d.req.Accepted
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
	t.Timezone = cmp.Or(t.Timezone, "UTC")
	return nil
}

// String gives the form in which a task's body holds it.
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
