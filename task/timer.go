package task

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

// TimerState is whether a timer makes runs.
type TimerState int8

const (
	TimerEnabled  TimerState = 0
	TimerDisabled TimerState = 1
	TimerDeleted  TimerState = 2 // only its version is remembered; its slot is OutOfLine
)

// NoRun is the Next of a timer that makes no more runs.
const NoRun = math.MaxInt64

// Timer is one row. Its runs are tasks in its slot.
type Timer struct {
	Slot  int
	Next  int64 // the first run that is not made yet, Unix ms; when it was deleted, if it was
	Open  int64 // all runs before it are claimed or ended
	State TimerState
	// Placed bounds the places of runs that came after their own was claimed: none is behind both
	// the due time and Placed.
	Placed     int64
	Seq        int64 // of the request that set it
	Version    int64 // -1: none
	Created    int64 // Unix ms of the request that opened it
	Topic      string
	ID         string
	Definition timer.Definition
	Kept       []Kept // of earlier definitions, the newest last
	Gaps       []Gap  // what was not sent, the latest last
	Moved      int64  // when it came from another database, Unix ms: runs from before are not remembered
	// Elsewhere are runs that were in flight there, or sent, and that this timer has not passed.
	// They are not made again. One that fails follows, and is known by its row from then on.
	Elsewhere []int64
	Body      []byte // schemas.EncodeBody of each run, but for what names the run
}

// Kept are runs of a timer that was replaced when their instants had passed: they waited for their
// jitter, or behind others. They are delivered as made. JSON fixes the names in Kept.
type Kept struct {
	Definition timer.Definition `json:"definition"`
	Slot       int              `json:"slot"`
	Open       int64            `json:"open"` // they lie from here on,
	To         int64            `json:"to"`   // before this
	Placed     int64            `json:"placed"`
	Slots      int              `json:"slots,omitempty"` // how many there were: with another number, the runs may have gone to other slots; 0: not known
}

// MostKept is how many earlier definitions' kept runs a timer knows. Earlier ones are delivered
// too, and no request takes them away any more.
const MostKept = 4

// AllClaimed: once their slot is claimed up to a place, none of the runs can be pending any more.
func (k Kept) AllClaimed(claimed int64) bool {
	s, err := timer.Parse(k.Definition)
	if err != nil {
		return max(k.To+timer.LongestJitter.Milliseconds(), k.Placed) <= claimed
	}
	for run, ok := s.Next(k.Open - 1); ok && run < k.To; run, ok = s.Next(run) {
		if max(run+k.Definition.Jitter.Milliseconds(), k.Placed) > claimed {
			return false
		}
	}
	return true
}

// TimerVerdict is the result of a request about a timer.
type TimerVerdict struct {
	Next  *Timer        // the timer afterwards: the pointer that came in when nothing changed
	Clear bool          // the runs that are not claimed go,
	From  int64         // those from then on
	Event schemas.Event // the answer; there is always one
	Dead  *DeadLetter
}

// DecideTimer is the whole state machine of callers' changes to a timer. It depends only on the
// timer (nil: none is known), the request and the time in Unix ms.
func DecideTimer(cur *Timer, c Change, spread slots.Spread, now int64) TimerVerdict {
	r, v := c.Request, TimerVerdict{Next: cur}
	if cur != nil && !c.about(cur.Topic, cur.ID) {
		return v.reject(c, schemas.HeaderID, r.ID, collision)
	}
	if cur != nil && r.Version >= 0 && (r.Version < cur.Version || r.Version == cur.Version && cur.State == TimerDeleted && r.Op == schemas.OpTimer) {
		return v.answer(r, schemas.StateStale, 0, fmt.Sprintf("notyet-version %d is below the known version %d, or not above the deleted one", r.Version, cur.Version))
	}
	if r.Op == schemas.OpTimer {
		return setTimer(cur, c, spread, now)
	}
	if cur == nil || cur.State == TimerDeleted {
		return v.answer(r, schemas.StateNotFound, 0, c.unknown("no timer"))
	}
	next := *cur
	v.Next, next.Version = &next, max(next.Version, r.Version)
	switch r.Op {
	case schemas.OpTimerEnable:
		s, err := timer.Parse(cur.Definition)
		if err != nil {
			return TimerVerdict{Next: cur}.reject(c, schemas.HeaderID, r.ID, "its stored definition cannot be read: "+err.Error()+"; set it again")
		}
		due, ok := s.Next(now - 1)
		if cur.State == TimerDisabled {
			next.State, next.Next = TimerEnabled, NoRun
			if ok {
				next.Next = due
			}
			next.Open = next.Next
			next.resume(now)
		}
		return v.answer(r, schemas.StateTimerEnabled, due, "")
	case schemas.OpTimerDisable:
		if v.Clear = cur.State == TimerEnabled; v.Clear {
			next.note(Gap{From: min(cur.Open, now), Why: WhyDisabled})
		}
		next.State, next.Next, next.Open, next.Kept = TimerDisabled, NoRun, NoRun, nil
		return v.answer(r, schemas.StateTimerDisabled, 0, "")
	case schemas.OpTimerDelete:
		v.Clear = cur.State == TimerEnabled
		next.State, next.Slot, next.Next, next.Open = TimerDeleted, OutOfLine, now, now
		next.Elsewhere = cur.sentElsewhere(min(r.Accepted, now)) // it may be set again by a request from before it came
		next.Definition, next.Kept, next.Gaps, next.Body = timer.Definition{}, nil, nil, nil
		return v.answer(r, schemas.StateTimerDeleted, 0, "")
	}
	return TimerVerdict{Next: cur}.reject(c, schemas.HeaderOp, r.Op.String(), "is not supported by this version")
}

func setTimer(cur *Timer, c Change, spread slots.Spread, now int64) TimerVerdict {
	r, v := c.Request, TimerVerdict{Next: cur}
	if cur != nil && cur.State == TimerDeleted {
		cur = nil // but for its version
	}
	def := DefinitionOf(r)
	if cur != nil && r.Timer.From == nil {
		def = def.Continuing(cur.Definition)
	}
	s, err := timer.New(def)
	if err != nil {
		return v.reject(c, schemas.HeaderCron, r.Timer.Cron, err.Error()).named(err, r)
	}
	if cur == nil && c.Beyond == QuotaUnknownTargets {
		return v.reject(c, "quota", c.Beyond, c.noRoom())
	}
	// A run before the acceptance is none, wherever from lies. A fast clock must swallow none.
	from := min(r.Accepted, now)
	next, ok := s.Next(from - 1)
	if !ok {
		return v.reject(c, schemas.HeaderUntil, millisText(def.Until), "has passed: write a later time")
	}
	body := schemas.EncodeBody(nil, r.Key, r.Value, r.Headers, r.Settings)
	set := &Timer{
		Slot: spread.Of(r.Topic, r.Key, r.ID), Next: next, Open: next, Seq: c.Seq, Version: r.Version, Created: r.Accepted,
		Topic: r.Topic, ID: r.ID, Definition: def, Body: body,
	}
	if v.Next != nil {
		set.Version, set.Moved, set.Elsewhere = max(set.Version, v.Next.Version), v.Next.Moved, v.Next.sentElsewhere(from)
	}
	if v.Next = set; cur == nil {
		return v.answer(r, schemas.StateTimerSet, next, "")
	}
	set.Created, set.Gaps = cur.Created, cur.Gaps
	switch {
	case cur.State == TimerDisabled:
		set.State, set.Next, set.Open = TimerDisabled, NoRun, NoRun
		return v.answer(r, schemas.StateTimerSet, 0, "the timer is disabled, and stays so until it is enabled")
	case def == cur.Definition && set.Slot == cur.Slot && bytes.Equal(body, cur.Body): // its runs stay
		set.Next, set.Open, set.Placed, set.Kept = cur.Next, cur.Open, cur.Placed, cur.Kept
	default:
		v.Clear, v.From, set.Kept = true, from, cur.keep(from, spread)
	}
	return v.answer(r, schemas.StateTimerSet, next, "")
}

// MostElsewhere bounds a timer's row.
const MostElsewhere = 64

// sentElsewhere is Elsewhere with the runs from an instant on that may have been sent before the
// timer came. Of those that are pending, see NotElsewhere.
func (t *Timer) sentElsewhere(from int64) []int64 {
	out := slices.Clone(t.Elsewhere)
	s, err := timer.Parse(t.Definition)
	if err != nil || t.Moved < from { // deleted, or set by a newer version
		return out
	}
	to := min(t.Moved, t.Next-1) // later ones are made nowhere
	run, ok := s.Latest(from, to, MostElsewhere)
	for ; ok && run <= to; run, ok = s.Next(run) {
		if !slices.Contains(out, run) {
			out = append(out, run)
		}
	}
	return out[max(0, len(out)-MostElsewhere):]
}

// keep returns the runs before an instant, of this definition and of earlier ones.
func (t *Timer) keep(before int64, spread slots.Spread) []Kept {
	kept := slices.Clone(t.Kept)
	if to := min(t.Next, before); t.Open < to {
		k := Kept{Definition: t.Definition, Slot: t.Slot, Open: t.Open, To: to, Placed: t.Placed}
		if spread.Whole() {
			k.Slots = spread.Base()
		}
		kept = append(kept, k)
	}
	return kept
}

// DefinitionOf returns when the timer of a request runs.
func DefinitionOf(r *schemas.Request) timer.Definition {
	t := r.Timer
	def := timer.Definition{Cron: t.Cron, Every: t.Every, Zone: t.Timezone, From: r.Accepted, Set: r.Accepted, Jitter: t.Jitter, Misfire: timer.Misfire(t.Misfire.String()),
		Alone: t.Overlap == schemas.OverlapSkip}
	if t.From != nil {
		def.From = *t.From
	}
	if t.Until != nil {
		if def.Until = *t.Until; def.Until == 0 {
			def.Until = -1 // 0 would be no end; nothing runs in 1970
		}
	}
	return def
}

func (v TimerVerdict) answer(r *schemas.Request, state schemas.State, due int64, reason string) TimerVerdict {
	v.Event = schemas.Event{Topic: r.Topic, ID: r.ID, State: state, Due: due, Reason: reason}
	return v
}

// mostQuoted is how much of a value a rejection repeats, in bytes.
const mostQuoted = 64

func (v TimerVerdict) reject(c Change, header, value, problem string) TimerVerdict {
	rejected := Verdict{}.reject(c, header, schemas.CutUTF8(value, mostQuoted), problem)
	v.Event, v.Dead = rejected.Event, rejected.Dead
	return v
}

// named gives a rejection the header of a definition's error.
func (v TimerVerdict) named(err error, r *schemas.Request) TimerVerdict {
	var wrong *timer.Error
	if !errors.As(err, &wrong) {
		return v
	}
	reason := schemas.Prefix + wrong.Field
	if value := TimerValue(r, wrong.Field); value != "" {
		reason += fmt.Sprintf(" %q", schemas.CutUTF8(value, mostQuoted))
	}
	reason += " " + wrong.Problem
	v.Event.Reason, v.Dead.Reason = reason, reason
	return v
}

// TimerValue returns the value of a request for a field of a definition.
func TimerValue(r *schemas.Request, field string) string {
	switch field {
	case "cron":
		return r.Timer.Cron
	case "every":
		return r.Timer.Every.String()
	case "timezone":
		return r.Timer.Timezone
	case "jitter":
		return r.Timer.Jitter.String()
	case "until":
		if r.Timer.Until != nil {
			return millisText(*r.Timer.Until)
		}
	}
	return ""
}

func millisText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// RunIdent is the identity of a run.
func (t *Timer) RunIdent(run int64) [16]byte { return Ident(t.Topic, timer.RunID(t.ID, run)) }

// IsElsewhere tells whether a task is a run that another database has in flight.
func (t *Timer) IsElsewhere(run *Task) bool {
	_, at, ok := timer.SplitRunID(run.ID)
	return ok && slices.Contains(t.Elsewhere, at)
}

// HasMade tells whether a run is one of those that were made, and may not be claimed yet.
func (t *Timer) HasMade(run int64) bool {
	if t.State != TimerEnabled || run < t.Open || run >= t.Next {
		return false
	}
	s, err := timer.Parse(t.Definition)
	if err != nil {
		return false
	}
	next, ok := s.Next(run - 1)
	return ok && next == run
}

// NotElsewhere notes that a run has come: its row says what becomes of it.
func (t *Timer) NotElsewhere(run *Task) {
	if t.IsElsewhere(run) {
		t.Elsewhere = slices.DeleteFunc(slices.Clone(t.Elsewhere), func(at int64) bool { return at == RunInstant(run.ID) })
	}
}

// Pending returns the runs of a timer that may not be claimed yet.
func (t *Timer) Pending() ([]int64, error) {
	if t.State != TimerEnabled {
		return nil, nil
	}
	var out []int64
	for _, k := range append(slices.Clone(t.Kept), Kept{Definition: t.Definition, Open: t.Open, To: t.Next}) {
		if k.Open >= k.To {
			continue
		}
		s, err := timer.Parse(k.Definition)
		if err != nil {
			return nil, fmt.Errorf("reading the definition of timer %q: %w", t.ID, err)
		}
		for run, ok := s.Next(k.Open - 1); ok && run < k.To; run, ok = s.Next(run) {
			out = append(out, run)
		}
	}
	return out, nil
}

// AllClaimed: once slots are claimed up to places, none of a timer's runs can be pending any more,
// whatever its definition says, even unreadable. Kept runs may lie in other slots than the timer's
// own, because a key may have changed; kept returns how far all their possible slots are claimed.
func (t *Timer) AllClaimed(claimed func(slot int) int64, kept func(Kept) int64) bool {
	last := t.Next
	if last == NoRun {
		if last = t.Definition.Until; last == 0 {
			return false
		}
	}
	return max(last+timer.LongestJitter.Milliseconds(), t.Placed) <= claimed(t.Slot) && !slices.ContainsFunc(t.Kept, func(k Kept) bool { return !k.AllClaimed(kept(k)) })
}

// Making says up to when the runs of timers are made.
type Making struct {
	Now       int64         // Unix ms
	UpTo      int64         // the last run that may be made
	Tolerance time.Duration // how late a run may be before it is missed
	Claimed   int64         // of the timer's slot, or before it
	Room      int           // how many runs may be made or dropped, at least 1
	Bytes     int           // of the bodies of the runs, about
}

// Runs is what a timer makes at one time.
type Runs struct {
	Tasks   []*Task // without seq, in order
	Dropped []schemas.Event
	Missed  int  // how many were dropped, with an event or without
	Gaps    bool // the timer's gaps have changed
}

// Make makes the runs of a timer that are to exist by now, and moves the timer on.
func (t *Timer) Make(m Making) (Runs, error) {
	var out Runs
	s, body, err := t.read()
	if err != nil {
		return out, err
	}
	for t.Open < t.Next && max(s.Due(t.Topic, t.ID, t.Open), t.Placed) <= m.Claimed {
		next, ok := s.Next(t.Open)
		if t.Open = next; !ok {
			t.Open = NoRun
		}
	}
	open := t.Open >= t.Next // nothing that was made is pending
	run, ok := t.Next, true
	if first, found := s.Latest(run, m.Now-m.Tolerance.Milliseconds(), timer.MostMissed); found && first > run {
		t.Miss(s, run, first, WhyMisfire)
		run, out.Gaps = first, true // a long outage: the runs before are passed over
	}
	if open {
		t.Open = run
	}
	for ; ok && run <= m.UpTo && len(out.Tasks)+len(out.Dropped) < m.Room && m.Bytes > 0; run, ok = s.Next(run) {
		dropFrom := s.DropFrom(t.Topic, t.ID, run)
		if timer.Dropped(dropFrom, m.Now, m.Tolerance) {
			t.Miss(s, run, run+1, WhyMisfire)
			out.Missed, out.Gaps = out.Missed+1, true
			out.Dropped = append(out.Dropped, Missed(t.Topic, timer.RunID(t.ID, run), s.Due(t.Topic, t.ID, run)))
			continue
		}
		next := t.run(s, body, run, dropFrom, m.Now)
		m.Bytes -= len(next.Body)
		out.Tasks = append(out.Tasks, next)
	}
	if !ok {
		run = NoRun
	}
	t.Next, t.Open, t.Placed = run, min(t.Open, run), m.Claimed+1
	if !Published(body.Settings.Events, schemas.StateDead) {
		out.Dropped = nil
	}
	return out, nil
}

func (t *Timer) run(s timer.Schedule, body schemas.Body, run, dropFrom, now int64) *Task {
	return t.task(body, run, s.Due(t.Topic, t.ID, run), dropFrom, now)
}

func (t *Timer) task(body schemas.Body, run, due, dropFrom, now int64) *Task {
	settings := body.Settings
	settings.Run = schemas.Run{Timer: t.ID, DropFrom: dropFrom, Alone: t.Definition.Alone}
	return &Task{
		Slot: t.Slot, Pos: due, Class: ClassOf(settings.Priority), Due: due, Version: schemas.NoVersion, Created: now,
		Topic: t.Topic, ID: timer.RunID(t.ID, run), Body: schemas.EncodeBody(nil, body.Key, body.Value, body.Headers, settings),
	}
}

// RunAgain returns a run's task as made before, without its seq; nil: it is not still to be made.
func (t *Timer) RunAgain(run, now int64) *Task {
	if t.State != TimerEnabled || run < t.Next {
		return nil
	}
	s, body, err := t.read()
	if err != nil {
		return nil
	}
	if next, ok := s.Next(run - 1); !ok || next != run {
		return nil
	}
	return t.run(s, body, run, s.DropFrom(t.Topic, t.ID, run), now)
}

// RunMissed tells whether a run is missed, and may be dropped. A run fired late is due since then.
func RunMissed(r schemas.Run, due, now int64, tolerance time.Duration) bool {
	return r.DropFrom >= due && timer.Dropped(r.DropFrom, now, tolerance)
}

// RunInstant returns when a run lies, Unix ms, by its id.
func RunInstant(id string) int64 {
	_, run, _ := timer.SplitRunID(id)
	return run
}

// StandIns returns the runs that may be delivered in place of a missed one, see
// timer.Schedule.StandIns. coming: the timer has still to make such a run.
func (t *Timer) StandIns(run, now int64, tolerance time.Duration) (made []int64, coming bool) {
	s, err := timer.Parse(t.Definition)
	if err != nil {
		return nil, false // it was deleted, or set by a newer version
	}
	missed := now - tolerance.Milliseconds() - 1
	if t.Next <= missed && len(s.StandIns(t.Topic, t.ID, run, NoRun, missed)) > 0 {
		return nil, true
	}
	return s.StandIns(t.Topic, t.ID, run, t.Next, missed), false
}

// Missed is the event of a run dropped because it was late.
func Missed(topic, id string, due int64) schemas.Event {
	return schemas.Event{Topic: topic, ID: id, State: schemas.StateDead, Due: due, Kind: schemas.KindMissed, Reason: "the run was missed, and its timer's notyet-misfire drops it"}
}

// Overlapping is the event of a run that was dropped because an earlier one is unfinished.
func Overlapping(topic, id string, due int64) schemas.Event {
	e := Missed(topic, id, due)
	e.Reason = "an earlier run of its timer is unfinished, and notyet-overlap skip drops it"
	return e
}
